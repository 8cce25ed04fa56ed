"""Policy for failed requests to an endpoint: what went wrong, how often and how long to wait for a better answer.

Pure functions over status codes and bodies. Policy: docs/specification.md, 8.5.
"""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal[
    "rate_limit", "server", "network", "malformed", "context_overflow", "content_policy", "bad_request", "auth"
]

TRANSIENT: Mapping[Kind, int] = {"rate_limit": 8, "server": 8, "network": 8, "malformed": 4}
"""Kinds worth repeating → attempts in all."""

MAX_ATTEMPTS = max(TRANSIENT.values())
"""Attempts of one request in all, of all kinds together."""

BASE_S, FACTOR, CAP_S, RETRY_AFTER_CAP_S = 2.0, 2.0, 60.0, 300.0

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
_OVERLOAD = re.compile(r"overloaded|server_error|internal_error|unavailable|timeout", re.IGNORECASE)
_RATE = re.compile(r"rate.?limit|too many requests|quota.*(?:minute|second)", re.IGNORECASE)


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
        return "rate_limit"
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


def retry_after(headers: Mapping[str, str], clock: float | None = None) -> float | None:
    """Seconds that the server asks to wait, capped; None when it does not ask or asks nonsense."""
    value = headers.get("retry-after")
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            moment = email.utils.parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = moment.timestamp() - (time.time() if clock is None else clock)
    return min(seconds, RETRY_AFTER_CAP_S) if 0 < seconds < float("inf") else None


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
