"""Faults of endpoints: their kinds, what failed attempts cost, how often and after which pause they are repeated.

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

from automedbench.base.endpoint.usage import Billed, service_tier
from automedbench.base.records import Tokens

FaultKind = Literal[
    "rate_limit", "server", "network", "malformed", "context_overflow", "content_policy", "bad_request", "auth"
]

TRANSIENT: Mapping[FaultKind, int] = {"server": 8, "network": 8, "malformed": 4}
"""Kinds worth repeating → attempts in all; ``rate_limit`` is the pacer's affair."""

MAX_ATTEMPTS = max(TRANSIENT.values())
"""Attempts of one request in all, of all kinds together."""
SLOW = 4
"""So many attempts an attempt counts for that took the whole time-out."""

BASE_S, FACTOR, CAP_S, RETRY_AFTER_CAP_S = 2.0, 2.0, 60.0, 300.0

_RETRY_DELAY = re.compile(r'"retryDelay"\s*:\s*"(\d{1,9}(?:\.\d{1,9})?)s"')
_SERVER = frozenset({408, 409, 425, 500, 502, 503, 504, *range(520, 530)})
_AUTH = frozenset({401, 402, 403})
_GATEWAY = 407
_OVERFLOW = re.compile(
    r"context.?(?:length|window|size)|maximum context|too many (?:input )?tokens|prompt is too long|input is too long"
    r"|max(?:imum)?[ _]?(?:prompt|input|model)[ _](?:tokens|length)|reduce the length|context.?limit|input token count"
    r"|request_too_large|n_ctx|`inputs` (?:tokens \+|must have less)|(?:prompt token count|input tokens) .{0,20}exceed"
    r"|model token limit",
    re.IGNORECASE,
)
_POLICY = re.compile(
    r"content.?(?:filter|policy|management)|usage.?polic|safety.?(?:system|filter|polic)|moderation|responsible.?ai"
    r"|flagged|blocked by",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(
    r"\binsufficient_quota\b|exceeded_current_quota|insufficient balance|budget.?(?:has been )?exceeded",
    re.IGNORECASE,
)
_OVERLOAD = re.compile(
    r"overloaded|server_error|internal.?(?:server.?)?error|api_error|unavailable|timeout", re.IGNORECASE
)
_RATE = re.compile(r"rate.?limit|too many requests|resource.?exhausted|quota.{0,200}(?:minute|second)", re.IGNORECASE)
_KEY = re.compile(
    r"api.?key.?(?:not.?valid|invalid)|(?:authentication|permission|billing)_error|no_db_connection|credit balance",
    re.IGNORECASE,
)
_INVALID = re.compile(r"invalid_request|invalid_argument|not_found_error|invalid_prompt", re.IGNORECASE)


@dataclass(frozen=True)
class Fault:
    """One failed attempt."""

    kind: FaultKind
    status: int | None
    body: str
    retry_after_s: float | None = None
    slow: bool = False
    """The answer did not come, or did not end, in time."""
    sent: bool = True
    """The endpoint may have received the request."""

    @property
    def is_doubtful(self) -> bool:
        """True where the endpoint may have charged for more than it has reported: it broke off, or wrote no reply."""
        broke_off = self.kind == "network" and self.status in (None, 200) and self.sent
        return broke_off or (self.kind == "malformed" and self.status == 200 and self.body.lstrip()[:1] == "{")


def classify_status(status: int, body: str) -> FaultKind:
    """Kind of an HTTP error."""
    if status == 429:
        return "auth" if _NO_CREDIT.search(body) else "rate_limit"
    if status in (400, 413, 422, 500) and _OVERFLOW.search(body):
        return "context_overflow"
    if status in _SERVER:
        return "server"
    if status in (400, 403) and _POLICY.search(body):
        return "content_policy"
    if status == 400 and (_KEY.search(body) or _NO_CREDIT.search(body)):
        return "auth"
    if status < 400:
        # A page of maintenance or a log-in page of the network: no answer of the endpoint, and often gone soon.
        return "malformed"
    if status == _GATEWAY:
        return "network"
    return "auth" if status in _AUTH else "server" if status >= 500 else "bad_request"


def classify_error_object(error: Any) -> FaultKind:
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


def parse_retry_after(headers: Mapping[str, str], clock: float | None = None, body: str = "") -> float | None:
    """Seconds that the server asks to wait, capped; None when it does not ask or asks nonsense.

    In milliseconds, in seconds, as a date, or as Gemini does in the body (``"retryDelay": "26s"``).
    """
    delay = _RETRY_DELAY.search(body)
    found = [
        _seconds(headers.get("retry-after-ms"), 0.001),
        _seconds(headers.get("retry-after"), 1.0),
        _seconds_until(headers.get("retry-after"), time.time() if clock is None else clock),
        _seconds(delay[1], 1.0) if delay else None,
    ]
    return next((min(seconds, RETRY_AFTER_CAP_S) for seconds in found if seconds is not None), None)


def _seconds(text: str | None, unit_s: float) -> float | None:
    try:
        seconds = float(text or "") * unit_s
    except ValueError:
        return None
    return seconds if 0 < seconds < float("inf") else None


def _seconds_until(date: str | None, clock: float) -> float | None:
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


_BY_WORDS: tuple[tuple[re.Pattern[str], FaultKind], ...] = (
    (_OVERFLOW, "context_overflow"),
    (_NO_CREDIT, "auth"),
    (_RATE, "rate_limit"),
    (_OVERLOAD, "server"),
    (_POLICY, "content_policy"),
    (_KEY, "auth"),
    (_INVALID, "bad_request"),
)


NO_USAGE = Tokens()


class FaultyReply(Exception):
    """A reply with status 200 that is no reply; ``spent`` is what it says it used, ``tier`` what it was served as."""

    def __init__(self, fault: Fault, spent: Tokens = NO_USAGE, tier: str = "") -> None:
        self.fault = fault
        self.spent = (Billed(spent, tier),) if spent.total else ()
        super().__init__(fault.body)


def make_reply_fault(body: Mapping[str, Any], spent: Tokens | None = None) -> FaultyReply:
    """The fault of a JSON object that holds no reply: its ``error``, or its form."""
    kind = classify_error_object(body["error"]) if body.get("error") else "malformed"
    return FaultyReply(Fault(kind, 200, json.dumps(body)), spent or NO_USAGE, service_tier(body))


def stream_fault(error: Any, spent: Tokens | None, tier: str = "") -> FaultyReply:
    """The fault of a stream that holds ``error`` (an object or text), or that ended early (None).

    ``spent``: usage that it had reported by then, ``tier``: what it was served as.
    """
    if error is None:
        fault = Fault("network", 200, "the stream ended before the reply was complete")
    else:
        fault = Fault(classify_error_object(error), 200, json.dumps({"error": error}))
    return FaultyReply(fault, spent or Tokens(), tier)
