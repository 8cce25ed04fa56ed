"""OpenAI chat completions, as a program speaks them to the bridge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from automedbench.agent.command.protocols import common
from automedbench.agent.command.protocols.common import Call, ProgramRequest, Refused
from automedbench.agent.models.model import ChatMessage, Role
from automedbench.agent.models.protocols.chat import native_calls
from automedbench.campaign.agents import Agent

KEEP_ALIVE = b": waiting\n\n"

_PASSED = (
    *("tools", "tool_choice", "parallel_tool_calls", "response_format", "stop", "seed", "top_p"),
    *("presence_penalty", "frequency_penalty"),
)
_OF_MESSAGE = (
    *("role", "content", "name", "tool_calls", "tool_call_id", "refusal", "function_call"),
    *("reasoning", "reasoning_content", "reasoning_details"),
)
_OF_TOOL = ("type", "function", "custom", "cache_control")
"""Fields of a tool; some endpoints take any other, beside a function, for the name of a tool that they run."""
_REFUSED = {"web_search_options": "net.provider_tool", "plugins": "net.provider_tool"}
_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_LENGTHS = ("max_completion_tokens", "max_tokens")


def read(call: Call, data: bytes) -> ProgramRequest:
    """Check the body of a request; raises Refused."""
    body = common.parse_body(data)
    messages = common.list_of(body.get("messages"), "messages")
    if body.get("n") not in (None, 1):
        raise common.invalid("'n' must be 1")
    common.refuse_fields(body, _REFUSED)
    options = body.get("stream_options")
    checked = [_checked(message) for message in messages]
    return ProgramRequest(
        protocol="chat",
        fields=common.passed_on(body, _PASSED) | {"messages": checked},
        chat=tuple(_as_chat(message) for message in checked),
        model=str(body.get("model") or ""),
        max_tokens=min((length for name in _LENGTHS if (length := common.length_of(body.get(name)))), default=None),
        stream=body.get("stream") is True,
        form="usage" if isinstance(options, dict) and options.get("include_usage") is True else "",
    )


_TEXTS = frozenset({"text", "refusal", "input_audio"})
"""Parts of a message that hold what they say themselves."""


def refuse_outside(fields: Mapping[str, Any]) -> None:
    """Raises Refused for what would make the provider go out: tools that it runs, content behind an address."""
    tools, choice = fields.get("tools", []), fields.get("tool_choice", "auto")
    for tool in tools if isinstance(tools, list) else [tools]:
        if not _is_own_tool(tool):
            common.refuse_tool(tool)
    if not isinstance(choice, str) and common.kind_of(choice) != "allowed_tools" and not _is_own_tool(choice):
        common.refuse_tool(choice)
    for message in fields["messages"]:
        for part in common.parts_of(message.get("content")):
            if not _holds_itself(part):
                common.refuse_part(part)


def _is_own_tool(tool: Any) -> bool:
    """A function that the program runs itself; names with a dollar sign are some providers' own."""
    kind = common.type_of(tool)
    function = tool.get(kind) if kind in ("function", "custom") else None
    return isinstance(function, dict) and not str(function.get("name")).startswith("$")


def _holds_itself(part: Any) -> bool:
    """A part that brings its content along, and nothing beside it that a provider could fetch."""
    if isinstance(part, str):
        return True
    kind = common.type_of(part)
    if not kind or set(part) - {"type", kind, "cache_control"}:
        return False
    value = part.get(kind)
    if kind in _TEXTS:
        return isinstance(value, str) or (isinstance(value, dict) and kind == "input_audio")
    place = {"image_url": "url", "file": "file_data"}.get(kind)
    if place is None or (isinstance(value, dict) and set(value) - {place, "detail", "filename", "format"}):
        return False
    return common.is_data(value.get(place) if isinstance(value, dict) else value)


def upstream(agent: Agent, request: ProgramRequest) -> dict[str, Any]:
    """See ``Spoken.upstream``."""
    settings = common.settings_of(agent, ("messages", "tools", "tool_choice"))
    if request.max_tokens is not None and "max_tokens" in settings:
        settings["max_tokens"] = min(request.max_tokens, settings["max_tokens"])
    tools = request.fields.get("tools")
    own = {"tools": [common.passed_on(tool, _OF_TOOL) for tool in tools]} if isinstance(tools, list) else {}
    return dict(request.fields) | own | settings


def stream(request: ProgramRequest, whole: Mapping[str, Any]) -> Iterator[bytes]:
    """The same reply as server-sent events: role, text, calls, end, usage where it was asked for."""
    head = {name: whole.get(name) for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choice = whole["choices"][0]
    message = dict(choice["message"])
    calls = [call | {"index": index} for index, call in enumerate(message.pop("tool_calls", None) or [])]
    text, role = message.pop("content", None), message.pop("role", "assistant")
    deltas: list[dict[str, Any]] = [{"role": role, "content": ""}]
    deltas += [{name: value} for name, value in message.items() if value is not None]
    deltas += [{"content": text}] if text else []
    deltas += [{"tool_calls": [call]} for call in calls]
    for delta in deltas:
        yield common.event(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield common.event(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": choice.get("finish_reason")}]})
    if request.form == "usage":
        yield common.event(head | {"choices": [], "usage": whole.get("usage")})
    yield b"data: [DONE]\n\n"


def error(refused: Refused) -> dict[str, Any]:
    """The error object of OpenAI's APIs."""
    return {"error": {"message": str(refused), "type": refused.kind, "param": None, "code": refused.code}}


def failed(refused: Refused) -> bytes:
    """The same in a stream that has begun."""
    return common.event(error(refused))


def _checked(message: Mapping[str, Any]) -> dict[str, Any]:
    common.role_of(message, _ROLES)
    common.parts_of(message.get("content"))
    return common.passed_on(message, _OF_MESSAGE, empty=True)


def _as_chat(message: Mapping[str, Any]) -> ChatMessage:
    call_id = message.get("tool_call_id")
    return ChatMessage(
        role=_ROLES[message["role"]],
        content=common.text_of(message.get("content")),
        calls=native_calls(message.get("tool_calls")),
        call_id=call_id if isinstance(call_id, str) else None,
    )


answer = common.answer
