"""What all protocols of programs have in common: a request, read with limits, and why one is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from automedbench.agent.models.model import ChatMessage, Reply, Role
from automedbench.agent.models.protocols import WIRES
from automedbench.base.endpoint.address import ProtocolName
from automedbench.base.endpoint.replies import clean_text
from automedbench.campaign.agents import Agent

MAX_MESSAGES = 5000
MAX_SAID = 10_000
"""Messages, calls and results of a conversation together: a message may hold any number of the others."""
MAX_DEPTH = 64
MAX_OPENED = 1_000_000
"""Brackets that a body opens: 16 MiB of empty lists would take half a minute and a gigabyte."""


class Refused(Exception):
    """A request that gets an error object instead of a reply: status, type and code as OpenAI names them.

    ``rule``: that of a finding, where the request is one.
    """

    def __init__(self, status: int, kind: str, code: str | None, message: str, rule: str | None = None) -> None:
        self.status, self.kind, self.code, self.rule = status, kind, code, rule
        super().__init__(message)


@dataclass(frozen=True)
class Call:
    """What a program asks for by a path: a reply, a count of tokens, or which models there are."""

    protocol: ProtocolName
    action: Literal["reply", "count", "models", "model"] = "reply"
    model: str = ""
    stream: Literal["", "sse", "array"] = ""
    """Gemini alone says in the path that it wants a stream, and in which form."""


@dataclass(frozen=True)
class ProgramRequest:
    """A request of the program, checked: what goes to the endpoint, and how the program wants the answer."""

    protocol: ProtocolName
    fields: Mapping[str, Any]
    """The fields that are passed on, as they came; conversation and tools are among them."""
    chat: tuple[ChatMessage, ...]
    """The messages as the log keeps them: parts that are no text are named, not kept."""
    model: str = ""
    """As the program named it; the endpoint is asked for the agent's."""
    max_tokens: int | None = None
    stream: bool = False
    form: str = ""
    """Of a stream: ``usage`` (chat: usage at its end), ``array`` (Gemini: one JSON array)."""

    def __post_init__(self) -> None:
        said = len(self.chat) + sum(len(message.calls) for message in self.chat)
        if said > MAX_SAID:
            raise invalid(f"{said} messages, calls and results, at most {MAX_SAID} are taken")


Answer = Callable[[ProgramRequest], Reply]


def parse_body(data: bytes) -> dict[str, Any]:
    """The JSON object in a body; raises Refused."""
    if data.count(b"[") + data.count(b"{") > MAX_OPENED:
        raise invalid(f"more than {MAX_OPENED} lists and objects")
    try:
        body = json.loads(data, parse_constant=_refuse_constant)
        value = _clean(body, MAX_DEPTH)
    except (ValueError, RecursionError) as error:
        raise invalid(f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise invalid("the body must be a JSON object")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _clean(value: Any, depth: int) -> Any:
    """The value without lone surrogates; raises ValueError beyond the depth."""
    if depth < 0:
        raise ValueError(f"more than {MAX_DEPTH} levels")
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key): _clean(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [_clean(inner, depth - 1) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def invalid(message: str) -> Refused:
    """A request that is none."""
    return Refused(400, "invalid_request_error", None, message)


def outside(rule: str, message: str) -> Refused:
    """A request that would make the provider go out; a finding."""
    return Refused(400, "invalid_request_error", None, message, rule)


def refuse_fields(body: Mapping[str, Any], rules: Mapping[str, str]) -> None:
    """Raises Refused for a field that names what lies with the provider or runs there; ``rules``: field → rule."""
    for name, rule in rules.items():
        if body.get(name):
            raise outside(rule, f"'{name}' does not exist here: {_REASONS[rule]}")


_REASONS = {
    "net.provider_tool": "nothing runs at the provider",
    "net.remote_content": "nothing is kept at the provider; send the whole conversation",
}


def refuse_tool(tool: Any) -> NoReturn:
    """Refuse a tool that the program does not run itself."""
    raise outside("net.provider_tool", f"tools of the provider do not exist here: {kind_of(tool)}")


def refuse_part(part: Any) -> NoReturn:
    """Refuse a part of a message that does not bring its content along."""
    raise outside("net.remote_content", f"only text and data of your own are passed on, not: {kind_of(part)}")


def kind_of(value: Any) -> str:
    """What to call a tool or a part in a message."""
    if not isinstance(value, dict):
        return type(value).__name__
    return str(value.get("type") or value.get("name") or next(iter(value), "nothing"))[:80]


def type_of(value: Any) -> str:
    """The ``type`` of a part, a block or an item; empty where it has none."""
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else ""


def role_of(message: Mapping[str, Any], roles: Mapping[str, Role]) -> Role:
    """Who speaks, in the log's words; raises Refused."""
    role = message.get("role")
    if not isinstance(role, str) or role not in roles:
        raise invalid(f"each message needs a 'role' out of {', '.join(roles)}")
    return roles[role]


def is_data(value: Any) -> bool:
    """A URL that holds its content."""
    return isinstance(value, str) and value[:5].lower() == "data:"


def list_of(value: Any, name: str) -> list[dict[str, Any]]:
    """A list of at least one object; raises Refused."""
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        raise invalid(f"'{name}' must be a list with at least one object")
    if len(value) > MAX_MESSAGES:
        raise invalid(f"'{name}' holds {len(value)} objects, at most {MAX_MESSAGES} are taken")
    return value


def parts_of(content: Any, name: str = "content") -> list[Any]:
    """Parts of a content that may be text, a list or nothing; raises Refused."""
    if not isinstance(content, (str, list, type(None))):
        raise invalid(f"'{name}' must be text, a list of parts, or null")
    return [content] if isinstance(content, str) else content or []


def length_of(value: Any) -> int | None:
    """A length that was asked for; None for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def text_of(content: Any, between: str = "\n") -> str:
    """Text of a content as the log keeps it: parts without text are named. Of a reply it is put together as it came."""
    if isinstance(content, str):
        return content
    return between.join(_part_text(part) for part in content or [])


def _part_text(part: Any) -> str:
    if not isinstance(part, dict):
        return part if isinstance(part, str) else ""
    text = part.get("text")
    return text if isinstance(text, str) else f"[{kind_of(part)[:40]}]"


def event(value: Any, name: str = "") -> bytes:
    """A server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + json.dumps(value).encode() + b"\n\n"


def counted(request: ProgramRequest) -> int:
    """Tokens of a request, by length (docs/specification.md, 8.5): counting asks no endpoint and costs no turn."""
    return len(json.dumps(request.fields, ensure_ascii=False)) // 4


def settings_of(agent: Agent, without: Sequence[str]) -> dict[str, Any]:
    """What the agent's entry says of every request, in the words of its endpoint's protocol."""
    body = WIRES[agent.protocol].request(agent, (), ())
    return {name: value for name, value in body.items() if name not in without}


def passed_on(body: Mapping[str, Any], names: Sequence[str], *, empty: bool = False) -> dict[str, Any]:
    """The fields that an endpoint gets; one that it does not know would make it refuse the whole request."""
    return {name: body[name] for name in names if name in body and (empty or body[name] is not None)}


def answer(request: ProgramRequest, reply: Reply) -> dict[str, Any]:
    """The endpoint's answer as the program gets it: as it came, under the model's name that the program used."""
    body = dict(reply.body or {})
    return body | {"model": request.model or body.get("model", "")}
