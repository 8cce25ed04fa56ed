"""docs/tasks.md, followed to the letter: its files are written, its commands run, its task is scored."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from campaigns import STEP, follow, fresh_copy
from conftest import ROOT, Project

from automedbench.base.files import read_record
from automedbench.base.records import Manifest, ScoreRecord

TEXT = (ROOT / "docs/tasks.md").read_text()
TASK = "malaria-cell-cls-task"


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, list[str]]:
    """A copy of the repository after every step of the text, and what each command printed."""
    project = fresh_copy(tmp_path_factory.mktemp("reader") / "automedbench", narrow=False)
    return project, follow(project, TEXT, {})


def test_every_block_is_a_step_or_an_illustration() -> None:
    """Otherwise a step could be left out in silence: only blocks of kind text are not followed."""
    kinds = [(bool(name), kind) for name, kind, _ in STEP.findall(TEXT)]
    assert TEXT.count("```") == 2 * len(kinds)
    assert {kind for named, kind in kinds if not named} <= {"bash", "text"}
    assert sum(named for named, _ in kinds) == 4


def test_the_task_is_shown_staged_and_scored(followed: tuple[Project, list[str]]) -> None:
    project, (_, shown, staged, _) = followed
    assert "Malaria in Blood Cells" in shown
    assert "predictions.csv" in shown
    assert "cell_0001" in staged
    manifest = read_record(project.path / f"data/manifests/{TASK}.json", Manifest)
    assert manifest.case_ids == [f"cell_{number:04d}" for number in range(1, 25)]
    scores = {
        agent: read_record(project.path / f"results/runs/{agent}/{TASK}/lite/r1/score.json", ScoreRecord)
        for agent in ("constant", "classical")
    }
    assert {agent: score.scores.task for agent, score in scores.items()} == {"constant": 0.5, "classical": 1.0}
    assert "the task score of `constant` is 0.5" in TEXT
    assert "first label, is always right: 1.0" in " ".join(TEXT.split())
    assert (project.path / "results/leaderboard/index.html").is_file()


def test_a_rehearsal_passes_the_task_over(followed: tuple[Project, list[str]]) -> None:
    """One card is all that a task of one's own needs."""
    project, _ = followed
    campaign = ("--configfile", "my-campaign/campaign.yaml")
    done = project.run("snakemake", "-n", "-p", *campaign, "--config", "fixtures=true", "--", "prepare")
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"Not rehearsed, because there is no made-up data for it: {TASK}" in done.stdout
    assert f"{TASK}.json" not in done.stdout
    assert "data/manifests-fixtures/bccd-det-task.json" in done.stdout


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert links
    assert [link for link in links if "://" not in link and not Path(ROOT / "docs", link).exists()] == []
