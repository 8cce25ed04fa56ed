"""Rate limits that a provider reports: requests and tokens per minute in headers, or in the body of a refusal."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import Field

from automedbench.base.records import Model

_REQUESTS = ("x-ratelimit-{}-requests", "anthropic-ratelimit-requests-{}", "x-ratelimit-{}-req-minute")
_TOKENS = (
    *("x-ratelimit-{}-tokens", "anthropic-ratelimit-tokens-{}", "anthropic-ratelimit-input-tokens-{}"),
    "x-ratelimit-{}-tokens-minute",
)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MINUTE_S = 60.0


class RateLimits(Model):
    """Limits of an endpoint, for all drivers together; None where there is none, or none is known."""

    requests_per_minute: float | None = Field(None, gt=0, description="requests per minute, of all runs together")
    tokens_per_minute: float | None = Field(None, gt=0, description="tokens per minute, of all runs together")

    def tighten(self, other: RateLimits) -> RateLimits:
        """The stricter of both."""
        return RateLimits(
            requests_per_minute=_least(self.requests_per_minute, other.requests_per_minute),
            tokens_per_minute=_least(self.tokens_per_minute, other.tokens_per_minute),
        )

    def override(self, other: RateLimits) -> RateLimits:
        """``other``, and where it has no limit, this one's."""
        return self.model_copy(update=other.model_dump(exclude_none=True))

    def is_close(self, other: RateLimits) -> bool:
        """Equal within a hundredth: providers round."""
        pairs = zip(self.model_dump().values(), other.model_dump().values(), strict=True)
        return all(a == b or (a and b and math.isclose(a, b, rel_tol=0.01)) for a, b in pairs)


class ReportedLimits(NamedTuple):
    """Limits that an answer reports; ``pressing``: one is half used; ``cached_free``: cached tokens do not count."""

    rate: RateLimits = RateLimits()
    pressing: bool = False
    cached_free: bool = False


def read_rate_limits(headers: Mapping[str, str], body: str = "") -> ReportedLimits:
    """Limits in the headers of an answer, or in the ``body`` of a refusal; what is not understood is ignored."""
    requests, requests_left = _limit(headers, _REQUESTS)
    tokens, tokens_left = _limit(headers, _TOKENS)
    quotas = RateLimits() if requests or tokens else _quotas(body)
    pressing = any(left is not None and left <= 0.5 for left in (requests_left, tokens_left))
    rate = RateLimits(requests_per_minute=requests, tokens_per_minute=tokens).tighten(quotas)
    return ReportedLimits(rate, pressing, any(name.startswith("anthropic-ratelimit-") for name in headers))


def _limit(headers: Mapping[str, str], names: tuple[str, ...]) -> tuple[float | None, float | None]:
    """A limit per minute, and the share of it that is left; None for what is not reported."""
    for name in names:
        limit = _number(headers.get(name.format("limit")))
        if not limit:
            continue
        left = _number(headers.get(name.format("remaining")))
        reset = duration_s(headers.get(name.format("reset")))
        share = None if left is None else min(left / limit, 1.0)
        if left is not None and reset is not None and reset > MINUTE_S:
            # A limit per day or hour. It is full again after ``reset``: all of it, or what is missing, bit by bit.
            limit = max(left, limit - left) * MINUTE_S / reset
        return limit or None, share
    return None, None


def duration_s(text: str | None) -> float | None:
    """Seconds of a plain number or a duration like ``6m0s`` and ``120ms``; None for anything else, as a moment."""
    if not text:
        return None
    if _DURATION.sub("", text):
        return _number(text)
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(text))


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _quotas(body: str) -> RateLimits:
    """Limits per minute in a refusal of Gemini's."""
    found: dict[str, float] = {}
    try:
        violations = list(_violations(json.loads(body))) if "quotaId" in body else []
    except (ValueError, RecursionError):
        violations = []
    for violation in violations:
        name, value = str(violation["quotaId"]), _number(str(violation.get("quotaValue")))
        if "PerMinute" in name and value:
            kind = "tokens_per_minute" if "Token" in name else "requests_per_minute"
            found[kind] = min(value, found.get(kind, value))
    return RateLimits(**found)


def _violations(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and "quotaId" in value:
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _violations(part)


def _least(one: float | None, other: float | None) -> float | None:
    return min((value for value in (one, other) if value is not None), default=None)
