"""A chat completion as JSON: which body is one, what it cost, and what is wrong with the others. Pure functions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from automedbench.base.endpoint.api_policy import Fault, classify_error_object
from automedbench.base.records import Tokens

_SURROGATES = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True)
class Usage:
    """Tokens of one or more requests; ``reasoning`` is part of ``completion``, ``cached`` of ``prompt``."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt,
            self.cached + other.cached,
            self.completion + other.completion,
            self.reasoning + other.reasoning,
            self.estimated or other.estimated,
        )

    @property
    def total(self) -> int:
        """Prompt plus completion."""
        return self.prompt + self.completion

    @property
    def tokens(self) -> Tokens:
        """As the records hold it."""
        return Tokens(**vars(self))


NO_USAGE = Usage()


class FaultyReply(Exception):
    """A reply with status 200 that is no reply; ``spent`` is what it says it cost."""

    def __init__(self, fault: Fault, spent: Usage = NO_USAGE) -> None:
        self.fault = fault
        self.spent = spent
        super().__init__(fault.body)


@dataclass(frozen=True)
class Completion:
    """The parts of a body that are used. ``usage`` is None when the provider does not tell, or tells nonsense."""

    message: Mapping[str, Any]
    finish_reason: str
    usage: Usage | None
    model: str
    reported_cost: float | None

    @property
    def text(self) -> str:
        """The content as text: a string, null, or a list of parts."""
        content = self.message.get("content")
        if isinstance(content, list):
            parts = [part.get("text") for part in content if isinstance(part, dict)]
            content = "".join(part for part in parts if isinstance(part, str))
        return clean_text(content) if isinstance(content, str) else ""


def read_completion(data: bytes) -> Completion:
    """The completion in a body with status 200; raises FaultyReply. Unknown fields are ignored."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        shown = data.decode("utf-8", "replace") or "an empty body"
        raise FaultyReply(Fault("malformed", 200, shown)) from None
    if not isinstance(body, dict):
        raise FaultyReply(Fault("malformed", 200, json.dumps(body)))
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise _no_message(body)
    finish, model = choice.get("finish_reason"), body.get("model")
    return Completion(message, str(finish or "stop"), _usage(body), str(model or ""), _cost(body))


def clean_text(text: str) -> str:
    """``text`` without lone surrogates, which no UTF-8 file or request can hold."""
    return _SURROGATES.sub("\ufffd", text)


def _no_message(body: Mapping[str, Any]) -> FaultyReply:
    kind = classify_error_object(body["error"]) if body.get("error") else "malformed"
    return FaultyReply(Fault(kind, 200, json.dumps(body)), _usage(body) or NO_USAGE)


def _usage(body: Mapping[str, Any]) -> Usage | None:
    usage = body.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    cached = _detail(usage, "prompt_tokens_details", "cached_tokens")
    return Usage(prompt, cached, completion, _detail(usage, "completion_tokens_details", "reasoning_tokens"))


def _detail(usage: Mapping[str, Any], group: str, name: str) -> int:
    details = usage.get(group)
    return (_count(details.get(name)) or 0) if isinstance(details, dict) else 0


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _cost(body: Mapping[str, Any]) -> float | None:
    """USD that the provider itself reports for the request, if it does."""
    usage = body.get("usage")
    value = usage.get("cost") if isinstance(usage, dict) else None
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
