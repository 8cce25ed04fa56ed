"""A chat completion as JSON, and what is wrong with answers that are none: what they cost, how often and how long to
wait for a better one. Pure functions over status codes and bodies. Policy: docs/specification.md, 8.5.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from automedbench.base.records import Tokens

Kind = Literal[
    "rate_limit", "server", "network", "malformed", "context_overflow", "content_policy", "bad_request", "auth"
]

TRANSIENT: Mapping[Kind, int] = {"server": 8, "network": 8, "malformed": 4}
"""Kinds worth repeating → attempts in all; ``rate_limit`` is the limiter's affair."""

MAX_ATTEMPTS = max(TRANSIENT.values())
"""Attempts of one request in all, of all kinds together."""

BASE_S, FACTOR, CAP_S, RETRY_AFTER_CAP_S = 2.0, 2.0, 60.0, 300.0

_RETRY_DELAY = re.compile(r'"retryDelay"\s*:\s*"(\d{1,9}(?:\.\d{1,9})?)s"')
_SERVER = frozenset({408, 409, 425, 500, 502, 503, 504, *range(520, 530)})
_AUTH = frozenset({401, 402, 403})
_GATEWAY = 407
_OVERFLOW = re.compile(
    r"context.?length|context.?window|maximum context|too many (?:input )?tokens|prompt is too long|input is too long"
    r"|max(?:imum)?[ _]?(?:prompt|input)[ _](?:tokens|length)|reduce the length",
    re.IGNORECASE,
)
_POLICY = re.compile(
    r"content.?(?:filter|policy|management)|usage.?polic|safety.?(?:system|filter|polic)|moderation|responsible.?ai"
    r"|flagged|blocked by",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"\binsufficient_quota\b")
_OVERLOAD = re.compile(r"overloaded|server_error|internal_error|unavailable|timeout", re.IGNORECASE)
_RATE = re.compile(r"rate.?limit|too many requests|quota.{0,200}(?:minute|second)", re.IGNORECASE)


@dataclass(frozen=True)
class Fault:
    """One failed attempt."""

    kind: Kind
    status: int | None
    body: str
    retry_after_s: float | None = None
    slow: bool = False
    """The answer did not come, or did not end, in time."""


def classify_status(status: int, body: str) -> Kind:
    """Kind of an HTTP error."""
    if status == 429:
        return "auth" if _NO_CREDIT.search(body) else "rate_limit"
    if status in _SERVER:
        return "server"
    if status in (400, 413, 422) and _OVERFLOW.search(body):
        return "context_overflow"
    if status in (400, 403) and _POLICY.search(body):
        return "content_policy"
    if status < 400:
        # A page of maintenance or a log-in page of the network: no answer of the endpoint, and often gone soon.
        return "malformed"
    if status == _GATEWAY:
        return "network"
    return "auth" if status in _AUTH else "server" if status >= 500 else "bad_request"


def classify_error_object(error: Any) -> Kind:
    """Kind of an ``error`` object inside a reply with status 200."""
    text = json.dumps(error, default=str)
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, str) and code.isdigit():
        code = int(code)
    if isinstance(code, int) and 400 <= code < 600:
        return classify_status(code, text)
    for pattern, kind in _BY_WORDS:
        if pattern.search(text):
            return kind
    return "malformed"


def retry_after(headers: Mapping[str, str], clock: float | None = None, body: str = "") -> float | None:
    """Seconds that the server asks to wait, capped; None when it does not ask or asks nonsense.

    In milliseconds, in seconds, as a date, or as Gemini does in the body (``"retryDelay": "26s"``).
    """
    delay = _RETRY_DELAY.search(body)
    found = [
        _seconds(headers.get("retry-after-ms"), 0.001),
        _seconds(headers.get("retry-after"), 1.0),
        _until(headers.get("retry-after"), time.time() if clock is None else clock),
        _seconds(delay[1], 1.0) if delay else None,
    ]
    return next((min(seconds, RETRY_AFTER_CAP_S) for seconds in found if seconds is not None), None)


def _seconds(text: str | None, unit_s: float) -> float | None:
    try:
        seconds = float(text or "") * unit_s
    except ValueError:
        return None
    return seconds if 0 < seconds < float("inf") else None


def _until(date: str | None, clock: float) -> float | None:
    try:
        seconds = email.utils.parsedate_to_datetime(date or "").timestamp() - clock
    except (ValueError, OverflowError):
        return None
    return seconds if seconds > 0 else None


def pause(fault: Fault, attempt: int, random: float) -> float:
    """Seconds to wait after the ``attempt``-th failure (1-based): what the server asks, else full jitter."""
    if fault.retry_after_s is not None:
        return fault.retry_after_s
    return random * min(CAP_S, BASE_S * FACTOR ** (attempt - 1))


_BY_WORDS: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (_OVERFLOW, "context_overflow"),
    (_RATE, "rate_limit"),
    (_OVERLOAD, "server"),
    (_POLICY, "content_policy"),
)


_SURROGATES = re.compile(r"[\ud800-\udfff]")


NO_USAGE = Tokens()


class FaultyReply(Exception):
    """A reply with status 200 that is no reply; ``spent`` is what it says it cost."""

    def __init__(self, fault: Fault, spent: Tokens = NO_USAGE) -> None:
        self.fault = fault
        self.spent = spent
        super().__init__(fault.body)


@dataclass(frozen=True)
class Completion:
    """The parts of a body that are used. ``usage`` is None when the provider does not tell, or tells nonsense."""

    message: Mapping[str, Any]
    finish_reason: str
    usage: Tokens | None
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
    return FaultyReply(Fault(kind, 200, json.dumps(body)), _usage(body) or Tokens())


def _usage(body: Mapping[str, Any]) -> Tokens | None:
    usage = body.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    cached = _detail(usage, "prompt_tokens_details", "cached_tokens")
    reasoning = _detail(usage, "completion_tokens_details", "reasoning_tokens")
    return Tokens(prompt=prompt, cached=cached, completion=completion, reasoning=reasoning)


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
