"""What scoring again would change: scores beside scores, by hand."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from factories import make_error, make_recipe, make_run, make_score, make_scores

from automedbench.base.errors import MissingDataError
from automedbench.base.files import write_json, write_record
from automedbench.base.records import Effect, RunId
from automedbench.steps.rescore import change_lines, read_changes, to_csv

ALL = (1.0, 1.0, 1.0, 1.0, 1.0)


def put(results: Path, place: str, run: RunId, **changes: Any) -> None:
    write_record(results / place / run.path / "score.json", make_score(run, **changes))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Three runs scored twice: one the same, one with another task score, one with another medal alone."""
    same, better, medal = make_run("a"), make_run("b"), make_run("b", repeat=2)
    for run in (same, better, medal):
        put(tmp_path, "runs", run, scores=make_scores(ALL, task=0.5))
    put(tmp_path, "again/rescore", same, scores=make_scores(ALL, task=0.5))
    put(tmp_path, "again/rescore", better, scores=make_scores(ALL, task=0.6), error_codes=[make_error()])
    put(tmp_path, "again/rescore", medal, scores=make_scores(ALL, task=0.5), medal="good")
    return tmp_path


def test_nothing_scored(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="no run has a score yet"):
        read_changes(tmp_path, "rescore")


def test_changes_largest_first(results: Path) -> None:
    """Task 0.5 → 0.6 is overall 0.75 → 0.80."""
    changes = read_changes(results, "rescore")
    assert list(changes.run) == ["b/bccd-det-task/lite/r1", "a/bccd-det-task/lite/r1", "b/bccd-det-task/lite/r2"]
    assert list(changes.loc[0, ["task", "s4", "s5", "agentic", "overall"]]) == pytest.approx([0.1, 0, 0, 0, 0.05])
    assert list(changes.changed) == [True, False, True]
    assert list(changes.remarks) == ["errors none → E5", "", "medal okay → good"]


def test_lines(results: Path) -> None:
    lines = change_lines(read_changes(results, "rescore"), "rescore")
    assert lines[0] == "rescore: 2 of 3 runs would change (points, after minus before):"
    assert lines[2].split() == [
        "b/bccd-det-task/lite/r1",
        "+10.00",
        *["·"] * 5,
        "+5.00",
        "errors",
        "none",
        "→",
        "E5",
    ]
    means = {line.split()[0]: line.split()[1:] for line in lines[-3:-1]}
    assert means == {"a": ["·"] * 7, "b": ["+5.00", *["·"] * 5, "+2.50"]}
    assert "--forcerun score_metrics" in lines[-1]


def test_no_change(tmp_path: Path) -> None:
    put(tmp_path, "runs", make_run())
    put(tmp_path, "again/rejudge", make_run())
    assert change_lines(read_changes(tmp_path, "rejudge"), "rejudge") == ["rejudge: none of 1 runs would change."]


def test_another_judge_is_said(tmp_path: Path) -> None:
    put(tmp_path, "runs", make_run(), scores=make_scores((0.5, 1, 1, 1, 1)))
    recipe = make_recipe(judge="panel:a+b", judge_kind="llm")
    put(tmp_path, "again/rejudge", make_run(), scores=make_scores((1, 1, 1, 1, 1)), recipe=recipe)
    change = read_changes(tmp_path, "rejudge").loc[0]
    assert (change.s1, change.remarks) == (0.5, "judge heuristic-1 → panel:a+b")


def test_table(results: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(read_changes(results, "rescore"), "rescore"))))
    assert [(row["run"], row["task_before"], row["task_after"]) for row in rows] == [
        ("b/bccd-det-task/lite/r1", "0.5", "0.6"),
        ("a/bccd-det-task/lite/r1", "0.5", "0.5"),
        ("b/bccd-det-task/lite/r2", "0.5", "0.5"),
    ]


def test_long_tables_are_cut(tmp_path: Path) -> None:
    for repeat in range(1, 51):
        put(tmp_path, "runs", make_run(repeat=repeat), scores=make_scores(ALL, task=0.5))
        put(tmp_path, "again/rescore", make_run(repeat=repeat), scores=make_scores(ALL, task=0.4))
    lines = change_lines(read_changes(tmp_path, "rescore"), "rescore")
    assert "… and 10 more" in lines


def test_the_effect_of_an_older_score_is_not_measured(tmp_path: Path) -> None:
    """Its record has keys that there are no more; what a measured effect takes away stands beside it."""
    path = tmp_path / "runs" / make_run().path / "score.json"
    put(tmp_path, "runs", make_run(), effect=Effect(), recipe=make_recipe(effects=None, score_version=4))
    record = json.loads(path.read_text()) | {"inference": "unverified", "inference_reason": "none", "above_prior": 0.1}
    del record["effect"], record["no_effect"], record["stage_limits"], record["recipe"]["effects"]
    write_json(path, record)
    none = Effect(verdict="none", reason="every output is the input")
    put(tmp_path, "again/rescore", make_run(), scores=make_scores((1, 1, 0, 0.3, 0.5)), effect=none)
    change = read_changes(tmp_path, "rescore").loc[0]
    # By hand: 0.35·1 + 0.15·0.7 + 0.10·0.5 = 0.505 of the agentic half.
    assert (change.s3, change.s5, change.agentic) == (-1, -0.5, pytest.approx(-0.505))
    assert change.remarks == "effect not measured → none"


def test_a_judgement_without_a_measured_effect_says_so(tmp_path: Path) -> None:
    put(tmp_path, "runs", make_run(), scores=make_scores((0.5, 1, 1, 1, 1)), effect=Effect())
    put(tmp_path, "again/rejudge", make_run(), effect=Effect())
    lines = change_lines(read_changes(tmp_path, "rejudge"), "rejudge")
    assert lines[-2].startswith("In 1 of 1 runs the effect of the case is not measured")
