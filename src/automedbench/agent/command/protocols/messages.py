"""Anthropic Messages, as a program speaks them to the bridge."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from automedbench.agent.command.protocols import common
from automedbench.agent.command.protocols.common import Call, ProgramRequest, Refused
from automedbench.agent.models.model import ChatMessage, Role, ToolCall
from automedbench.campaign.agents import Agent

KEEP_ALIVE = common.event({"type": "ping"}, "ping")

_PASSED = (
    *("messages", "system", "tools", "tool_choice", "stop_sequences", "top_p", "top_k"),
    *("thinking", "output_config", "cache_control"),
)
_REFUSED = {"mcp_servers": "net.provider_tool", "container": "net.provider_tool"}
_ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_OWN_WORDS = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "tool_reference"})
"""Blocks that hold what they say themselves."""
LEAST_THINKING = 1024
"""Tokens of thinking that the protocol takes at least."""


def read(call: Call, data: bytes) -> ProgramRequest:
    """Check the body of a request; raises Refused."""
    body = common.parse_body(data)
    messages = [_checked(message) for message in common.list_of(body.get("messages"), "messages")]
    common.refuse_fields(body, _REFUSED)
    chat = (
        [ChatMessage("system", common.text_of(common.parts_of(body["system"], "system")))] if body.get("system") else []
    )
    for message in messages:
        chat += _as_chat(message)
    # Instructions between messages are a trial of the provider's, by a header that is not passed on.
    plain = [message | {"role": "user"} if message["role"] == "system" else message for message in messages]
    return ProgramRequest(
        protocol="messages",
        fields=common.passed_on(body, _PASSED) | {"messages": plain},
        chat=tuple(chat),
        model=str(body.get("model") or ""),
        max_tokens=common.length_of(body.get("max_tokens")),
        stream=body.get("stream") is True,
    )


def refuse_outside(fields: Mapping[str, Any]) -> None:
    """Raises Refused for tools that the provider runs or knows, and content behind an address or a name."""
    tools = fields.get("tools", [])
    for tool in tools if isinstance(tools, list) else [tools]:
        if not isinstance(tool, dict) or tool.get("type") not in (None, "custom") or not tool.get("name"):
            common.refuse_tool(tool)
    for content in (fields.get("system"), *(message.get("content") for message in fields["messages"])):
        _refuse_blocks(content)


def _refuse_blocks(content: Any) -> None:
    for block in common.parts_of(content):
        kind = common.type_of(block)
        if isinstance(block, str) or kind in _OWN_WORDS:
            continue
        if kind in ("tool_result", "search_result"):
            _refuse_blocks(block.get("content"))
        elif kind in ("image", "document"):
            _refuse_source(block)
        elif "tool" in kind or kind.endswith("_result"):
            common.refuse_tool(block)  # what a tool of the provider's told earlier
        else:
            common.refuse_part(block)


def _refuse_source(block: Mapping[str, Any]) -> None:
    source = block.get("source")
    kind = common.type_of(source)
    if not isinstance(source, dict) or kind not in ("base64", "text", "content") or {"url", "file_id"} & set(source):
        common.refuse_part(block)
    if kind == "content":
        _refuse_blocks(source.get("content"))


def upstream(agent: Agent, request: ProgramRequest) -> dict[str, Any]:
    """See ``Spoken.upstream``; the protocol takes no temperature beside thinking."""
    settings = common.settings_of(agent, ("messages",))
    settings["max_tokens"] = min(request.max_tokens or agent.max_tokens, settings["max_tokens"])
    body = dict(request.fields) | settings
    _fit_thinking(body)
    if _thinks(body):
        body.pop("temperature", None)
    if "temperature" in body:
        body.pop("top_p", None)  # newer models take one of the two
    return body


def _thinks(body: Mapping[str, Any]) -> bool:
    thinking = body.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") != "disabled"


def _fit_thinking(body: dict[str, Any]) -> None:
    """A budget of thinking must be smaller than the length of the reply, which the agent may have cut."""
    budget = common.length_of(body["thinking"].get("budget_tokens")) if _thinks(body) else None
    if budget is None or budget < body["max_tokens"]:
        return
    if body["max_tokens"] <= LEAST_THINKING:
        del body["thinking"]
    else:
        body["thinking"] = body["thinking"] | {"budget_tokens": max(LEAST_THINKING, body["max_tokens"] // 2)}


def stream(request: ProgramRequest, whole: Mapping[str, Any]) -> Iterator[bytes]:
    """The same reply as server-sent events."""
    usage, content = whole.get("usage") or {}, whole.get("content") or []
    opened: dict[str, Any] = {
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage | {"output_tokens": 0},
    }
    yield _event("message_start", message=dict(whole) | opened)
    yield KEEP_ALIVE
    for index, block in enumerate(content):
        begun, deltas = _in_deltas(block)
        yield _event("content_block_start", index=index, content_block=begun)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    ending = {name: whole.get(name) for name in ("stop_reason", "stop_sequence")}
    yield _event("message_delta", delta=ending, usage=usage)
    yield _event("message_stop")


def _in_deltas(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it begins, and what is added to it; blocks without deltas of their own come whole."""
    kind, begun = block.get("type"), dict(block)
    if kind == "text":
        deltas = [{"type": "citations_delta", "citation": citation} for citation in begun.get("citations") or []]
        if deltas:
            begun["citations"] = []
        return begun | {"text": ""}, [{"type": "text_delta", "text": block.get("text", "")}, *deltas]
    if kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": block.get("thinking", "")}]
        deltas += [{"type": "signature_delta", "signature": block["signature"]}] if block.get("signature") else []
        return begun | {"thinking": "", "signature": ""}, deltas
    if kind == "tool_use":
        return begun | {"input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block.get("input"))}]
    return begun, []


def _event(name: str, **fields: Any) -> bytes:
    return common.event({"type": name} | fields, name)


_KINDS = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def error(refused: Refused) -> dict[str, Any]:
    """The error object of the protocol; a conversation that is too long is known by its words."""
    kind = _KINDS.get(refused.status, "invalid_request_error" if refused.status < 500 else "api_error")
    too_long = "prompt is too long: " if refused.code == "context_length_exceeded" else ""
    return {"type": "error", "error": {"type": kind, "message": f"{too_long}{refused}"}}


def failed(refused: Refused) -> bytes:
    """The same in a stream that has begun."""
    return common.event(error(refused), "error")


def _checked(message: dict[str, Any]) -> dict[str, Any]:
    common.role_of(message, _ROLES)
    common.parts_of(message.get("content"))
    return message


def _as_chat(message: Mapping[str, Any]) -> list[ChatMessage]:
    """Messages of the log for one of the protocol's: results of tools are messages of their own there."""
    chat: list[ChatMessage] = []
    texts: list[Any] = []
    calls: list[ToolCall] = []
    for block in common.parts_of(message.get("content")):
        kind = common.type_of(block)
        if kind == "tool_result":
            failed, call_id = block.get("is_error"), str(block.get("tool_use_id") or "")
            text = common.text_of(common.parts_of(block.get("content")))
            chat.append(ChatMessage("tool", text, call_id=call_id, failed=failed if isinstance(failed, bool) else None))
        elif kind == "tool_use":
            arguments = json.dumps(block.get("input"), ensure_ascii=False)
            calls.append(ToolCall(str(block.get("id") or ""), str(block.get("name") or ""), arguments))
        elif kind not in ("thinking", "redacted_thinking"):
            texts.append(block)
    if texts or calls or not chat:
        role = _ROLES[message["role"]]
        chat.append(ChatMessage(role, common.text_of(texts, "" if role == "assistant" else "\n"), tuple(calls)))
    return chat


answer = common.answer
