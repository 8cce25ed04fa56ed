"""`snakemake rescore` and `rejudge`: what would change, without changing it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from campaigns import AGENTS, TASK, copy_of_finished, executed, planned, stamps
from conftest import Project

SCORED = ("submission.json", "audit.json", "detail_report.json", "judge.json", "score.json", "case_views.json")


@pytest.fixture
def finished(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return copy_of_finished(tmp_path_factory, tmp_path / "automedbench")


def edit(project: Project, name: str, pattern: str, replacement: str) -> None:
    path = project.path / name
    text, count = re.subn(pattern, replacement, path.read_text())
    assert count == 1, f"{name}: {pattern}"
    path.write_text(text)


def test_same_code_changes_nothing(finished: Project) -> None:
    """Scorer and judge are deterministic; nothing of a run is touched."""
    before = stamps(finished, *SCORED, "run.json")
    for target, scorer in (("rescore", "score_metrics"), ("rejudge", "score_judge")):
        done = finished.snakemake(target)
        assert done.returncode == 0, done.stdout[-3000:]
        assert f"{target}: none of {len(AGENTS)} runs would change." in done.stdout
        assert Counter(executed(finished)) == {scorer: len(AGENTS), "score_run": len(AGENTS), "rescore": 1}
        logs = finished.path / f"logs/{target}_{scorer.removeprefix('score_')}"
        assert len(list(logs.rglob("*-r1.log"))) == len(AGENTS)
    assert stamps(finished, *SCORED, "run.json") == before
    left = [path.name for path in (finished.path / "results/demo/again").rglob("*") if path.is_file()]
    assert sorted(left) == ["rejudge.csv", "rescore.csv"]
    assert planned(finished) == []


def test_another_scorer(finished: Project) -> None:
    """S4 of the completion rate alone: a run with missing outputs loses what the flag gave it."""
    edit(
        finished,
        "src/automedbench/scoring/run.py",
        r"0\.5 \* submission\.completion_rate \+ 0\.5 \* submission\.submitted_valid",
        "submission.completion_rate",
    )
    before = stamps(finished, *SCORED)
    done = finished.snakemake("rescore")
    assert done.returncode == 0, done.stdout[-3000:]
    row = next(line for line in done.stdout.splitlines() if line.startswith(f"hasty/{TASK}/lite/r1 "))
    # hasty leaves a quarter of the cases out, all others valid: S4 0.5·0.75 + 0.5 = 0.875 → 0.75.
    assert row.split()[1:5] == ["·", "·", "·", "-12.50"]  # task, S2, S3, S4
    assert "snakemake --forcerun score_metrics" in done.stdout
    assert stamps(finished, *SCORED) == before


def test_nothing_scored_yet(finished: Project) -> None:
    for score in (finished.path / "results/demo/runs").rglob("score.json"):
        score.unlink()
    done = finished.snakemake("rescore")
    assert done.returncode != 0
    assert "no run has a score yet" in done.stdout


def test_edited_code_is_looked_at_again(finished: Project) -> None:
    """What an interrupted call left behind is of other code: it is made again, not shown.

    A plan of 200 characters is no longer asked for but 100 000: nobody has one.
    """
    left = finished.path / f"results/demo/again/rejudge/careful/{TASK}/lite/r1/score.json"
    assert finished.snakemake(left.relative_to(finished.path).as_posix(), "--notemp").returncode == 0
    assert left.is_file()
    edit(finished, "src/automedbench/judge/rules.py", r"MIN_PLAN_CHARS = 200", "MIN_PLAN_CHARS = 100_000")
    done = finished.snakemake("rejudge")
    assert done.returncode == 0, done.stdout[-3000:]
    row = next(line for line in done.stdout.splitlines() if line.startswith(f"careful/{TASK}/lite/r1 "))
    # careful earns s1a, s1b and s1c in the lite tier, where the other three are credited: S1 1 → 0.5.
    assert row.split()[1] == "-50.00"
    assert "snakemake --forcerun score_judge" in done.stdout
    assert not left.exists()
