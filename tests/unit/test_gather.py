"""What a leaderboard takes from the results: planned scores of one kind of judge, and why others are missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories import make_plan, make_recipe, make_run, make_score, write_campaign

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import read_record
from automedbench.base.records import JudgeKind, RunId, ScoreRecord
from automedbench.leaderboard.plan import Plan, gather_scores

FIRST, SECOND, THIRD = (make_run(repeat=number) for number in (1, 2, 3))
BY_MODEL = make_recipe(judge_kind="llm", judge="judge-x")


def plan_of_kind(runs: list[RunId], kind: JudgeKind) -> Plan:
    """A campaign of these runs with this kind of judge."""
    return make_plan(runs).model_copy(update={"judge_kind": kind})


def results(folder: Path, scores: list[ScoreRecord]) -> Path:
    """Finished runs."""
    write_campaign(folder, scores)
    return folder


def test_nothing_planned_nothing_gathered(tmp_path: Path) -> None:
    found = gather_scores(tmp_path, plan_of_kind([], "heuristic"), partial=False)
    assert found == ([], {})


def test_scores_come_in_the_order_of_the_plan(tmp_path: Path) -> None:
    folder = results(tmp_path, [make_score(FIRST), make_score(SECOND)])
    found = gather_scores(folder, plan_of_kind([SECOND, FIRST], "heuristic"), partial=False)
    assert [score.run for score in found.scores] == [SECOND, FIRST]


def test_missing_run_stops_or_is_missing(tmp_path: Path) -> None:
    folder = results(tmp_path, [make_score(FIRST)])
    plan = plan_of_kind([FIRST, SECOND], "heuristic")
    with pytest.raises(InfrastructureError, match=r"1 of 2 planned runs have no score: agent/bccd-det-task/lite/r2"):
        gather_scores(folder, plan, partial=False)
    found = gather_scores(folder, plan, partial=True)
    assert ([score.run for score in found.scores], found.unreadable) == ([FIRST], {})


@pytest.mark.parametrize(
    ("kind", "kept", "lost", "reason"),
    [
        pytest.param("heuristic", FIRST, SECOND, "judged by judge-x (llm)", id="a language model's among heuristic"),
        pytest.param("llm", SECOND, FIRST, "judged by heuristic-1 (heuristic)", id="a heuristic one among a model's"),
    ],
)
def test_kinds_of_judges_are_never_mixed(
    kind: JudgeKind, kept: RunId, lost: RunId, reason: str, tmp_path: Path
) -> None:
    folder = results(tmp_path, [make_score(FIRST), make_score(SECOND, recipe=BY_MODEL)])
    plan = plan_of_kind([FIRST, SECOND], kind)
    with pytest.raises(InfrastructureError, match="never mixed") as stopped:
        gather_scores(folder, plan, partial=False)
    assert len(str(stopped.value).splitlines()) <= 3
    found = gather_scores(folder, plan, partial=True)
    assert [score.run for score in found.scores] == [kept]
    assert list(found.unreadable) == [f"runs/{lost.path}/score.json"]
    assert reason in next(iter(found.unreadable.values()))


def test_two_judges_of_one_kind_are_read(tmp_path: Path) -> None:
    """They are marked as mixed in the rows; only kinds are kept apart."""
    other = make_recipe(judge_kind="llm", judge="judge-y")
    folder = results(tmp_path, [make_score(FIRST, recipe=BY_MODEL), make_score(SECOND, recipe=other)])
    assert len(gather_scores(folder, plan_of_kind([FIRST, SECOND], "llm"), partial=False).scores) == 2


def test_score_of_another_run_does_not_count(tmp_path: Path) -> None:
    folder = results(tmp_path, [make_score(FIRST), make_score(SECOND)])
    (folder / "runs" / FIRST.path / "score.json").replace(folder / "runs" / SECOND.path / "score.json")
    found = gather_scores(folder, plan_of_kind([FIRST, SECOND], "heuristic"), partial=True)
    assert found.scores == []
    assert list(found.unreadable) == [f"runs/{SECOND.path}/score.json"]


def test_plan_without_a_kind_is_heuristic(tmp_path: Path) -> None:
    """Plans written before judges had kinds."""
    (tmp_path / "plan.json").write_text('{"schema": "automedbench/plan/1", "agents": {}, "runs": []}')
    assert read_record(tmp_path / "plan.json", Plan).judge_kind == "heuristic"


def test_first_three_missing_runs_are_named(tmp_path: Path) -> None:
    plan = plan_of_kind([make_run(repeat=number) for number in range(1, 6)], "heuristic")
    with pytest.raises(InfrastructureError) as caught:
        gather_scores(tmp_path, plan, partial=False)
    message = str(caught.value)
    assert message.startswith("5 of 5 planned runs") and "/r3, …" in message and "/r4" not in message
    assert len(message.splitlines()) <= 3


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="half-written"),
        pytest.param('{"schema": "automedbench/score/99"}', id="other version"),
    ],
)
def test_broken_score_counts_as_missing(content: str, tmp_path: Path) -> None:
    folder = results(tmp_path, [make_score(FIRST), make_score(SECOND)])
    (folder / "runs" / SECOND.path / "score.json").write_text(content)
    plan = plan_of_kind([FIRST, SECOND], "heuristic")
    found = gather_scores(folder, plan, partial=True)
    assert [score.run for score in found.scores] == [FIRST]
    assert list(found.unreadable) == [f"runs/{SECOND.path}/score.json"]
    with pytest.raises(InfrastructureError, match=r"score\.json"):
        gather_scores(folder, plan, partial=False)
