"""Relay of what passes the bridge: a program's request made the agent's, and a reply in the protocol's words.

Pure functions. The program inside the container chooses messages, tools and their form; model, key, sampling and
``extra_body`` are the agent's. Unknown fields are left out, because an endpoint may refuse the whole request for them.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from automedbench.agent.models.chat import ChatMessage, Reply, Role, ToolCall, clean_text
from automedbench.agent.models.completions import request_body
from automedbench.campaign.agents import Agent

MAX_MESSAGES = 5000
MAX_DEPTH = 64

_PASSED = (
    *("tools", "tool_choice", "parallel_tool_calls", "response_format", "stop", "seed", "top_p"),
    *("presence_penalty", "frequency_penalty"),
)
_OF_MESSAGE = (
    *("role", "content", "name", "tool_calls", "tool_call_id", "refusal"),
    *("reasoning", "reasoning_content", "reasoning_details"),
)
_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_LENGTHS = ("max_completion_tokens", "max_tokens")


class Refused(Exception):
    """A request that gets an error object instead of a reply: status, type and code as OpenAI names them."""

    def __init__(self, status: int, kind: str, code: str | None, message: str) -> None:
        self.status, self.kind, self.code = status, kind, code
        super().__init__(message)

    @property
    def body(self) -> dict[str, Any]:
        """The error object."""
        return {"error": {"message": str(self), "type": self.kind, "param": None, "code": self.code}}


@dataclass(frozen=True)
class ProgramRequest:
    """A request of the program, checked: its own fields, and how it wants the answer."""

    fields: Mapping[str, Any]
    messages: tuple[Mapping[str, Any], ...]
    stream: bool
    stream_usage: bool
    max_tokens: int | None

    @property
    def chat(self) -> tuple[ChatMessage, ...]:
        """The messages as the log keeps them: parts that are no text are named, not kept."""
        return tuple(_as_chat(message) for message in self.messages)


def read_request(data: bytes) -> ProgramRequest:
    """Check the body of a request; raises Refused."""
    body = _parse(data)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _invalid("'messages' must be a list with at least one message")
    if len(messages) > MAX_MESSAGES:
        raise _invalid(f"{len(messages)} messages, at most {MAX_MESSAGES} are taken")
    if body.get("n") not in (None, 1):
        raise _invalid("'n' must be 1")
    options = body.get("stream_options")
    return ProgramRequest(
        fields={name: body[name] for name in _PASSED if body.get(name) is not None},
        messages=tuple(_checked(message) for message in messages),
        stream=body.get("stream") is True,
        stream_usage=isinstance(options, dict) and options.get("include_usage") is True,
        max_tokens=min((length for name in _LENGTHS if (length := _length(body.get(name)))), default=None),
    )


def upstream_body(agent: Agent, request: ProgramRequest) -> dict[str, Any]:
    """The request as the endpoint gets it; the agent's ``extra_body`` has the last word."""
    body = request_body(agent, (), ())
    for name in ("tools", "tool_choice"):
        body.pop(name, None)
    body |= request.fields
    body["messages"] = [dict(message) for message in request.messages]
    if request.max_tokens is not None and "max_tokens" in body:
        body["max_tokens"] = min(request.max_tokens, agent.max_tokens)
    return body | agent.extra_body


def completion(reply: Reply, agent: Agent, number: int) -> dict[str, Any]:
    """A reply as the program gets it; ``number`` tells replies apart."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.content or (None if reply.calls else "")}
    if reply.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in reply.calls
        ]
    usage = reply.usage
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": agent.model,
        "choices": [
            {
                "index": 0,
                "message": message | dict(reply.opaque),
                "finish_reason": reply.finish_reason,
                "logprobs": None,
            }
        ],
        "usage": {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.total,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        },
    }


def stream_of(whole: Mapping[str, Any], *, usage: bool) -> Iterator[bytes]:
    """The same reply as server-sent events: role, text, calls, end, usage where it was asked for."""
    head = {name: whole[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choice = whole["choices"][0]
    message = dict(choice["message"])
    calls = [call | {"index": index} for index, call in enumerate(message.pop("tool_calls", []))]
    text, role = message.pop("content"), message.pop("role")
    deltas: list[dict[str, Any]] = [{"role": role, "content": ""}]
    deltas += [{name: value} for name, value in message.items()]
    deltas += [{"content": text}] if text else []
    deltas += [{"tool_calls": [call]} for call in calls]
    for delta in deltas:
        yield _event(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _event(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    if usage:
        yield _event(head | {"choices": [], "usage": whole["usage"]})
    yield b"data: [DONE]\n\n"


def _event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _parse(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data, parse_constant=_refuse_constant)
        value = _clean(body, MAX_DEPTH)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise _invalid("the body must be a JSON object")
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


def _checked(message: Any) -> Mapping[str, Any]:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise _invalid(f"each message needs a 'role' out of {', '.join(_ROLES)}")
    if not isinstance(message.get("content"), (str, list, type(None))):
        raise _invalid("'content' must be text, a list of parts, or null")
    return {name: message[name] for name in _OF_MESSAGE if name in message}


def _length(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _invalid(message: str) -> Refused:
    return Refused(400, "invalid_request_error", None, message)


def _as_chat(message: Mapping[str, Any]) -> ChatMessage:
    call_id = message.get("tool_call_id")
    return ChatMessage(
        role=_ROLES[message["role"]],
        content=_text(message.get("content")),
        calls=tuple(_calls(message.get("tool_calls"))),
        call_id=call_id if isinstance(call_id, str) else None,
    )


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(_part(part) for part in content or [])


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    text = part.get("text")
    return text if isinstance(text, str) else f"[{str(part.get('type') or 'part')[:40]}]"


def _calls(value: Any) -> Iterator[ToolCall]:
    for item in value if isinstance(value, list) else []:
        function = item.get("function") if isinstance(item, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments")
            text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
            yield ToolCall(str(item.get("id") or ""), str(function.get("name") or ""), text)
