"""`make demo` as it is shipped: five agents on seven tracks, compared with the leaderboard that the demo promises."""

from __future__ import annotations

import csv
import os
import re
import shlex
from pathlib import Path

import pytest
from campaigns import AGENTS, FinishedDemo, at, commands, fresh_copy
from conftest import ROOT

from automedbench.tracks import track_names

EXPECTED = ROOT / "demo" / "expected_leaderboard.csv"
SCORES = ("overall", "agentic", "task_score", "s1", "s2", "s3", "s4", "s5")
# Scores are stated to 0.001. A library of another version may move a method's output (a filter, a random forest of
# rounding), not its rank.
TOLERANCE = 0.005


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> FinishedDemo:
    if said := os.environ.get("AMB_DEMO"):  # `make demo` ended well in this very clone, and printed this
        return FinishedDemo(ROOT, 0, Path(said).read_text())
    place = tmp_path_factory.mktemp("full") / "automedbench"
    done = fresh_copy(place, narrow=False).run("make", "demo", timeout=1500)
    return FinishedDemo(place, done.returncode, done.stdout)


def rows(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    with open(path, newline="") as stream:
        return {(row["agent"], row["task"]): row for row in csv.DictReader(stream)}


def test_the_whole_demo_ends_well(demo: FinishedDemo) -> None:
    """Exit 0; a few lines about progress, no traceback, no warning; the page's place last."""
    assert demo.code == 0, demo.output[-4000:]
    assert not re.search(r"Traceback|Warning|\bERROR\b|deprecat", demo.output)
    # pip names every package that an index of the machine's own, set for it by file://, does not hold.
    said = [line for line in demo.output.splitlines() if not line.startswith("WARNING: Location 'file:")]
    assert len(said) < 100
    assert "results/demo/leaderboard/index.html" in demo.output.splitlines()[-1]


def test_the_leaderboard_is_the_promised_one(demo: FinishedDemo) -> None:
    """Every run's scores and medal, and that each track is there with all five agents."""
    expected, found = rows(EXPECTED), rows(demo.path / "results/demo/leaderboard/runs.csv")
    assert set(found) == set(expected)
    assert {row["track"] for row in found.values()} == set(track_names())
    assert len(found) == len(AGENTS) * len(track_names())
    different = [
        (key, name, row[name], found[key][name])
        for key, row in expected.items()
        for name in SCORES
        if abs(float(row[name]) - float(found[key][name])) > TOLERANCE
    ]
    assert different == []
    assert {key: (row["outcome"], row["medal"]) for key, row in found.items()} == {
        key: (row["outcome"], row["medal"]) for key, row in expected.items()
    }


def test_better_work_ranks_higher(demo: FinishedDemo) -> None:
    """On every track careful is ahead of silent and hasty, both of crasher, and the cheater has nothing.

    Of the two in the middle the one whose outputs are the same for all cases may be the last.
    """
    found = rows(demo.path / "results/demo/leaderboard/runs.csv")
    for task in {task for _, task in found}:
        overall = {agent: float(found[agent, task]["overall"]) for agent in AGENTS}
        middle = overall["silent"], overall["hasty"]
        assert overall["careful"] > max(middle) >= min(middle) > overall["crasher"] > overall["cheater"] == 0


def test_task_scores_are_verified_by_other_libraries(demo: FinishedDemo) -> None:
    """The careful agent's score on every track again, by the printed command with ``--verify``."""
    project = at(demo.path)
    printed = project.snakemake("-n", "-p", "--forcerun", "score_metrics", "--", "leaderboard").stdout
    lines = [line for line in commands(printed) if "score_metrics.py" in line and "/careful/" in line]
    assert len(lines) == len(track_names())
    for line in lines:
        words = shlex.split(line.removesuffix(" --log"))
        place = words.index("--run") + 1  # beside the run: a newer report would repeat its score
        words[place] = words[place].replace("/runs/", "/again/verified/")
        done = project.run(*words, "--verify")
        assert done.returncode == 0, (line, done.stdout)
        assert "verified with" in done.stdout


def test_a_second_call_does_nothing(demo: FinishedDemo) -> None:
    pages = list((demo.path / "results/demo").rglob("score.json"))
    before = {path: path.stat().st_mtime_ns for path in pages}
    assert len(before) == len(AGENTS) * len(track_names())
    assert at(demo.path).run("make", "demo").returncode == 0
    assert {path: path.stat().st_mtime_ns for path in pages} == before
