"""One campaign on several clusters: the folders of runs are copied together, and one leaderboard is built of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from campaigns import AGENTS, copy_of_finished, executed, fresh_copy, run_folder, stamps
from conftest import Project

PARTIAL, WHOLE = ("partial",), ("leaderboard", "--forcerun", "build_leaderboard")


@pytest.fixture
def elsewhere(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The demo's campaign, finished; stands for the clusters on which its parts were run."""
    return copy_of_finished(tmp_path_factory, tmp_path / "elsewhere")


def test_copied_runs_are_ranked_and_nothing_is_repeated(elsewhere: Project, tmp_path: Path) -> None:
    """In a clone without data, logs and records of Snakemake; runs that arrive after a provisional leaderboard too."""
    here = fresh_copy(tmp_path / "automedbench")
    for agents, target in ((AGENTS[:2], PARTIAL), (AGENTS[2:], WHOLE)):
        for agent in agents:
            shutil.copytree(run_folder(elsewhere, agent), run_folder(here, agent), symlinks=True)
        before = stamps(here, "run.json", "score.json")
        done = here.snakemake(*target)
        assert done.returncode == 0, done.stdout[-3000:]
        assert set(executed(here)) <= {"build_leaderboard", "plan_campaign"}
        assert stamps(here, "run.json", "score.json") == before
    ranks = "results/demo/leaderboard/overall.csv"
    assert (here.path / ranks).read_text() == (elsewhere.path / ranks).read_text()
