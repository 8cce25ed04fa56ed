"""Sweeps and strikes (docs/specification.md, 9.5 and 9.6)."""

from __future__ import annotations

import pytest

from automedbench.base.records import Finding
from automedbench.sandbox.evidence.policy import SWEEP, Strikes, raise_repeated


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


def sweep(call: int) -> Finding:
    return finding("tripwire", call=call).model_copy(update={"rule": SWEEP})


# (calls of sweeps, severity of each afterwards): the first call that sweeps is told, each later one is a strike.
SWEEPS = {"none": ([], ""), "once": ([3], "n"), "twice in a call": ([3, 3], "nn"), "again": ([3, 3, 5, 7], "nnww")}


@pytest.mark.parametrize(("calls", "severities"), SWEEPS.values(), ids=SWEEPS)
def test_a_sweep_is_a_strike_when_it_is_repeated(calls: list[int], severities: str) -> None:
    raised = raise_repeated([sweep(call) for call in calls])
    assert "".join(item.severity[0] for item in raised) == severities
    assert raise_repeated(raised) == raised
    strikes = Strikes(9)
    verdicts = [strikes.add([sweep(call)]) for call in calls]
    assert "".join("w" if verdict == "warned" else "n" for verdict in verdicts) == severities
    assert strikes.count == len({call for call in calls if call != 3})


def test_a_medium_warning_is_no_strike() -> None:
    strikes = Strikes(0)
    for call in range(1, 6):
        assert strikes.add([finding("trace", severity="warning", call=call)]) == "warned"
    assert (strikes.count, strikes.disqualified) == (0, False)


@pytest.mark.parametrize("parts", [1, 2, 3], ids=str)
def test_in_parts_or_at_once_the_end_is_the_same(parts: int) -> None:
    findings = [
        sweep(1),
        finding("runtime"),
        finding("tripwire", "high", severity="warning"),
        sweep(2),
        finding("runtime", "high", call=2, severity="warning"),
    ]
    strikes = Strikes(1)
    size = -(-len(findings) // parts)
    verdicts = [strikes.add(findings[at : at + size]) for at in range(0, len(findings), size)]
    assert verdicts[-1] == "disqualified"
    assert strikes.count == 2
