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

from automedbench.base.endpoint.usage import Billed, chat_usage, reported_cost, service_tier
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
    r"context.?(?:length|window|size)|maximum context|too many (?:input )?tokens|prompt is too long|input is too long"
    r"|max(?:imum)?[ _]?(?:prompt|input)[ _](?:tokens|length)|reduce the length|context.?limit|input token count"
    r"|request_too_large",
    re.IGNORECASE,
)
_POLICY = re.compile(
    r"content.?(?:filter|policy|management)|usage.?polic|safety.?(?:system|filter|polic)|moderation|responsible.?ai"
    r"|flagged|blocked by",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"\binsufficient_quota\b")
_OVERLOAD = re.compile(
    r"overloaded|server_error|internal.?(?:server.?)?error|api_error|unavailable|timeout", re.IGNORECASE
)
_RATE = re.compile(r"rate.?limit|too many requests|resource.?exhausted|quota.{0,200}(?:minute|second)", re.IGNORECASE)
_KEY = re.compile(r"api.?key.?(?:not.?valid|invalid)|(?:authentication|permission|billing)_error", re.IGNORECASE)
_INVALID = re.compile(r"invalid_request|invalid_argument|not_found_error|invalid_prompt", re.IGNORECASE)


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
    if status == 400 and _KEY.search(body):
        return "auth"
    if status < 400:
        # A page of maintenance or a log-in page of the network: no answer of the endpoint, and often gone soon.
        return "malformed"
    if status == _GATEWAY:
        return "network"
    return "auth" if status in _AUTH else "server" if status >= 500 else "bad_request"


def speaks_of_key(text: str) -> bool:
    """The text has words by which an error that tells of a bad key is known."""
    return _KEY.search(text) is not None


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
    (_KEY, "auth"),
    (_INVALID, "bad_request"),
)


_SURROGATES = re.compile(r"[\ud800-\udfff]")


NO_USAGE = Tokens()


class FaultyReply(Exception):
    """A reply with status 200 that is no reply; ``spent`` is what it says it used, ``tier`` what it was served as."""

    def __init__(self, fault: Fault, spent: Tokens = NO_USAGE, tier: str = "") -> None:
        self.fault = fault
        self.spent = (Billed(spent, tier),) if spent.total else ()
        super().__init__(fault.body)


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
        body = cleaned(json.loads(data))
    except (ValueError, RecursionError):
        shown = data.decode("utf-8", "replace") or "an empty body"
        raise FaultyReply(Fault("malformed", 200, shown)) from None
    if not isinstance(body, dict):
        raise FaultyReply(Fault("malformed", 200, json.dumps(body)))
    return body


def read_completion(data: bytes) -> Completion:
    """The completion in a body with status 200; raises FaultyReply. Unknown fields are ignored."""
    return completion_of(read_json(data))


def completion_of(body: Mapping[str, Any]) -> Completion:
    """The completion in a JSON object; raises FaultyReply."""
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise no_reply(body, chat_usage(body.get("usage")))
    finish, model = choice.get("finish_reason"), body.get("model")
    usage = body.get("usage")
    return Completion(
        message, str(finish or "stop"), chat_usage(usage), str(model or ""), reported_cost(usage), service_tier(body)
    )


def clean_text(text: str) -> str:
    """``text`` without lone surrogates, which no UTF-8 file or request can hold."""
    return _SURROGATES.sub("\ufffd", text)


def cleaned(value: Any) -> Any:
    """A JSON value without lone surrogates and with null for numbers that JSON has no form for."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(name): cleaned(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [cleaned(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def no_reply(body: Mapping[str, Any], spent: Tokens | None = None) -> FaultyReply:
    """What is wrong with a JSON object that holds no reply: its ``error``, or its form."""
    kind = classify_error_object(body["error"]) if body.get("error") else "malformed"
    return FaultyReply(Fault(kind, 200, json.dumps(body)), spent or NO_USAGE, service_tier(body))
