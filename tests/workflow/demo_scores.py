"""What the demo's agents earn, whatever they run on."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

RANKING = ["careful", "silent", "hasty", "crasher", "cheater"]

# × 100, from the table of demo/README.md; agentic = (25·S1 + 15·S2 + 35·S3 + 15·S4 + 10·S5) / 100.
COLUMNS = ("overall", "agentic", "task_score", "s1", "s2", "s3", "s4", "s5")
DEMO_SCORES = {
    "careful": [89.6, 96.25, 82.9, 100, 75, 100, 100, 100],
    "silent": [50.9, 56.25, 45.6, 100, 75, 0, 100, 50],
    "hasty": [28.4, 38.1, 18.6, 50, 50, 0, 87.5, 50],
    "crasher": [6.2, 12.5, 0, 50, 0, 0, 0, 0],
    "cheater": [0, 0, 0, 0, 0, 0, 0, 0],
}


def read_table(results: Path, name: str) -> list[dict[str, str]]:
    """Rows of a leaderboard table, in the order of the file."""
    with open(results / "leaderboard" / f"{name}.csv", newline="") as stream:
        return list(csv.DictReader(stream))


def shown_scores(results: Path) -> dict[str, list[float]]:
    """Scores of each agent of the leaderboard × 100, best agent first."""
    return {row["agent"]: [float(row[name]) * 100 for name in COLUMNS] for row in read_table(results, "overall")}


def assert_demo_scores(results: Path) -> None:
    """The leaderboard ranks the demo's agents as its README says, with the scores that stand there."""
    shown = shown_scores(results)
    assert list(shown) == RANKING
    for row in read_table(results, "runs"):
        if row["agent"] == "careful":
            assert min(float(row[name]) for name in ("held_s", "cpu_s", "peak_memory_mib")) > 0, row["task"]
    for agent, scores in shown.items():
        assert scores == pytest.approx(DEMO_SCORES[agent], abs=0.051), agent


def exact_scores(results: Path) -> list[dict[str, Any]]:
    """Every run's numbers, without what differs from machine to machine: times, isolation and its evidence."""
    differing = {"wall_s", "exec_s", "api_s", "sandbox", "network", "image_sha256", "sources", "n_findings"}
    differing |= {"held_s", "cpu_s", "peak_memory_mib", "nodes", "signature"}
    rows = read_table(results, "runs")
    return sorted(
        ({name: value for name, value in row.items() if name not in differing} for row in rows),
        key=lambda row: row["agent"],
    )
