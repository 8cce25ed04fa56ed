"""Runs that were not made or scored as the campaign asks now are never ranked silently."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import (
    ROOT,
    make_campaign,
    make_current,
    make_run,
    make_score,
    write_campaign,
    written_campaign,
)

from automedbench.base.cards import load_card
from automedbench.base.files import read_record, write_record
from automedbench.base.records import CaseEntry, Manifest, ScoreRecord
from automedbench.campaign.agents import load_agents
from automedbench.campaign.load import Campaign
from automedbench.leaderboard.build import LeaderboardFile
from automedbench.leaderboard.conditions import BY_NAME, find_outdated
from automedbench.planning.conditions import requested_conditions
from automedbench.planning.versions import image_version

RUN = make_run()
AGENTS = {"agents": {"agent": {"provider": "baseline", "baseline": "empty", "trusted": True}}}
CONFIG: dict[str, Any] = {"cards": ["config/tasks"]}
APPTAINER: dict[str, Any] = {"sandbox": {"backend": "apptainer", "network": "sealed"}}


@pytest.fixture
def agents_file(tmp_path: Path) -> str:
    path = tmp_path / "agents.yaml"
    path.write_text(yaml.safe_dump(AGENTS))
    return str(path)


def campaign_of(folder: Path, agents_file: str, **settings: Any) -> Campaign:
    """The campaign of the one task."""
    card = ROOT / "config/tasks/detection/bccd-det-task.yaml"
    record = make_campaign(folder, card, agents_file=agents_file, **settings)
    return Campaign(record.settings, {RUN.task: record.card(RUN.task)}, {}, load_agents(Path(agents_file)), [RUN])


def with_recipe(score: ScoreRecord, **changes: Any) -> ScoreRecord:
    return score.model_copy(update={"recipe": score.recipe.model_copy(update=changes)})


def current_score(agents_file: str, repeat: int = 1) -> ScoreRecord:
    """The score of the agent in this file, by the code and the card of now."""
    card = load_card(ROOT / "config/tasks/detection/bccd-det-task.yaml")
    digest = load_agents(Path(agents_file))["agent"].for_task(card).digest()
    return with_recipe(make_current(make_score(make_run(repeat=repeat))), agent_digest=digest)


def isolated(score: ScoreRecord, **changes: Any) -> ScoreRecord:
    enforced = score.enforced.model_copy(update={"backend": "apptainer", "network": "sealed"} | changes)
    return score.model_copy(update={"enforced": enforced})


OTHER: dict[str, Any] = {
    "preset": lambda score: with_recipe(score, preset="lite-v0.1"),
    "sandbox": lambda score: isolated(score, network="open"),
    "judge": lambda score: with_recipe(score, judge="heuristic-0"),
    "task version": lambda score: with_recipe(score, task_version=99),
    "cases": lambda score: with_recipe(score, cases_sha256="1" * 64),
    "rubric version": lambda score: with_recipe(score, rubric_version=0),
    "track version": lambda score: with_recipe(score, track_version=0),
    "agent": lambda score: with_recipe(score, agent_digest="other"),
    "draw": lambda score: with_recipe(score, draw=7),
    "image": lambda score: with_recipe(score, image_recipe="other"),
    "metric settings": lambda score: with_recipe(score, settings={"iou_threshold": 0.1}),
    "audit policy": lambda score: with_recipe(score, policy_version=0),
    "score version": lambda score: with_recipe(score, score_version=0),
    "effects": lambda score: with_recipe(score, effects="shown_only"),
}


def test_every_condition_is_compared(tmp_path: Path, agents_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is changed after the other, and it alone is named; an image without a record is not compared."""
    monkeypatch.chdir(ROOT)
    campaign = campaign_of(tmp_path, agents_file, **APPTAINER)
    case = CaseEntry(id="one", inputs={}, private={})
    manifest = Manifest(task=RUN.task, task_version=1, track="detection", dataset="bccd", sampling="all", cases=[case])
    write_record(Path(campaign.config.data.manifests, f"{RUN.task}.json"), manifest)
    told = {"image_recipe": image_version(campaign, "research"), "cases_sha256": manifest.cases_sha256}
    current = with_recipe(isolated(current_score(agents_file)), **told)
    asked = requested_conditions(campaign, RUN)
    assert set(asked) == set(OTHER) <= set(BY_NAME)
    assert find_outdated(current, asked) == ()
    for name, change in OTHER.items():
        assert find_outdated(change(current), asked) == (name,)
    assert find_outdated(with_recipe(current, image_recipe=None), asked) == ()


def test_panel_is_named_as_its_records_name_it(
    tmp_path: Path, agents_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    judge = {"kind": "llm", "panel": ["a", "b"], "repeats": 2}
    assert requested_conditions(campaign_of(tmp_path, agents_file, judge=judge), RUN)["judge"] == "llm (panel:a+b*2)"


def test_what_is_not_there_is_not_compared(tmp_path: Path, agents_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results from elsewhere: no staged data, an agent and a task that nobody here knows."""
    monkeypatch.chdir(ROOT)
    asked = requested_conditions(campaign_of(tmp_path, agents_file), make_run("theirs", "their-task"))
    assert set(asked) == {
        "preset",
        "sandbox",
        "judge",
        "draw",
        "audit policy",
        "score version",
        "effects",
    }


def build(
    tmp_path: Path, agents_file: str, scores: list[ScoreRecord], *options: str
) -> subprocess.CompletedProcess[str]:
    """Run the step on these scores."""
    plan = write_campaign(tmp_path, scores)
    file = written_campaign(tmp_path, results=str(plan.parent), agents_file=agents_file, **CONFIG)
    command = [sys.executable, "scripts/build_leaderboard.py", "--campaign", str(file), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_outdated_run_is_named_everywhere(tmp_path: Path, agents_file: str) -> None:
    """On the console, in tables and on the page; the exit code is not 0, and the last words are what to do."""
    current = [current_score(agents_file, repeat) for repeat in (1, 2, 3)]
    done = build(tmp_path, agents_file, [isolated(current[0]), *current[1:]])
    assert done.returncode == 1
    assert "outdated sandbox" in done.stdout
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("1 of 3 runs were not made or scored as this campaign asks now.")
    assert f"sandbox (1); first: {current[0].run.path}" in lines[1]
    assert "`snakemake`" in lines[2]
    folder = tmp_path / "leaderboard"
    for name, expected in (("overall", ["sandbox"]), ("runs", ["sandbox", "", ""])):
        with open(folder / f"{name}.csv", newline="") as stream:
            assert [row["outdated"] for row in csv.DictReader(stream)] == expected
    assert read_record(folder / "leaderboard.json", LeaderboardFile).outdated == {current[0].run.path: ["sandbox"]}
    page = (folder / "index.html").read_text()
    assert 'id="outdated"' in page and "other sandbox" in page


def test_only_scores_are_outdated(tmp_path: Path, agents_file: str) -> None:
    """Nobody is sent to repeat paid runs for that; a provisional leaderboard says the same."""
    done = build(tmp_path, agents_file, [with_recipe(current_score(agents_file), rubric_version=0)], "--partial")
    assert done.returncode == 1
    assert "snakemake --forcerun collect_submission" in done.stderr.splitlines()[2]


def test_nothing_is_outdated(tmp_path: Path, agents_file: str) -> None:
    done = build(tmp_path, agents_file, [current_score(agents_file)])
    assert (done.returncode, done.stderr) == (0, "")
    assert 'id="outdated"' not in (tmp_path / "leaderboard/index.html").read_text()
