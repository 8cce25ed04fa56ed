"""The chat-completions protocol: our messages as JSON, a JSON body as our reply. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from automedbench.agent.api_policy import Fault, classify_error_object
from automedbench.agent.chat import ChatMessage, Reply, ToolCall, ToolSpec, Usage, clean_text, estimate_tokens
from automedbench.agents import Agent

OPAQUE = ("reasoning_details", "reasoning_content", "reasoning")
"""Fields of an assistant message that providers want echoed back unchanged."""


class FaultyReply(Exception):
    """A reply with status 200 that is no reply; ``spent`` is what it says it cost."""

    def __init__(self, fault: Fault, spent: Usage = Usage()) -> None:  # noqa: B008 - frozen
        self.fault = fault
        self.spent = spent
        super().__init__(fault.body)


def request_body(agent: Agent, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The JSON of one request; the agent's ``extra_body`` has the last word."""
    body: dict[str, Any] = {"model": agent.model}
    if agent.native_tools:
        body["messages"] = [_native(message) for message in messages]
        body["tools"] = [_tool(tool) for tool in tools]
        body["tool_choice"] = "auto"
    else:
        body["messages"] = _merged([_plain(message) for message in messages])
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
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise FaultyReply(Fault("malformed", 200, data[:400].decode("utf-8", "replace"))) from None
    if not isinstance(body, dict):
        raise FaultyReply(Fault("malformed", 200, json.dumps(body)[:400]))
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise _no_message(body)
    return _reply(body, choice, message, sent)


def _no_message(body: Mapping[str, Any]) -> FaultyReply:
    text = json.dumps(body)[:400]
    spent = _usage(body) or Usage()
    if body.get("error"):
        return FaultyReply(Fault(classify_error_object(body["error"]), 200, text), spent)
    return FaultyReply(Fault("malformed", 200, text), spent)


def _reply(
    body: Mapping[str, Any], choice: Mapping[str, Any], message: Mapping[str, Any], sent: Sequence[ChatMessage]
) -> Reply:
    content = _text(message.get("content"))
    calls = tuple(_calls(message.get("tool_calls")))
    finish = str(choice.get("finish_reason") or "stop")
    usage = _usage(body)
    if usage is None:
        answer = ChatMessage("assistant", content, calls)
        usage = Usage(prompt=estimate_tokens(sent), completion=estimate_tokens([answer]), estimated=True)
    if finish == "content_filter":
        raise FaultyReply(Fault("content_policy", 200, f"finish_reason content_filter; {content[:200]}"), usage)
    return Reply(
        content=content,
        calls=calls,
        finish_reason=finish,
        usage=usage,
        opaque={name: message[name] for name in OPAQUE if message.get(name)},
        model=str(body.get("model") or ""),
        reported_cost=_number((body.get("usage") or {}).get("cost")) if isinstance(body.get("usage"), dict) else None,
    )


def _calls(value: Any) -> list[ToolCall]:
    calls = []
    for item in value if isinstance(value, list) else []:
        function = item.get("function") if isinstance(item, dict) else None
        if not isinstance(function, dict):
            continue
        arguments = function.get("arguments")
        # Some servers send the object itself instead of its text.
        text = arguments if isinstance(arguments, str) else json.dumps(arguments if arguments is not None else {})
        calls.append(ToolCall(str(item.get("id") or ""), str(function.get("name") or ""), clean_text(text)))
    return calls


def _text(content: Any) -> str:
    """Content as text: a string, null, or a list of parts."""
    if isinstance(content, str):
        return clean_text(content)
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return clean_text("".join(part for part in parts if isinstance(part, str)))
    return ""


def _usage(body: Mapping[str, Any]) -> Usage | None:
    usage = body.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    return Usage(
        prompt,
        _detail(usage, "prompt_tokens_details", "cached_tokens"),
        completion,
        _detail(usage, "completion_tokens_details", "reasoning_tokens"),
    )


def _detail(usage: Mapping[str, Any], group: str, name: str) -> int:
    details = usage.get(group)
    return (_count(details.get(name)) or 0) if isinstance(details, dict) else 0


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _native(message: ChatMessage) -> dict[str, Any]:
    result: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.call_id is not None:
        result["tool_call_id"] = message.call_id
    if message.calls:
        result["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    return result | dict(message.opaque)


def _plain(message: ChatMessage) -> dict[str, Any]:
    """A message for a model without tools: its calls stand in its text, results come as user messages."""
    if message.role == "tool":
        return {"role": "user", "content": f"[RESULT] {message.content}"}
    return {"role": message.role, "content": message.content} | dict(message.opaque)


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
