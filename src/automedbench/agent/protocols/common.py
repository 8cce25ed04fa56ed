"""Shared by the protocols: parts of messages, requests of programs with their limits and refusals, SSE."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from automedbench.agent.models.model import ChatMessage, Reply, Role, ToolCall, ToolSpec, estimate_tokens
from automedbench.base.endpoint.address import ProtocolName
from automedbench.base.endpoint.faults import Fault, FaultyReply, make_reply_fault
from automedbench.base.endpoint.replies import sanitize
from automedbench.base.endpoint.usage import service_tier
from automedbench.base.files import clean_text, parse_json_object
from automedbench.base.records import Tokens

Body = dict[str, Any]

# --- parts of messages ----------------------------------------------------------------------------------------


def list_objects(value: Any) -> list[Body]:
    """The objects in a list; anything else holds none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def as_text(value: Any) -> str:
    """``value`` where it is text, else nothing."""
    return value if isinstance(value, str) else ""


def get_type(value: Any) -> str:
    """The ``type`` of a part, a block or an item; empty where it has none."""
    return as_text(value.get("type")) if isinstance(value, dict) else ""


def describe_kind(value: Any) -> str:
    """Name of a tool or a part for messages."""
    if not isinstance(value, dict):
        return type(value).__name__
    return str(value.get("type") or value.get("name") or next(iter(value), "nothing"))[:80]


def tool_call(ident: Any, name: Any, arguments: Any, **more: Any) -> ToolCall:
    """A call as it came; arguments that are an object instead of its text become text, null an empty object."""
    value = {} if arguments is None else arguments
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return ToolCall(str(ident or ""), str(name or ""), clean_text(text), **more)


def parse_arguments(call: ToolCall) -> Body:
    """The arguments as an object; what is none is empty."""
    return parse_json_object(call.arguments) or {}


def render_text(content: Any, between: str = "\n") -> str:
    """Text of a content as the log keeps it: parts without text are named. A reply's is joined as it came."""
    if isinstance(content, str):
        return content
    return between.join(_part_text(part) for part in content or [])


def _part_text(part: Any) -> str:
    if not isinstance(part, dict):
        return as_text(part)
    text = part.get("text")
    return text if isinstance(text, str) else f"[{describe_kind(part)[:40]}]"


# --- requests to an endpoint ----------------------------------------------------------------------------------


def declare_tool(tool: ToolSpec, schema_name: str = "parameters") -> Body:
    """A function as a protocol declares it, its JSON Schema under the protocol's name."""
    return {"name": tool.name, "description": tool.description, schema_name: dict(tool.parameters)}


def merge_fields(body: Mapping[str, Any], extra: Mapping[str, Any]) -> Body:
    """``body`` with ``extra`` in it, which has the last word; objects are merged, all else is replaced."""
    result = {**body, **extra}
    for name in body.keys() & extra.keys():
        if isinstance(body[name], dict) and isinstance(extra[name], dict):
            result[name] = merge_fields(body[name], extra[name])
    return result


def write_calls_as_text(messages: Sequence[ChatMessage], *, native: bool) -> list[ChatMessage]:
    """Calls that a model wrote as text stay text, and their results come as user messages.

    A call of the protocol that the provider never made would lack its signature. Without ``native`` tools all calls
    are such.
    """
    written: set[str] = set()
    result = []
    for message in messages:
        own = {call.id for call in message.calls if call.recovered or not native}
        written |= own
        if message.role == "tool" and message.call_id in written:
            message = ChatMessage("user", f"[RESULT] {message.content}")
        elif own:
            message = replace(message, calls=tuple(call for call in message.calls if call.id not in own))
        result.append(message)
    return result


def join_system(messages: Sequence[ChatMessage]) -> str:
    """Text of the system messages, which most protocols take beside the conversation."""
    return "\n\n".join(message.content for message in messages if message.role == "system")


def echo_parts(
    message: ChatMessage,
    came: Any,
    *,
    text: Body,
    is_call: Callable[[Body], bool],
    call_part: Callable[[ToolCall, Body], Body],
    keep: Callable[[Body], bool],
) -> Iterator[Body]:
    """Parts of an assistant's message to send back: as they ``came``, with its calls as they had to be repaired.

    ``text`` stands for a message of which nothing is kept as it came. ``call_part`` makes the part of a call out of the
    one that came, or of an empty one; ``keep`` says which other parts are sent.
    """
    parts, calls = list_objects(came), iter(message.calls)
    if not parts and message.content:
        parts = [text]
    for part in parts:
        if is_call(part):
            if (call := next(calls, None)) is not None:
                yield call_part(call, part)
        elif keep(part):
            yield part
    yield from (call_part(call, {}) for call in calls)


def add_turn(turns: list[Body], role: str, name: str, parts: list[Body]) -> None:
    """Add parts to a conversation of alternating roles: to the last turn where it has the same role."""
    if turns and turns[-1]["role"] == role:
        turns[-1][name] += parts
    elif parts:
        turns.append({"role": role, name: parts})


# --- answers of an endpoint -----------------------------------------------------------------------------------


def require_content(body: Mapping[str, Any], name: str, usage: Tokens | None) -> list[Body]:
    """The objects that a whole answer consists of; raises FaultyReply where it is none.

    An empty answer that reports its usage is one; without it there was no reply.
    """
    content = body.get(name)
    if not isinstance(content, list) or body.get("error") or (not content and usage is None):
        raise make_reply_fault(body, usage)
    return list_objects(content)


def complete_reply(reply: Reply, body: Mapping[str, Any], usage: Tokens | None, sent: Sequence[ChatMessage]) -> Reply:
    """The reply with its service tier and usage, estimated where none is reported; raises FaultyReply if filtered."""
    if usage is None:
        answer = ChatMessage("assistant", reply.content, reply.calls)
        usage = Tokens(prompt=estimate_tokens(sent), completion=estimate_tokens([answer]), estimated=True)
    tier = service_tier(body)
    if reply.finish_reason == "content_filter":
        raise FaultyReply(Fault("content_policy", 200, f"stopped by the provider; {reply.content[:200]}"), usage, tier)
    return replace(reply, usage=usage, service_tier=tier)


# --- requests of a program ------------------------------------------------------------------------------------

MAX_TURNS = 10_000
"""Messages, calls and results of a conversation together: a message may hold any number of the others."""
MAX_DEPTH = 64
MAX_VALUES = 100_000
"""Values of a body, each of which costs up to 10 µs; the longest conversations have a quarter of them."""
_TEXT = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


class RequestRefused(Exception):
    """A request that gets an error object instead of a reply: status, type and code as OpenAI names them.

    ``rule``: that of a finding, where the request is one.
    """

    def __init__(self, status: int, kind: str, code: str | None, message: str, rule: str | None = None) -> None:
        self.status, self.kind, self.code, self.rule = status, kind, code, rule
        super().__init__(message)


@dataclass(frozen=True)
class ApiCall:
    """The method of an API that a path names: a reply, a count of tokens, or the list of models."""

    protocol: ProtocolName
    action: Literal["reply", "count", "models", "model"] = "reply"
    model: str = ""
    stream: bool = False
    """Gemini alone says in the path that it wants a stream."""


@dataclass(frozen=True)
class ProgramRequest:
    """A request of the program, checked: what goes to the endpoint, and how the program wants the answer."""

    protocol: ProtocolName
    fields: Mapping[str, Any]
    """The fields that are passed on, as they came; conversation and tools are among them."""
    chat: tuple[ChatMessage, ...]
    """The messages as the log keeps them: parts that are no text are named, not kept."""
    model: str = ""
    """As the program named it; the request to the endpoint names the agent's."""
    max_tokens: int | None = None
    stream: bool = False
    include_usage: bool = False
    """Of a stream of chat: with usage at its end."""

    def __post_init__(self) -> None:
        turns = len(self.chat) + sum(len(message.calls) for message in self.chat)
        if turns > MAX_TURNS:
            raise bad_request(f"{turns} messages, calls and results, at most {MAX_TURNS} are taken")


def parse_body(data: bytes) -> Body:
    """The JSON object in a body, which is UTF-8; raises RequestRefused, for too many values before they are read."""
    try:
        text = data.decode()
        if count_values(text) > MAX_VALUES:
            raise bad_request(f"more than {MAX_VALUES} values")
        value = sanitize(json.loads(text), MAX_DEPTH)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise bad_request("the body must be a JSON object")
    return value


def count_values(text: str) -> int:
    """Number of values in JSON, or a few more: lists, objects and commas outside of texts."""
    bare = _TEXT.sub("", text)
    return sum(map(bare.count, "[{,"))


def bad_request(message: str, rule: str | None = None) -> RequestRefused:
    """The refusal of a malformed request, or, with the ``rule`` of a finding, of one that makes the provider go out."""
    return RequestRefused(400, "invalid_request_error", None, message, rule)


def parse_role(message: Mapping[str, Any]) -> Role:
    """The role of a message in the log's words; raises RequestRefused."""
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise bad_request(f"each message needs a 'role' out of {', '.join(ROLES)}")
    return ROLES[role]


def require_objects(value: Any, name: str) -> list[Body]:
    """A list of at least one object; raises RequestRefused."""
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        raise bad_request(f"'{name}' must be a list with at least one object")
    return value


def list_parts(content: Any) -> list[Any]:
    """Parts of a content that is text, a list or null."""
    return [content] if isinstance(content, str) else content or []


def parse_length(value: Any) -> int | None:
    """A limit of the reply; None for anything but a positive integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def limit_reply(request: ProgramRequest, settings: Body, name: str) -> None:
    """Set the limit of a reply in ``settings``: the program's or the entry's, the smaller one; none without either."""
    limits = [limit for limit in (request.max_tokens, settings.get(name)) if limit is not None]
    if limits:
        settings[name] = min(limits)


def drop_fields(settings: Mapping[str, Any], names: Collection[str]) -> Body:
    """The fields of the agent's own request, less those that are the program's."""
    return {name: value for name, value in settings.items() if name not in names}


def error_text(refused: RequestRefused, overflow: str) -> str:
    """Message of an error object; a conversation that is too long is known by the protocol's words, ``overflow``."""
    return f"{overflow if refused.code == 'context_length_exceeded' else ''}{refused}"


def sse_event(value: Any, name: str = "") -> bytes:
    """A server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + json.dumps(value).encode() + b"\n\n"
