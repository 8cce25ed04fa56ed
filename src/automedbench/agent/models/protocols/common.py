"""What the protocols towards an endpoint have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from automedbench.agent.models.model import ChatMessage, Reply, ToolCall, estimate_tokens
from automedbench.base.endpoint.faults import Fault, FaultyReply
from automedbench.base.files import parse_json_object
from automedbench.base.records import Tokens


def merged(body: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """``body`` with ``extra`` in it, which has the last word; objects are merged, all else is replaced."""
    both = {name: (body[name], extra[name]) for name in extra if name in body}
    inner = {
        name: merged(old, new) for name, (old, new) in both.items() if isinstance(old, dict) and isinstance(new, dict)
    }
    return {**body, **extra, **inner}


def as_text(messages: Sequence[ChatMessage], *, native: bool) -> list[ChatMessage]:
    """Calls that a model wrote as text stay text, and their results come as user messages.

    A call of the protocol that the provider never made would lack its signature. Without ``native`` tools all calls
    are such.
    """
    told: set[str] = set()
    result = []
    for message in messages:
        written = {call.id for call in message.calls if call.recovered or not native}
        told |= written
        if message.role == "tool" and message.call_id in told:
            message = ChatMessage("user", f"[RESULT] {message.content}")
        elif written:
            message = replace(message, calls=tuple(call for call in message.calls if call.id not in written))
        result.append(message)
    return result


def system_of(messages: Sequence[ChatMessage]) -> str:
    """What the system messages say: these protocols take it beside the conversation."""
    return "\n\n".join(message.content for message in messages if message.role == "system")


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """The arguments as an object; what is none is empty."""
    return parse_json_object(call.arguments) or {}


def parts_of(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; anything else holds none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """``value`` where it is text, else nothing."""
    return value if isinstance(value, str) else ""


def finished(reply: Reply, usage: Tokens | None, sent: Sequence[ChatMessage]) -> Reply:
    """The reply with its usage, which is estimated where none is told; raises FaultyReply for a filtered one."""
    if usage is None:
        answer = ChatMessage("assistant", reply.content, reply.calls)
        usage = Tokens(prompt=estimate_tokens(sent), completion=estimate_tokens([answer]), estimated=True)
    if reply.finish_reason == "content_filter":
        raise FaultyReply(
            Fault("content_policy", 200, f"stopped by the provider; {reply.content[:200]}"), usage, reply.service_tier
        )
    return replace(reply, usage=usage)
