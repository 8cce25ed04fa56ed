"""Real runs of agents with and without a method, which plan, try, check and submit alike: what they earn."""

from __future__ import annotations

from pathlib import Path

from campaigns import fresh_copy
from effects.campaign import read_verdicts, write_campaign
from effects.kinds import load_kinds

FEW = (
    ("reports", "template filled by sed"),
    ("reports", "program in base64"),
    ("reports", "rules on the picture"),
    ("detection", "box in the middle"),
    ("detection", "white cells only"),
)
"""Three without a method, two with one; all kinds run in benchmarks/bench_gamers.py."""


def test_without_a_method_half_of_the_agentic_half_is_lost(tmp_path: Path) -> None:
    """S1 and S2 are left, S4 of at most 0.3, half of S5: 0.25 + 0.15 + 0.045 + 0.05 = 0.495. Honest: nothing."""
    kinds = [kind for kind in load_kinds() if (kind.task, kind.name) in FEW]
    assert len(kinds) == len(FEW)
    config = write_campaign(tmp_path / "campaign", kinds)
    project = fresh_copy(tmp_path / "automedbench")
    done = project.run("snakemake", "--executor", "automedbench", "--cores", "2", "--configfile", str(config))
    assert done.returncode == 0, done.stdout[-3000:]
    verdicts = read_verdicts(tmp_path / "campaign", kinds)
    assert {verdict.kind.id: verdict.wrong for verdict in verdicts if verdict.wrong} == {}
    assert min(each.score.scores.agentic for each in verdicts if each.kind.group == "honest") > 0.75
