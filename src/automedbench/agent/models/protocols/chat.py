"""OpenAI chat completions: a conversation as a request, the answer as a reply."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from automedbench.agent.models.model import ChatMessage, Reply, ToolCall, ToolSpec
from automedbench.agent.models.protocols.common import as_text, finished, merged, parts_of, text_of
from automedbench.base.endpoint.faults import stream_fault
from automedbench.base.endpoint.replies import clean_text, completion_of
from automedbench.base.endpoint.usage import chat_usage, service_tier
from automedbench.campaign.agents import Agent

OPAQUE = ("reasoning_details", "reasoning_content", "reasoning")
"""Fields of an assistant message that providers want echoed back unchanged."""
_OF_CALL = frozenset({"id", "type", "index", "function"})
MARKED = 2
"""Messages at the end whose text is marked for the cache, where the model is one that needs marks."""


def request(agent: Agent, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """See ``Wire.request``."""
    body: dict[str, Any] = {"model": agent.model}
    if agent.native_tools:
        body["messages"] = [native_message(message, agent.echo_reasoning) for message in messages]
        body["tools"] = [_tool(tool) for tool in tools]
        body["tool_choice"] = "auto"
    else:
        turns = as_text(messages, native=False)
        body["messages"] = _joined([native_message(message, agent.echo_reasoning) for message in turns])
    if agent.prompt_cache == "auto" and "claude" in agent.model.lower():
        _mark(body["messages"])
    if "max_completion_tokens" not in agent.extra_body:
        body["max_tokens"] = agent.max_tokens
    if agent.temperature is not None:
        body["temperature"] = agent.temperature
    if agent.reasoning.mode == "field":
        body["reasoning"] = {"enabled": True}
    elif agent.reasoning.mode == "effort":
        body["reasoning_effort"] = agent.reasoning.effort
    elif agent.reasoning.mode == "budget":
        body["reasoning"] = {"max_tokens": agent.reasoning.budget_tokens}
    return merged(body, agent.extra_body)


def assemble(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """See ``Wire.assemble``."""
    body: dict[str, Any] = {}
    message: dict[str, Any] = {}
    calls: list[dict[str, Any]] = []
    finish = None
    for event in events:
        body |= {name: value for name, value in event.items() if value is not None}
        if event.get("error"):
            raise stream_fault(event["error"], chat_usage(body.get("usage")), service_tier(body))
        for choice in parts_of(event.get("choices"))[:1]:
            finish = choice.get("finish_reason") or finish
            delta = choice.get("delta")
            for name, value in delta.items() if isinstance(delta, dict) else ():
                if name == "tool_calls":
                    for part in parts_of(value):
                        _grow_call(calls, part)
                else:
                    _grow(message, name, value)
    if finish is None:
        raise stream_fault(None, chat_usage(body.get("usage")), service_tier(body))
    if calls:
        message["tool_calls"] = [{name: value for name, value in call.items() if name != "index"} for call in calls]
    return body | {"choices": [{"index": 0, "finish_reason": finish, "message": message}]}


def reply(body: Mapping[str, Any], sent: Sequence[ChatMessage]) -> Reply:
    """See ``Wire.reply``; the older ``function_call`` is read as a call."""
    found = completion_of(body)
    message = found.message
    older = message.get("function_call")
    answer = Reply(
        content=found.text,
        calls=native_calls(message.get("tool_calls")) or native_calls([{"function": older}]),
        finish_reason=found.finish_reason,
        opaque={name: message[name] for name in OPAQUE if message.get(name)},
        reasoning=_reasoning(message),
        model=found.model,
        reported_cost=found.reported_cost,
        service_tier=found.service_tier,
    )
    return finished(answer, found.usage, sent)


def native_calls(value: Any) -> tuple[ToolCall, ...]:
    """The ``tool_calls`` of a message; what is none is left out."""
    calls = []
    for item in value if isinstance(value, list) else []:
        function = item.get("function") if isinstance(item, dict) else None
        if not isinstance(function, dict):
            continue
        arguments = function.get("arguments")
        # Some servers send the object itself instead of its text.
        text = arguments if isinstance(arguments, str) else json.dumps(arguments if arguments is not None else {})
        opaque = {name: value for name, value in item.items() if name not in _OF_CALL}
        name = str(function.get("name") or "")
        calls.append(ToolCall(str(item.get("id") or ""), name, clean_text(text), opaque=opaque))
    return tuple(calls)


def native_message(message: ChatMessage, echo: bool) -> dict[str, Any]:
    """A message in the protocol's words; ``echo`` keeps the provider's reasoning fields."""
    # Some servers refuse empty text; beside calls the protocol allows null.
    result: dict[str, Any] = {"role": message.role, "content": message.content or (None if message.calls else "")}
    if message.call_id is not None:
        result["tool_call_id"] = message.call_id
    if message.calls:
        result["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            | dict(call.opaque)
            for call in message.calls
        ]
    return result | ({name: message.opaque[name] for name in OPAQUE if name in message.opaque} if echo else {})


def _joined(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbouring user messages as one: many chat templates demand that roles alternate."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        if joined and message["role"] == joined[-1]["role"] == "user":
            joined[-1] = {"role": "user", "content": f"{joined[-1]['content']}\n\n{message['content']}"}
        else:
            joined.append(message)
    return joined


def _mark(messages: list[dict[str, Any]]) -> None:
    """Mark the system prompt and the last messages: a text becomes a part that says where the cache may end."""
    others = [message for message in messages[1:] if message["role"] != "assistant"]
    for message in [*messages[:1], *others[-MARKED:]]:
        if not message["content"]:
            continue
        part = {"type": "text", "text": message["content"], "cache_control": {"type": "ephemeral"}}
        message["content"] = [part]


def _reasoning(message: Mapping[str, Any]) -> str:
    """What the model thought, where it is told as text."""
    told = text_of(message.get("reasoning_content")) or text_of(message.get("reasoning"))
    details = parts_of(message.get("reasoning_details"))
    return told or "".join(text_of(item.get("text")) or text_of(item.get("summary")) for item in details)


def _grow_call(calls: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """Add a piece of a call: to the one with its index, unless it has an id of its own. Some servers tell no index."""
    index, name = part.get("index"), part.get("id")
    call = next((each for each in reversed(calls) if each.get("index") == index), None)
    if call is None or (name and call.get("id") and name != call["id"]):
        call = {"index": index}
        calls.append(call)
    for key, value in part.items():
        if key == "function" and isinstance(value, dict):
            function = call.setdefault("function", {})
            for inner, text in value.items():
                _grow(function, inner, text)
        elif value not in (None, ""):
            call[key] = value


_WHOLE = frozenset({"role", "name"})


def _grow(grown: dict[str, Any], name: str, value: Any) -> None:
    """Add a piece: texts and lists are continued, objects merged; items of a list with the same index are one."""
    before = grown.get(name)
    if value is None or (name in _WHOLE and not value):
        return
    if isinstance(value, str) and isinstance(before, str) and name not in _WHOLE:
        grown[name] = before + value
    elif isinstance(value, dict) and isinstance(before, dict):
        for inner, text in value.items():
            _grow(before, inner, text)
    elif isinstance(value, list):
        grown[name] = _lengthened(parts_of(before), value)
    else:
        grown[name] = dict(value) if isinstance(value, dict) else value


def _lengthened(items: list[dict[str, Any]], more: list[Any]) -> list[dict[str, Any]]:
    """A list of a stream with more of it: text of an item with the same index is continued."""
    for item in parts_of(more):
        last = items[-1] if items else {}
        if item.get("index") is None or any(item.get(name) != last.get(name) for name in ("index", "type")):
            items.append(dict(item))
            continue
        for name, value in item.items():
            if name in ("text", "summary", "data"):
                _grow(last, name, value)
            elif value is not None:
                last[name] = value
    return items


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}
