"""Corroboration and strikes (docs/specification.md, 9.5 and 9.6)."""

from __future__ import annotations

import pytest

from automedbench.base.records import Finding
from automedbench.sandbox.evidence.policy import Strikes, raise_corroborated


def finding(
    source: str,
    confidence: str = "medium",
    *,
    call: int | None = 1,
    category: str = "training",
    severity: str = "notice",
) -> Finding:
    return Finding.model_validate(
        {
            "id": f"{source}-{call}-{confidence}",
            "rule": f"{source}.rule",
            "source": source,
            "category": category,
            "confidence": confidence,
            "severity": severity,
            "turn": call,
            "call": call,
            "evidence": "e",
        }
    )


STATIC, HOOK = finding("static"), finding("runtime")
# (findings of a run, severity of each afterwards)
CASES = {
    "nothing": ([], ""),
    "one-source": ([HOOK], "n"),
    "one-source-twice": ([HOOK, HOOK], "nn"),
    "two-sources": ([STATIC, HOOK], "ww"),
    "other-call": ([STATIC, finding("runtime", call=2)], "nn"),
    "other-category": ([STATIC, finding("runtime", category="network")], "nn"),
    "low-does-not-agree": ([finding("static", "low"), HOOK], "nn"),
    "low-is-never-raised": ([finding("static", "low"), HOOK, finding("telemetry")], "nww"),
    "high-agrees": ([finding("tripwire", "high", severity="warning"), HOOK], "ww"),
    "without-a-call": ([finding("static", call=None), finding("runtime", call=None)], "nn"),
}


@pytest.mark.parametrize(("findings", "severities"), CASES.values(), ids=CASES)
def test_corroborated(findings: list[Finding], severities: str) -> None:
    assert "".join(item.severity[0] for item in raise_corroborated(findings)) == severities
    assert raise_corroborated(raise_corroborated(findings)) == raise_corroborated(findings)


def test_raised_evidence_is_no_strike() -> None:
    strikes = Strikes(0)
    for call in range(1, 6):
        assert strikes.add([finding("static", call=call), finding("runtime", call=call)]) == "warned"
    assert (strikes.count, strikes.disqualified) == (0, False)


@pytest.mark.parametrize("parts", [1, 2, 3], ids=str)
def test_in_parts_or_at_once_the_end_is_the_same(parts: int) -> None:
    findings = [
        STATIC,
        HOOK,
        finding("tripwire", "high", severity="warning"),
        finding("static", "high", severity="warning"),
    ]
    findings += [finding("runtime", "high", call=2, severity="warning")]
    strikes = Strikes(1)
    size = -(-len(findings) // parts)
    verdicts = [strikes.add(findings[at : at + size]) for at in range(0, len(findings), size)]
    assert verdicts[-1] == "disqualified"
    assert strikes.count == 2
