"""Rate limits as providers report them: in headers, and in the body of a refusal."""

from __future__ import annotations

import pytest

from automedbench.base.endpoint.faults import parse_retry_after
from automedbench.base.endpoint.rate_headers import RateLimits, ReportedLimits, duration_s, read_rate_limits


def rate(requests: float | None = None, tokens: float | None = None) -> RateLimits:
    return RateLimits(requests_per_minute=requests, tokens_per_minute=tokens)


def xrate(kind: str, limit: float, left: float, reset: str) -> dict[str, str]:
    return {
        f"x-ratelimit-limit-{kind}": f"{limit:g}",
        f"x-ratelimit-remaining-{kind}": f"{left:g}",
        f"x-ratelimit-reset-{kind}": reset,
    }


ANTHROPIC = {
    "anthropic-ratelimit-requests-limit": "1000",
    "anthropic-ratelimit-requests-remaining": "999",
    "anthropic-ratelimit-requests-reset": "2025-08-21T12:40:59Z",
    "anthropic-ratelimit-tokens-limit": "96000",
    "anthropic-ratelimit-tokens-remaining": "40000",
    "anthropic-ratelimit-input-tokens-limit": "80000",
}
# Shapes as the providers' public documentation gives them; per minute by hand.
HEADERS: dict[str, tuple[dict[str, str], ReportedLimits]] = {
    "nothing": ({"content-type": "application/json"}, ReportedLimits()),
    "OpenAI": (
        xrate("requests", 500, 499, "120ms") | xrate("tokens", 30000, 29000, "2s"),
        ReportedLimits(rate(500, 30000)),
    ),
    "half of it used": (xrate("tokens", 30000, 15000, "30s"), ReportedLimits(rate(None, 30000), pressing=True)),
    # 30 of 14,400 a day are missing and back in 180 s; the 14,370 others may go at once, in these three minutes.
    "a limit per day, full": (xrate("requests", 14400, 14370, "3m0s"), ReportedLimits(rate(4790))),
    # All used, full again after a day: 14,400 / 1,440 minutes.
    "a limit per day, used": (xrate("requests", 14400, 0, "24h0m0s"), ReportedLimits(rate(10), pressing=True)),
    "Anthropic": (ANTHROPIC, ReportedLimits(rate(1000, 96000), pressing=True, cached_free=True)),
    "Mistral": (
        {
            "x-ratelimit-limit-tokens-minute": "5000000",
            "x-ratelimit-remaining-tokens-minute": "4999911",
            "x-ratelimit-limit-req-minute": "720",
            "x-ratelimit-remaining-req-minute": "717",
        },
        ReportedLimits(rate(720, 5000000)),
    ),
    "nonsense": (xrate("requests", 0, -1, "soon") | {"x-ratelimit-limit-tokens": "many"}, ReportedLimits()),
    "infinite": ({"x-ratelimit-limit-requests": "inf", "x-ratelimit-limit-tokens": "nan"}, ReportedLimits()),
}
GEMINI = """[{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [
  {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [
    {"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "quotaValue": "10"},
    {"quotaId": "GenerateContentInputTokensPerModelPerMinute-FreeTier", "quotaValue": "250000"},
    {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "250"}]},
  {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]}}]"""


@pytest.mark.parametrize(("headers", "expected"), HEADERS.values(), ids=HEADERS.keys())
def test_headers_are_read(headers: dict[str, str], expected: ReportedLimits) -> None:
    assert read_rate_limits(headers) == expected


def test_a_refusal_of_gemini_is_read() -> None:
    assert read_rate_limits({}, GEMINI).rate == rate(10, 250000)
    assert parse_retry_after({}, body=GEMINI) == 34.5
    for broken in (GEMINI[:200], "quotaId", '{"quotaId": [' * 2000, '{"quotaId": 5}'):
        assert read_rate_limits({}, broken) == ReportedLimits()


def test_what_is_asked_to_wait() -> None:
    """Milliseconds are finer than the seconds beside them; what is told in headers counts before the body."""
    assert parse_retry_after({"retry-after": "2", "retry-after-ms": "1250"}) == 1.25
    assert parse_retry_after({"retry-after": "2"}, body=GEMINI) == 2
    assert (
        parse_retry_after({"retry-after-ms": "nan", "retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, 1767268800) == 30
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("6m0s", 360), ("120ms", 0.12), ("1h2m3.5s", 3723.5), ("7", 7), ("", None), ("2025-08-21T12:40:59Z", None)],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert duration_s(text) == (None if seconds is None else pytest.approx(seconds))
