"""Bodies of replies with status 200: whole JSON, the events of a stream (SSE), chat completions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from automedbench.base.endpoint.faults import Fault, FaultyReply, make_reply_fault
from automedbench.base.endpoint.usage import chat_usage, reported_cost, service_tier
from automedbench.base.files import clean_text
from automedbench.base.records import Tokens

_LINE = re.compile(r"\r\n|\n|\r")
_FIELD = re.compile(rb"\s*(?:data|event|id|retry)?:")


def is_stream(data: bytes) -> bool:
    """True when a body is a stream; an endpoint may answer whole though it was asked for one, and the other way."""
    return _FIELD.match(data.removeprefix(b"\xef\xbb\xbf")) is not None


@dataclass
class EventStream:
    """The JSON objects of a stream in their order; ``done``: it ended in ``[DONE]``."""

    events: list[dict[str, Any]] = field(default_factory=list)
    done: bool = False


def read_events(data: bytes) -> EventStream:
    """The objects of a stream; comments and a last event that was cut are left out."""
    found = EventStream()
    lines: list[str] = []
    for line in [*_LINE.split(data.decode("utf-8-sig", "replace")), ""]:
        if line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
        elif not line and lines:
            text = "\n".join(lines)
            try:
                value = sanitize(json.loads(text))
            except (ValueError, RecursionError):
                value = None
            if isinstance(value, dict):
                found.events.append(value)
            found.done = text.strip() == "[DONE]"
            lines = []
    return found


@dataclass(frozen=True)
class Completion:
    """The parts of a body that are used. ``usage`` is None when the provider does not tell, or tells nonsense."""

    message: Mapping[str, Any]
    finish_reason: str
    usage: Tokens | None
    model: str
    reported_cost: float | None
    service_tier: str

    @property
    def text(self) -> str:
        """The content as text: a string, null, or a list of parts."""
        content = self.message.get("content")
        if isinstance(content, list):
            parts = [part.get("text") for part in content if isinstance(part, dict)]
            content = "".join(part for part in parts if isinstance(part, str))
        return clean_text(content) if isinstance(content, str) else ""


def read_json(data: bytes) -> dict[str, Any]:
    """The JSON object in a body with status 200, without what no request could send back; raises FaultyReply."""
    try:
        body = sanitize(json.loads(data))
    except (ValueError, RecursionError):
        shown = data.decode("utf-8", "replace") or "an empty body"
        raise FaultyReply(Fault("malformed", 200, shown)) from None
    if not isinstance(body, dict):
        raise FaultyReply(Fault("malformed", 200, json.dumps(body)))
    return body


def read_completion(data: bytes) -> Completion:
    """The completion in a body with status 200; raises FaultyReply. Unknown fields are ignored."""
    return parse_completion(read_json(data))


def parse_completion(body: Mapping[str, Any]) -> Completion:
    """The completion in a JSON object; raises FaultyReply."""
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise make_reply_fault(body, chat_usage(body.get("usage")))
    finish, model = choice.get("finish_reason"), body.get("model")
    usage = body.get("usage")
    return Completion(
        message, str(finish or "stop"), chat_usage(usage), str(model or ""), reported_cost(usage), service_tier(body)
    )


def sanitize(value: Any, depth: int = 1000) -> Any:
    """A JSON value without lone surrogates and with null for numbers that JSON has no form for.

    Raises ValueError for a value of more than ``depth`` levels.
    """
    if depth < 0:
        raise ValueError("too many levels")
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(name): sanitize(inner, depth - 1) for name, inner in value.items()}
    if isinstance(value, list):
        return [sanitize(inner, depth - 1) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
