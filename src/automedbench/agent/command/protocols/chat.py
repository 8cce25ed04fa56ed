"""OpenAI chat completions, as a program speaks them to the bridge."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from automedbench.agent.command.protocols.common import MAX_MESSAGES, ProgramRequest, invalid, outside, parse_body
from automedbench.agent.models.model import ChatMessage, Reply, Role
from automedbench.agent.models.protocols import chat
from automedbench.agent.models.protocols.chat import native_calls, native_message
from automedbench.campaign.agents import Agent

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


def read_request(data: bytes) -> ProgramRequest:
    """Check the body of a request; raises Refused."""
    body = parse_body(data)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise invalid("'messages' must be a list with at least one message")
    if len(messages) > MAX_MESSAGES:
        raise invalid(f"{len(messages)} messages, at most {MAX_MESSAGES} are taken")
    if body.get("n") not in (None, 1):
        raise invalid("'n' must be 1")
    options = body.get("stream_options")
    checked = tuple(_checked(message) for message in messages)
    return ProgramRequest(
        fields={name: body[name] for name in _PASSED if body.get(name) is not None},
        messages=checked,
        stream=body.get("stream") is True,
        stream_usage=isinstance(options, dict) and options.get("include_usage") is True,
        max_tokens=min((length for name in _LENGTHS if (length := _length(body.get(name)))), default=None),
        chat=tuple(_as_chat(message) for message in checked),
    )


_TEXTS = frozenset({"text", "refusal", "input_audio"})
"""Parts of a message that hold what they say themselves."""


def refuse_outside(request: ProgramRequest) -> None:
    """Raises Refused for what would make the provider go out: tools that it runs, content behind an address."""
    tools, choice = request.fields.get("tools", []), request.fields.get("tool_choice", "auto")
    for tool in tools if isinstance(tools, list) else [tools]:
        if not _is_own_tool(tool):
            raise outside("net.provider_tool", f"tools of the provider do not exist here: {_kind_of(tool)}")
    if not isinstance(choice, str) and not _is_own_tool(choice):
        raise outside("net.provider_tool", f"tools of the provider do not exist here: {_kind_of(choice)}")
    for message in request.messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else []:
            if not _holds_itself(part):
                raise outside("net.remote_content", f"only text and data: URLs are passed on, not: {_kind_of(part)}")


def _is_own_tool(tool: Any) -> bool:
    """A function that the program runs itself; names with a dollar sign are some providers' own."""
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    return isinstance(function, dict) and not str(function.get("name")).startswith("$")


def _holds_itself(part: Any) -> bool:
    """A part that brings its content along, and nothing beside it that a provider could fetch."""
    if isinstance(part, str):
        return True
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or set(part) - {"type", kind, "cache_control"}:
        return False
    value = part.get(kind)
    if kind in _TEXTS:
        return isinstance(value, str) or (isinstance(value, dict) and kind == "input_audio")
    place = {"image_url": "url", "file": "file_data"}.get(kind)
    if place is None or (isinstance(value, dict) and set(value) - {place, "detail", "filename", "format"}):
        return False
    address = value.get(place) if isinstance(value, dict) else value
    return isinstance(address, str) and address.startswith("data:")


def _kind_of(value: Any) -> str:
    return str(value.get("type") or next(iter(value), ""))[:80] if isinstance(value, dict) else type(value).__name__


def upstream_body(agent: Agent, request: ProgramRequest) -> dict[str, Any]:
    """The request as the endpoint gets it; the agent's ``extra_body`` has the last word."""
    body = chat.request(agent, (), ())
    for name in ("tools", "tool_choice"):
        body.pop(name, None)
    body |= request.fields
    body["messages"] = [dict(message) for message in request.messages]
    if request.max_tokens is not None and "max_tokens" in body:
        body["max_tokens"] = min(request.max_tokens, agent.max_tokens)
    return body | agent.extra_body


def completion(reply: Reply, agent: Agent, number: int) -> dict[str, Any]:
    """A reply as the program gets it; ``number`` tells replies apart."""
    message = native_message(ChatMessage("assistant", reply.content, reply.calls, opaque=reply.opaque), True)
    usage = reply.usage
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": agent.model,
        "choices": [
            {
                "index": 0,
                "message": message,
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


def _checked(message: Any) -> Mapping[str, Any]:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise invalid(f"each message needs a 'role' out of {', '.join(_ROLES)}")
    if not isinstance(message.get("content"), (str, list, type(None))):
        raise invalid("'content' must be text, a list of parts, or null")
    return {name: message[name] for name in _OF_MESSAGE if name in message}


def _length(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _as_chat(message: Mapping[str, Any]) -> ChatMessage:
    call_id = message.get("tool_call_id")
    return ChatMessage(
        role=_ROLES[message["role"]],
        content=_text(message.get("content")),
        calls=native_calls(message.get("tool_calls")),
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
