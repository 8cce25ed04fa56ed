"""OpenAI chat completions: a conversation as a request, the answer as a reply."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from automedbench.agent.models.model import ChatMessage, Reply, ToolCall, ToolSpec, estimate_tokens
from automedbench.base.endpoint.completion import Fault, FaultyReply, clean_text, read_completion
from automedbench.base.records import Tokens
from automedbench.campaign.agents import Agent

OPAQUE = ("reasoning_details", "reasoning_content", "reasoning")
"""Fields of an assistant message that providers want echoed back unchanged."""


def request_body(agent: Agent, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The JSON of one request; the agent's ``extra_body`` has the last word."""
    body: dict[str, Any] = {"model": agent.model}
    if agent.native_tools:
        body["messages"] = [native_message(message, agent.echo_reasoning) for message in messages]
        body["tools"] = [_tool(tool) for tool in tools]
        body["tool_choice"] = "auto"
    else:
        body["messages"] = _merged([_plain(message, agent.echo_reasoning) for message in messages])
    if "max_completion_tokens" not in agent.extra_body:
        body["max_tokens"] = agent.max_tokens
    if agent.temperature is not None:
        body["temperature"] = agent.temperature
    if agent.reasoning.mode == "field":
        body["reasoning"] = {"enabled": True}
    elif agent.reasoning.mode == "effort":
        body["reasoning_effort"] = agent.reasoning.effort
    return body | agent.extra_body


def parse_reply(data: bytes, sent: Sequence[ChatMessage]) -> Reply:
    """The reply in a body with status 200; raises FaultyReply. Unknown fields are ignored, missing usage estimated."""
    found = read_completion(data)
    content, calls = found.text, native_calls(found.message.get("tool_calls"))
    usage = found.usage
    if usage is None:
        answer = ChatMessage("assistant", content, calls)
        usage = Tokens(prompt=estimate_tokens(sent), completion=estimate_tokens([answer]), estimated=True)
    if found.finish_reason == "content_filter":
        raise FaultyReply(
            Fault("content_policy", 200, f"finish_reason content_filter; {content[:200]}"), usage, found.service_tier
        )
    return Reply(
        content=content,
        calls=calls,
        finish_reason=found.finish_reason,
        usage=usage,
        opaque={name: found.message[name] for name in OPAQUE if found.message.get(name)},
        model=found.model,
        reported_cost=found.reported_cost,
        service_tier=found.service_tier,
    )


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
        calls.append(ToolCall(str(item.get("id") or ""), str(function.get("name") or ""), clean_text(text)))
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
            for call in message.calls
        ]
    return result | (dict(message.opaque) if echo else {})


def _plain(message: ChatMessage, echo: bool) -> dict[str, Any]:
    """A message for a model without tools: its calls stand in its text, results come as user messages."""
    if message.role == "tool":
        return {"role": "user", "content": f"[RESULT] {message.content}"}
    return {"role": message.role, "content": message.content} | (dict(message.opaque) if echo else {})


def _merged(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbouring user messages as one: many chat templates demand that roles alternate."""
    merged: list[dict[str, Any]] = []
    for message in messages:
        if merged and message["role"] == merged[-1]["role"] == "user":
            merged[-1] = {"role": "user", "content": f"{merged[-1]['content']}\n\n{message['content']}"}
        else:
            merged.append(message)
    return merged


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}
