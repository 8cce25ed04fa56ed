"""Anthropic Messages: a conversation as a request, the answer as a reply.

An assistant message goes back as the content blocks that came, thinking with its signature included; only ids and
inputs that had to be repaired differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from automedbench.agent.models.model import ChatMessage, Reply, ToolCall, ToolSpec
from automedbench.agent.models.protocols import common
from automedbench.base.endpoint.faults import FaultyReply, no_reply, stream_fault
from automedbench.base.endpoint.usage import merged_usage, messages_usage, service_tier
from automedbench.campaign.agents import Agent

_THOUGHTS = ("thinking", "redacted_thinking")
_FINISHED = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_MARK = {"cache_control": {"type": "ephemeral"}}
MARKED_TURNS = 2
"""User messages whose end is marked for the cache; with tools and system these are the four marks that may be set."""


def request(agent: Agent, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """See ``Wire.request``."""
    body: dict[str, Any] = {
        "model": agent.model,
        "max_tokens": agent.max_tokens,
        "messages": _conversation(common.as_text(messages, native=agent.native_tools), agent.echo_reasoning),
    }
    if system := common.system_of(messages):
        body["system"] = [{"type": "text", "text": system}]
    if tools and agent.native_tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
            for tool in tools
        ]
    if agent.prompt_cache == "auto":
        _mark(body)
    return common.merged(body | _thinking(agent), agent.extra_body)


def assemble(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """See ``Wire.assemble``."""
    body: dict[str, Any] = {}
    blocks: dict[Any, dict[str, Any]] = {}
    usage: list[Any] = []
    for event in events:
        kind = event.get("type")
        if kind == "error" or event.get("error"):
            raise _broken(event.get("error") or event, usage)
        if kind == "message_start" and isinstance(event.get("message"), dict):
            body = dict(event["message"])
            usage.append(body.get("usage"))
        elif kind == "content_block_start" and isinstance(event.get("content_block"), dict):
            blocks[event.get("index")] = dict(event["content_block"])
        elif kind == "content_block_delta" and isinstance(event.get("delta"), dict):
            _grow(blocks.setdefault(event.get("index"), {"type": "text"}), event["delta"])
        elif kind == "message_delta" and isinstance(event.get("delta"), dict):
            body |= event["delta"]
            usage.append(event.get("usage"))
        elif kind == "message_stop":
            whole = [_ended(block) for block in blocks.values()]
            return body | {"content": whole, "usage": merged_usage(usage)}
    raise _broken(None, usage)


def _broken(error: Any, told: Sequence[Any]) -> FaultyReply:
    """What is wrong with a stream that told so much of its usage before it broke."""
    usage = merged_usage(told)
    return stream_fault(error, messages_usage(usage), service_tier({"usage": usage}))


def reply(body: Mapping[str, Any], sent: Sequence[ChatMessage]) -> Reply:
    """See ``Wire.reply``."""
    usage = messages_usage(body.get("usage"))
    # An empty reply tells what it cost; without that it is no reply at all.
    empty = not body.get("content") and usage is None
    if not isinstance(body.get("content"), list) or body.get("error") or empty:
        raise no_reply(body, usage)
    blocks = common.parts_of(body["content"])
    calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
    finish = _FINISHED.get(str(body.get("stop_reason")), "stop")
    if finish == "length" and calls and blocks[-1].get("type") == "tool_use" and not blocks[-1].get("input"):
        # What was cut before its input began comes with an empty one; that is no call without arguments.
        calls[-1] = replace(calls[-1], arguments="")
    answer = Reply(
        content="".join(common.text_of(block.get("text")) for block in blocks if block.get("type") == "text"),
        calls=tuple(calls),
        finish_reason=finish,
        opaque={"blocks": blocks},
        reasoning="\n\n".join(filter(None, (common.text_of(block.get("thinking")) for block in blocks))),
        model=str(body.get("model") or ""),
        service_tier=service_tier(body),
    )
    return common.finished(answer, usage, sent)


# --- a request ------------------------------------------------------------------------------------------------


def _conversation(messages: Sequence[ChatMessage], echo: bool) -> list[dict[str, Any]]:
    """Turns of alternating roles; empty ones are left out, as the protocol demands."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = list(_blocks(message, echo)) if message.role != "system" else []
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: ChatMessage, echo: bool) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        result = {"type": "tool_result", "tool_use_id": message.call_id, "content": message.content}
        yield result | ({"is_error": True} if message.failed else {})
        return
    came = common.parts_of(message.opaque.get("blocks"))
    calls = iter(message.calls)
    for block in came or [{"type": "text", "text": message.content}]:
        kind = block.get("type")
        if kind == "tool_use":
            if (call := next(calls, None)) is not None:
                yield _tool_use(call, block)
        elif kind in _THOUGHTS:
            # A thought that was cut has no signature yet, and is refused.
            if echo and (block.get("signature") or block.get("data")):
                yield block
        elif kind != "text" or common.text_of(block.get("text")).strip():
            yield block
    yield from (_tool_use(call, {"type": "tool_use"}) for call in calls)


def _tool_use(call: ToolCall, block: dict[str, Any]) -> dict[str, Any]:
    """The block of a call as it came; what had to be repaired is the call's."""
    kept = isinstance(block.get("input"), dict) and call.arguments == _input_text(block)
    return block | {"id": call.id, "name": call.name} | ({} if kept else {"input": common.arguments_of(call)})


def _mark(body: dict[str, Any]) -> None:
    """Mark where a later request may take up the cache: behind tools, system and the last turns of the user."""
    for name in ("tools", "system"):
        if body.get(name):
            body[name][-1] |= _MARK
    for turn in [turn for turn in body["messages"] if turn["role"] == "user"][-MARKED_TURNS:]:
        turn["content"][-1] = turn["content"][-1] | _MARK


def _thinking(agent: Agent) -> dict[str, Any]:
    """Thinking, or the temperature, which the protocol does not take beside it."""
    reasoning = agent.reasoning
    if reasoning.mode == "budget":
        return {"thinking": {"type": "enabled", "budget_tokens": reasoning.budget_tokens}}
    if reasoning.mode == "none":
        return {} if agent.temperature is None else {"temperature": agent.temperature}
    thinking = {"thinking": {"type": "adaptive", "display": "summarized"}}
    return thinking | ({"output_config": {"effort": reasoning.effort}} if reasoning.mode == "effort" else {})


# --- an answer ------------------------------------------------------------------------------------------------


def _call(block: Mapping[str, Any]) -> ToolCall:
    return ToolCall(str(block.get("id") or ""), str(block.get("name") or ""), _input_text(block))


def _input_text(block: Mapping[str, Any]) -> str:
    value = block.get("input")
    return value if isinstance(value, str) else json.dumps({} if value is None else value, ensure_ascii=False)


_GROWS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def _grow(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    kind = str(delta.get("type"))
    if kind == "input_json_delta":
        block["partial"] = common.text_of(block.get("partial")) + common.text_of(delta.get("partial_json"))
    elif kind == "citations_delta":
        block["citations"] = [*common.parts_of(block.get("citations")), delta.get("citation")]
    elif kind in _GROWS:
        name = _GROWS[kind]
        block[name] = common.text_of(block.get(name)) + common.text_of(delta.get(name))


def _ended(block: dict[str, Any]) -> dict[str, Any]:
    """A block with its input as an object; an input that was cut stays text."""
    if not (text := common.text_of(block.pop("partial", ""))):
        return block
    try:
        return block | {"input": json.loads(text)}
    except (ValueError, RecursionError):
        return block | {"input": text}
