"""docs/tutorial.md, followed to the letter, on a finished demo of one task."""

from __future__ import annotations

import csv
import re

import pytest
from campaigns import STEP, copy_of_finished, follow
from conftest import ROOT, Project

TEXT = (ROOT / "docs/tutorial.md").read_text()
SCORES = re.compile(r"`(\w+)` (?:has )?(\d+\.\d)(?: for how it worked)? and (\d+\.\d)")
"""Sentences with an agent's agentic and task score."""


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, list[str]]:
    """A clone after every step, and what each block of commands printed."""
    project = copy_of_finished(tmp_path_factory, tmp_path_factory.mktemp("tutorial") / "automedbench")
    # The demo is there; .venv is the tests' own.
    return project, follow(project, TEXT, {"source .venv/bin/activate": "true"})


def test_every_block_is_followed() -> None:
    kinds = [(bool(name), kind) for name, kind, _ in STEP.findall(TEXT)]
    assert TEXT.count("```") == 2 * len(kinds)
    assert {kind for named, kind in kinds if not named} == {"bash"}


def test_what_the_page_says_is_printed(followed: tuple[Project, list[str]]) -> None:
    _, (demo, audit, errors, again, mine, numbers, packed, merged) = followed
    assert "5 scored" in demo
    assert "/data/private" in audit
    assert "outputs on which their case has no effect" in errors
    assert "4 steps to do:" in again  # "Four steps"
    assert "All 6 runs are scored" in mine
    assert "cannot be told apart" in numbers and "Comparable: nothing differs that could change a score" in numbers
    assert "signed by" in packed
    assert "mine: admitted" in merged and "results/merged/leaderboard/index.html" in merged


def test_scores_are_those_of_the_page(followed: tuple[Project, list[str]]) -> None:
    project, _ = followed
    with open(project.path / "results/my-first/leaderboard/overall.csv", newline="") as stream:
        rows = {row["agent"]: row for row in csv.DictReader(stream)}
    told = {agent: (float(agentic), float(task)) for agent, agentic, task in SCORES.findall(TEXT)}
    found = {agent: tuple(100 * float(row[name]) for name in ("agentic", "task_score")) for agent, row in rows.items()}
    assert set(told) == {"steady", "classical"}
    assert {agent: pytest.approx(values, abs=0.051) for agent, values in told.items()} == found


def test_two_campaigns_in_one_clone_stay_apart(followed: tuple[Project, list[str]]) -> None:
    """The demo's call ends with the demo's ranking, though another campaign was ranked last."""
    project, _ = followed
    done = project.run("make", "demo")
    assert re.search(r"^ 1  careful", done.stdout, re.MULTILINE), done.stdout
    assert "steady" not in done.stdout
