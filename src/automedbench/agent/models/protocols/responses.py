"""OpenAI Responses: a conversation as a request, the answer as a reply.

Nothing is stored at the provider: the items of an answer go back as they came, reasoning with its encrypted content
included; only ids and arguments that had to be repaired differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from automedbench.agent.models.model import ChatMessage, Reply, ToolCall, ToolSpec
from automedbench.agent.models.protocols.common import as_text, finished, merged, parts_of, system_of, text_of
from automedbench.base.endpoint.faults import no_reply, stream_fault
from automedbench.base.endpoint.usage import responses_usage, service_tier
from automedbench.base.files import sha256_bytes
from automedbench.campaign.agents import Agent

_CUT = {"max_output_tokens": "length", "content_filter": "content_filter"}
_ENDS = ("response.completed", "response.incomplete", "response.failed")


def request(agent: Agent, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """See ``Wire.request``."""
    turns = as_text(messages, native=agent.native_tools)
    body: dict[str, Any] = {
        "model": agent.model,
        "input": [item for message in turns for item in _items(message, agent.echo_reasoning)],
        "max_output_tokens": agent.max_tokens,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    if system := system_of(messages):
        body["instructions"] = system
    if tools and agent.native_tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
                "strict": False,
            }
            for tool in tools
        ]
    if agent.temperature is not None:
        body["temperature"] = agent.temperature
    if agent.reasoning.mode == "effort":
        body["reasoning"] = {"effort": agent.reasoning.effort, "summary": "auto"}
    elif agent.reasoning.mode == "field":
        body["reasoning"] = {"summary": "auto"}
    if agent.prompt_cache == "auto":
        # The provider finds its cache by this name: one for all requests that begin alike.
        start = "\n".join(message.content for message in messages[:2])
        body["prompt_cache_key"] = sha256_bytes(start.encode())[:32]
    return merged(body, agent.extra_body)


def assemble(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """See ``Wire.assemble``."""
    items: dict[Any, Any] = {}
    for event in events:
        kind = event.get("type")
        if kind == "error" or (kind is None and event.get("error")):
            raise stream_fault(event.get("error") or event, None)
        if kind == "response.output_item.done":
            items[event.get("output_index")] = event.get("item")
        elif kind in _ENDS and isinstance(event.get("response"), dict):
            # Some servers tell the items on their way only.
            body: dict[str, Any] = event["response"]
            return body if body.get("output") else body | {"output": list(items.values())}
    raise stream_fault(None, None)


def reply(body: Mapping[str, Any], sent: Sequence[ChatMessage]) -> Reply:
    """See ``Wire.reply``."""
    usage = responses_usage(body.get("usage"))
    # An empty reply tells what it cost; without that it is no reply at all.
    empty = not body.get("output") and usage is None
    if not isinstance(body.get("output"), list) or body.get("error") or body.get("status") == "failed" or empty:
        raise no_reply(body, usage)
    items = parts_of(body["output"])
    # The program behind the bridge may have tools whose input is plain text.
    calls = tuple(_call(item) for item in items if item.get("type") in ("function_call", "custom_tool_call"))
    texts = [part for item in items if item.get("type") == "message" for part in parts_of(item.get("content"))]
    details = body.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    answer = Reply(
        content="".join(text_of(part.get("text")) or text_of(part.get("refusal")) for part in texts),
        calls=calls,
        finish_reason=_CUT.get(str(reason), "tool_calls" if calls else "stop"),
        opaque={"items": items},
        reasoning="\n\n".join(filter(None, map(_thought, items))),
        model=str(body.get("model") or ""),
        service_tier=service_tier(body),
    )
    return finished(answer, usage, sent)


def _items(message: ChatMessage, echo: bool) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        yield {"type": "function_call_output", "call_id": message.call_id, "output": message.content}
    elif message.role == "user":
        yield {"role": "user", "content": message.content}
    elif message.role == "assistant":
        items = list(_said(message, echo))
        # Reasoning alone is refused: what it was for must follow it.
        yield from items if any(item.get("type") != "reasoning" for item in items) else []


def _said(message: ChatMessage, echo: bool) -> Iterator[dict[str, Any]]:
    came = parts_of(message.opaque.get("items"))
    calls = iter(message.calls)
    if not came and message.content:
        yield {"role": "assistant", "content": message.content}
    for item in came:
        if item.get("type") == "function_call":
            if (call := next(calls, None)) is not None:
                yield _function_call(call, item)
        elif echo or item.get("type") != "reasoning":
            yield item
    yield from (_function_call(call, {"type": "function_call"}) for call in calls)


def _function_call(call: ToolCall, item: dict[str, Any]) -> dict[str, Any]:
    return item | {"call_id": call.id, "name": call.name, "arguments": call.arguments}


def _call(item: Mapping[str, Any]) -> ToolCall:
    arguments = item.get("input" if item.get("type") == "custom_tool_call" else "arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments if arguments is not None else {})
    return ToolCall(str(item.get("call_id") or ""), str(item.get("name") or ""), text)


def _thought(item: Mapping[str, Any]) -> str:
    if item.get("type") != "reasoning":
        return ""
    parts = [*parts_of(item.get("summary")), *parts_of(item.get("content"))]
    return "\n\n".join(filter(None, (text_of(part.get("text")) for part in parts)))
