"""Anthropic Messages, towards an endpoint and towards a program.

An assistant message goes back as the content blocks that came, thinking with its signature included; only ids and
inputs that had to be repaired differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from automedbench.agent.models.model import ChatMessage, Reply, ToolCall, ToolSpec
from automedbench.agent.protocols import common, shapes
from automedbench.agent.protocols.common import ApiCall, Body, ProgramRequest, RequestRefused, as_text, list_objects
from automedbench.agent.protocols.shapes import Rule, cache_control, fields, listed, part
from automedbench.base.endpoint.faults import FaultyReply, stream_fault
from automedbench.base.endpoint.replies import EventStream
from automedbench.base.endpoint.usage import merge_usage, messages_usage, service_tier
from automedbench.campaign.agents import Agent

_THOUGHTS = ("thinking", "redacted_thinking")

# --- a request to an endpoint ---------------------------------------------------------------------------------

_MARK = {"cache_control": {"type": "ephemeral"}}
MARKED_TURNS = 2
"""User messages whose end is marked for the cache; with tools and system these are the four marks that may be set."""


def make_request(agent: Agent, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Body:
    """See ``Protocol.make_request``."""
    turns = common.write_calls_as_text(messages, native=agent.native_tools)
    body: Body = {"model": agent.model, "messages": _conversation(turns, agent.echo_reasoning)}
    if agent.max_tokens is not None:
        body["max_tokens"] = agent.max_tokens
    if system := common.join_system(messages):
        body["system"] = [{"type": "text", "text": system}]
    if tools and agent.native_tools:
        body["tools"] = [common.declare_tool(tool, "input_schema") for tool in tools]
    if agent.prompt_cache == "auto":
        _mark(body)
    return common.merge_fields(body | _thinking(agent), agent.extra_body)


def _conversation(messages: Sequence[ChatMessage], echo: bool) -> list[Body]:
    """Turns of alternating roles; empty ones are left out, as the protocol demands."""
    turns: list[Body] = []
    for message in messages:
        if message.role != "system":
            role = "assistant" if message.role == "assistant" else "user"
            common.add_turn(turns, role, "content", list(_blocks(message, echo)))
    return turns


def _blocks(message: ChatMessage, echo: bool) -> Iterator[Body]:
    if message.role == "tool":
        result = {"type": "tool_result", "tool_use_id": message.call_id, "content": message.content}
        yield result | ({"is_error": True} if message.failed else {})
        return

    def keep(block: Body) -> bool:
        if block.get("type") in _THOUGHTS:
            # A thought that was cut has no signature yet, and is refused.
            return echo and bool(block.get("signature") or block.get("data"))
        return block.get("type") != "text" or bool(as_text(block.get("text")).strip())

    yield from common.echo_parts(
        message,
        message.opaque.get("blocks"),
        text={"type": "text", "text": message.content},
        is_call=lambda block: block.get("type") == "tool_use",
        call_part=_tool_use,
        keep=keep,
    )


def _tool_use(call: ToolCall, block: Body) -> Body:
    """The block of a call as it came; what had to be repaired is the call's."""
    kept = isinstance(block.get("input"), dict) and call.arguments == _call(block).arguments
    own = {} if kept else {"input": common.parse_arguments(call)}
    return {"type": "tool_use", **block, "id": call.id, "name": call.name, **own}


def _mark(body: Body) -> None:
    """Mark where a later request may take up the cache: behind tools, system and the last turns of the user."""
    for name in ("tools", "system"):
        if body.get(name):
            body[name][-1] |= _MARK
    for turn in [turn for turn in body["messages"] if turn["role"] == "user"][-MARKED_TURNS:]:
        turn["content"][-1] = turn["content"][-1] | _MARK


def _thinking(agent: Agent) -> Body:
    """Thinking, or the temperature, which the protocol does not take beside it."""
    reasoning = agent.reasoning
    if reasoning.mode == "budget":
        return {"thinking": {"type": "enabled", "budget_tokens": reasoning.budget_tokens}}
    if reasoning.mode == "none":
        return {} if agent.temperature is None else {"temperature": agent.temperature}
    thinking = {"thinking": {"type": "adaptive", "display": "summarized"}}
    return thinking | ({"output_config": {"effort": reasoning.effort}} if reasoning.mode == "effort" else {})


# --- an answer of an endpoint ---------------------------------------------------------------------------------

_FINISHED = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


def assemble_stream(stream: EventStream) -> Body:
    """See ``Protocol.assemble_stream``."""
    body: Body = {}
    blocks: dict[Any, Body] = {}
    usage: list[Any] = []
    for event in stream.events:
        kind = event.get("type")
        if kind == "error" or event.get("error"):
            raise _stream_failure(event.get("error") or event, usage)
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
            whole = [_complete_block(block) for block in blocks.values()]
            return body | {"content": whole, "usage": merge_usage(usage)}
    raise _stream_failure(None, usage)


def _stream_failure(error: Any, reported: Sequence[Any]) -> FaultyReply:
    """The fault of a stream that had reported so much of its usage before it broke."""
    usage = merge_usage(reported)
    return stream_fault(error, messages_usage(usage), service_tier({"usage": usage}))


_GROWS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def _grow(block: Body, delta: Mapping[str, Any]) -> None:
    kind = str(delta.get("type"))
    if kind == "input_json_delta":
        block["partial"] = as_text(block.get("partial")) + as_text(delta.get("partial_json"))
    elif kind == "citations_delta":
        block["citations"] = [*list_objects(block.get("citations")), delta.get("citation")]
    elif kind in _GROWS:
        name = _GROWS[kind]
        block[name] = as_text(block.get(name)) + as_text(delta.get(name))


def _complete_block(block: Body) -> Body:
    """A block with its input as an object; an input that was cut stays text."""
    if not (text := as_text(block.pop("partial", ""))):
        return block
    try:
        return block | {"input": json.loads(text)}
    except (ValueError, RecursionError):
        return block | {"input": text}


def parse_reply(body: Mapping[str, Any], sent: Sequence[ChatMessage]) -> Reply:
    """See ``Protocol.parse_reply``."""
    usage = messages_usage(body.get("usage"))
    blocks = common.require_content(body, "content", usage)
    calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
    finish = _FINISHED.get(str(body.get("stop_reason")), "stop")
    if finish == "length" and calls and blocks[-1].get("type") == "tool_use" and not blocks[-1].get("input"):
        # What was cut before its input began comes with an empty one; that is no call without arguments.
        calls[-1] = replace(calls[-1], arguments="")
    reply = Reply(
        content="".join(as_text(block.get("text")) for block in blocks if block.get("type") == "text"),
        calls=tuple(calls),
        finish_reason=finish,
        opaque={"blocks": blocks},
        reasoning="\n\n".join(filter(None, (as_text(block.get("thinking")) for block in blocks))),
        model=str(body.get("model") or ""),
    )
    return common.complete_reply(reply, body, usage, sent)


def _call(block: Mapping[str, Any]) -> ToolCall:
    return common.tool_call(block.get("id"), block.get("name"), block.get("input"))


# --- a request of a program -----------------------------------------------------------------------------------

LEAST_THINKING = 1024
"""Tokens of thinking that the protocol takes at least."""


_CITATION = part(
    "cited_text document_index document_title source title search_result_index start_char_index end_char_index "
    "start_page_number end_page_number start_block_index end_block_index"
)
_CITED = ("char_location", "page_location", "content_block_location", "search_result_location")
_TEXT = part("text!", citations=listed(shapes.kinds(dict.fromkeys(_CITED, _CITATION))), cache_control=cache_control)
_BASE64 = shapes.encoded(part("media_type data"), "media_type")
_IMAGE = part("source!", source=shapes.kinds({"base64": _BASE64}), cache_control=cache_control)
_SOURCES = {
    "base64": _BASE64,
    "text": part("media_type data!"),
    "content": part("content!", content=shapes.parts(text=_TEXT, image=_IMAGE)),
}
_CITING: Mapping[str, Rule] = {"citations": fields("enabled"), "cache_control": cache_control}
_RESULT_BLOCKS: Mapping[str, Rule] = {
    "text": _TEXT,
    "image": _IMAGE,
    "document": part("source! title context", source=shapes.kinds(_SOURCES), **_CITING),
    "search_result": part("source title", content=shapes.parts(text=_TEXT), **_CITING),
    "tool_reference": part("tool_name", cache_control=cache_control),
}
_CONTENT = shapes.parts(
    **_RESULT_BLOCKS,
    thinking=part("thinking signature"),
    redacted_thinking=part("data"),
    tool_use=part("id", name=shapes.name, input=shapes.own, cache_control=cache_control),
    tool_result=part("tool_use_id is_error", content=shapes.parts(**_RESULT_BLOCKS), cache_control=cache_control),
)
_TOOL = part(
    "description strict defer_loading eager_input_streaming",
    name=shapes.name,
    input_schema=shapes.schema,
    input_examples=shapes.own,
    cache_control=cache_control,
)
_CHOICE = part("disable_parallel_tool_use", name=shapes.name)
_REQUEST = fields(
    "top_p top_k",
    messages=listed(fields(role=shapes.among(*common.ROLES), content=_CONTENT)),
    system=shapes.parts(text=_TEXT),
    tools=shapes.tools("custom", custom=_TOOL),
    tool_choice=shapes.tools(**dict.fromkeys(("auto", "any", "tool", "none"), _CHOICE)),
    stop_sequences=listed(shapes.text),
    thinking=part("budget_tokens display"),
    output_config=fields("effort", task_budget=part("total remaining"), format=part(schema=shapes.schema)),
    cache_control=cache_control,
    mcp_servers=shapes.hosted,
    container=shapes.hosted,
)


def parse_request(call: ApiCall, data: bytes) -> ProgramRequest:
    """See ``Protocol.parse_request``."""
    body = common.parse_body(data)
    common.require_objects(body.get("messages"), "messages")
    sent = shapes.without_null(_REQUEST(body))
    logged = [ChatMessage("system", common.render_text(sent["system"]))] if sent.get("system") else []
    for message in sent["messages"]:
        logged += _to_log(message)
    # Instructions between messages are a trial of the provider's, by a header that is not passed on.
    plain = [message | {"role": "user"} if message["role"] == "system" else message for message in sent["messages"]]
    return ProgramRequest(
        protocol="messages",
        fields=sent | {"messages": plain},
        chat=tuple(logged),
        model=str(body.get("model") or ""),
        max_tokens=common.parse_length(body.get("max_tokens")),
        stream=body.get("stream") is True,
    )


def _to_log(message: Mapping[str, Any]) -> list[ChatMessage]:
    """Messages of the log for one of the protocol's: results of tools are messages of their own there."""
    found: list[ChatMessage] = []
    texts: list[Any] = []
    calls: list[ToolCall] = []
    role = common.parse_role(message)
    for block in common.list_parts(message.get("content")):
        kind = common.get_type(block)
        if kind == "tool_result":
            failed, call_id = block.get("is_error"), str(block.get("tool_use_id") or "")
            text = common.render_text(common.list_parts(block.get("content")))
            failed = failed if isinstance(failed, bool) else None
            found.append(ChatMessage("tool", text, call_id=call_id, failed=failed))
        elif kind == "tool_use":
            calls.append(_call(block))
        elif kind not in _THOUGHTS:
            texts.append(block)
    if texts or calls or not found:
        found.append(ChatMessage(role, common.render_text(texts, "" if role == "assistant" else "\n"), tuple(calls)))
    return found


def upstream_body(agent: Agent, request: ProgramRequest) -> Body:
    """See ``Protocol.upstream_body``; the protocol takes no temperature beside thinking."""
    settings = common.drop_fields(make_request(agent, (), ()), ("messages",))
    common.limit_reply(request, settings, "max_tokens")
    body = dict(request.fields) | settings
    _fit_thinking(body)
    if _is_thinking(body):
        body.pop("temperature", None)
    if "temperature" in body:
        body.pop("top_p", None)  # newer models take one of the two
    return body


def _is_thinking(body: Mapping[str, Any]) -> bool:
    thinking = body.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") != "disabled"


def _fit_thinking(body: Body) -> None:
    """A budget of thinking must be smaller than the length of the reply, which the agent may have cut."""
    budget = common.parse_length(body["thinking"].get("budget_tokens")) if _is_thinking(body) else None
    if budget is None or "max_tokens" not in body or budget < body["max_tokens"]:
        return
    if body["max_tokens"] <= LEAST_THINKING:
        del body["thinking"]
    else:
        body["thinking"] = body["thinking"] | {"budget_tokens": max(LEAST_THINKING, body["max_tokens"] // 2)}


# --- an answer to a program -----------------------------------------------------------------------------------

KEEP_ALIVE = common.sse_event({"type": "ping"}, "ping")


def stream_answer(request: ProgramRequest, whole: Mapping[str, Any]) -> Iterator[bytes]:
    """See ``Protocol.stream_answer``."""
    usage, content = whole.get("usage") or {}, whole.get("content") or []
    begun: Body = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage | {"output_tokens": 0}}
    yield _event("message_start", message=dict(whole) | begun)
    yield KEEP_ALIVE
    for index, block in enumerate(content):
        opened, deltas = _split_deltas(block)
        yield _event("content_block_start", index=index, content_block=opened)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    ending = {name: whole.get(name) for name in ("stop_reason", "stop_sequence")}
    yield _event("message_delta", delta=ending, usage=usage)
    yield _event("message_stop")


def _split_deltas(block: Mapping[str, Any]) -> tuple[Body, list[Body]]:
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
    return common.sse_event({"type": name} | fields, name)


_KINDS = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def error_body(refused: RequestRefused) -> Body:
    """The error object of the protocol."""
    kind = _KINDS.get(refused.status, "invalid_request_error" if refused.status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": common.error_text(refused, "prompt is too long: ")}}


def error_event(refused: RequestRefused) -> bytes:
    """The same in a stream that has begun."""
    return common.sse_event(error_body(refused), "error")
