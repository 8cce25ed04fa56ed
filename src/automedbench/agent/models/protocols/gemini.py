"""Gemini generateContent: a conversation as a request, the answer as a reply.

What the model said goes back as the parts that came, thought signatures included; only ids and arguments that had to
be repaired differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from automedbench.agent.models.model import ChatMessage, Reply, ToolCall, ToolSpec
from automedbench.agent.models.protocols import common
from automedbench.base.endpoint.faults import NO_USAGE, Fault, FaultyReply, no_reply, stream_fault
from automedbench.base.endpoint.usage import gemini_usage, merged_usage, service_tier
from automedbench.base.files import parse_json_object
from automedbench.campaign.agents import Agent

_FILTERED = frozenset(
    {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT"}
)


def request(agent: Agent, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """See ``Wire.request``."""
    settings: dict[str, Any] = {"maxOutputTokens": agent.max_tokens}
    if agent.temperature is not None:
        settings["temperature"] = agent.temperature
    if agent.reasoning.mode != "none":
        settings["thinkingConfig"] = {"includeThoughts": True, **_thinking(agent)}
    turns = common.as_text(messages, native=agent.native_tools)
    body: dict[str, Any] = {"contents": _contents(turns, agent.echo_reasoning), "generationConfig": settings}
    if system := common.system_of(messages):
        body["systemInstruction"] = {"parts": [{"text": system}]}
    if tools and agent.native_tools:
        declared = [
            {"name": tool.name, "description": tool.description, "parametersJsonSchema": dict(tool.parameters)}
            for tool in tools
        ]
        body["tools"] = [{"functionDeclarations": declared}]
    return common.merged(body, agent.extra_body)


def assemble(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """See ``Wire.assemble``."""
    body: dict[str, Any] = {}
    candidate: dict[str, Any] = {}
    parts: list[dict[str, Any]] = []
    usage = merged_usage(event.get("usageMetadata") for event in events)
    for event in events:
        if event.get("error"):
            raise stream_fault(event["error"], gemini_usage(usage), service_tier({"usageMetadata": usage}))
        body |= event
        for found in common.parts_of(event.get("candidates"))[:1]:
            candidate |= found
            for part in _parts(found):
                _append(parts, part)
    body |= {"usageMetadata": usage} if usage else {}
    if candidate.get("finishReason") is None and not _blocked(body):
        raise stream_fault(None, gemini_usage(usage), service_tier(body))
    if candidate:
        body["candidates"] = [candidate | {"content": {"role": "model", "parts": parts}}]
    return body


def reply(body: Mapping[str, Any], sent: Sequence[ChatMessage]) -> Reply:
    """See ``Wire.reply``."""
    usage = gemini_usage(body.get("usageMetadata"))
    candidate = next(iter(common.parts_of(body.get("candidates"))), None)
    if candidate is None and (why := _blocked(body)):
        raise FaultyReply(Fault("content_policy", 200, f"blockReason {why}"), usage or NO_USAGE, service_tier(body))
    if candidate is None or body.get("error"):
        raise no_reply(body, usage)
    parts = _parts(candidate)
    calls = tuple(_call(part["functionCall"]) for part in parts if isinstance(part.get("functionCall"), dict))
    reason = candidate.get("finishReason")
    ended = "length" if reason == "MAX_TOKENS" else "content_filter" if reason in _FILTERED else None
    answer = Reply(
        content="".join(common.text_of(part.get("text")) for part in parts if not part.get("thought")),
        calls=calls,
        finish_reason=ended or ("tool_calls" if calls else "stop"),
        opaque={"parts": parts},
        reasoning="".join(common.text_of(part.get("text")) for part in parts if part.get("thought")),
        model=str(body.get("modelVersion") or ""),
        service_tier=service_tier(body),
    )
    return common.finished(answer, usage, sent)


# --- a request ------------------------------------------------------------------------------------------------


def _thinking(agent: Agent) -> dict[str, Any]:
    if agent.reasoning.mode == "budget":
        return {"thinkingBudget": agent.reasoning.budget_tokens}
    return {"thinkingLevel": agent.reasoning.effort} if agent.reasoning.mode == "effort" else {}


def _contents(messages: Sequence[ChatMessage], echo: bool) -> list[dict[str, Any]]:
    """Turns of alternating roles: the results of all calls of a turn stand in one, notices behind them."""
    turns: list[dict[str, Any]] = []
    asked: dict[str | None, ToolCall] = {}
    with_id: set[str | None] = set()
    for message in messages:
        role = "model" if message.role == "assistant" else "user"
        parts: list[dict[str, Any]] = []
        if role == "model":
            parts = list(_said(message, echo))
            asked |= {call.id: call for call in message.calls}
            with_id |= {part["functionCall"].get("id") for part in parts if "functionCall" in part}
        elif message.role == "tool":
            parts = [_result(message, asked.get(message.call_id), message.call_id in with_id)]
        elif message.role == "user":
            parts = [{"text": message.content}]
        if turns and turns[-1]["role"] == role:
            turns[-1]["parts"] += parts
        elif parts:
            turns.append({"role": role, "parts": parts})
    return turns


def _said(message: ChatMessage, echo: bool) -> Iterator[dict[str, Any]]:
    came = common.parts_of(message.opaque.get("parts"))
    calls = iter(message.calls)
    if not came and message.content:
        yield {"text": message.content}
    for part in came:
        if isinstance(part.get("functionCall"), dict):
            if (call := next(calls, None)) is not None:
                yield part | {"functionCall": _function_call(call, part["functionCall"])}
        # An empty text is refused, unless it is there for its signature.
        elif part != {"text": ""} and (echo or not part.get("thought")):
            yield part
    yield from ({"functionCall": _function_call(call, {"id": call.id})} for call in calls)


def _function_call(call: ToolCall, came: dict[str, Any]) -> dict[str, Any]:
    """A call as it came; what had to be repaired is ours."""
    ours: dict[str, Any] = {"name": call.name}
    if "id" in came:
        ours["id"] = call.id
    if not isinstance(came.get("args", {}), dict) or call.arguments != _arguments_text(came):
        ours["args"] = common.arguments_of(call)
    return came | ours


def _result(message: ChatMessage, call: ToolCall | None, with_id: bool) -> dict[str, Any]:
    value = parse_json_object(message.content)
    response = value if value is not None else {"error" if message.failed else "output": message.content}
    named = {"id": message.call_id} if with_id else {}
    return {"functionResponse": {**named, "name": call.name if call else "", "response": response}}


# --- an answer ------------------------------------------------------------------------------------------------


def _parts(candidate: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = candidate.get("content")
    return common.parts_of(content.get("parts")) if isinstance(content, dict) else []


def _append(parts: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """Add a part of a stream; plain text joins plain text of the same kind, a part with a signature stays alone."""
    kind = {name: value for name, value in part.items() if name != "text"}
    if parts and "text" in part and "text" in parts[-1] and kind in ({}, {"thought": True}):
        last = parts[-1]
        if {name: value for name, value in last.items() if name != "text"} == kind:
            parts[-1] = part | {"text": common.text_of(last["text"]) + common.text_of(part["text"])}
            return
    parts.append(part)


def _blocked(body: Mapping[str, Any]) -> str:
    feedback = body.get("promptFeedback")
    return common.text_of(feedback.get("blockReason")) if isinstance(feedback, dict) else ""


def _call(value: Mapping[str, Any]) -> ToolCall:
    return ToolCall(str(value.get("id") or ""), str(value.get("name") or ""), _arguments_text(value))


def _arguments_text(value: Mapping[str, Any]) -> str:
    arguments = value.get("args")
    return json.dumps({} if arguments is None else arguments, ensure_ascii=False)
