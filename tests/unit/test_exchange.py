"""Runs as trajectories (ATIF), as evaluations for trainers, and the gate that compares two of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from factories import make_call, make_conversation, make_run, make_run_record, make_score, make_scores, run_records

from automedbench.base.errors import ConfigError
from automedbench.base.files import write_json, write_record
from automedbench.base.records import Message
from automedbench.commands import main
from automedbench.commands._export import LoggedRun
from automedbench.commands.export_atif import trajectory
from automedbench.commands.export_evaluator import Evaluation
from automedbench.commands.promote import compare
from automedbench.leaderboard.plan import Plan, PlannedAgent


def logged(*messages: Message) -> LoggedRun:
    score = make_score(make_run())
    calls = [make_call(2, stdout="one\n"), make_call(3, code="1/0", status="error", exit_code=1, stderr="ZeroDivision")]
    conversation = make_conversation(score, calls)
    told = {"messages": [*conversation.messages, *messages]}
    return LoggedRun(score, make_run_record(score), conversation.model_copy(update=told))


def test_trajectory_keeps_rules_of_the_format() -> None:
    """Of ATIF-v1.6 (Harbor's RFC 0001): ids from 1 without a gap, an observation names calls of its own step only,
    tool calls and thoughts are the agent's alone, no key beside those of the format."""
    thought = Message(turn=4, role="assistant", content="I submit.", reasoning="It is done.")
    found = trajectory(logged(thought, Message(turn=4, role="tool", content="Refused: 3 files are missing.")))
    steps = found["steps"]
    assert [step["step_id"] for step in steps] == list(range(1, len(steps) + 1)) == [1, 2, 3, 4, 5]
    assert [step["source"] for step in steps] == ["system", "user", "agent", "agent", "agent"]
    assert steps[3]["tool_calls"][0]["arguments"] == {"language": "python", "code": "1/0"}
    assert [result["source_call_id"] for result in steps[3]["observation"]["results"]] == [
        call["tool_call_id"] for call in steps[3]["tool_calls"]
    ]
    assert steps[4]["observation"]["results"] == [{"content": "Refused: 3 files are missing."}]
    assert steps[4]["reasoning_content"] == "It is done."
    named = {"step_id", "source", "message", "reasoning_content", "tool_calls", "observation", "extra"}
    assert set().union(*steps) == named
    assert found["final_metrics"]["total_prompt_tokens"] == 90_000
    assert found["extra"]["scores"]["overall"] == 0.75


def test_trajectory_of_a_run_that_said_nothing() -> None:
    run = logged()
    empty = run.conversation.model_copy(update={"messages": [], "calls": []})
    assert len(trajectory(run._replace(conversation=empty))["steps"]) == 1


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two agents with two repeats; the second repeat of ``b`` is planned and has no score."""
    plan = Plan(
        agents={name: PlannedAgent(provider="replay", model="m") for name in "ab"},
        runs=[make_run(agent, repeat=repeat) for agent in "ab" for repeat in (1, 2)],
    )
    write_record(tmp_path / "results/plan.json", plan)
    for run in plan.runs[:3]:
        score = make_score(run, make_scores(task=0.5))
        for name, record in run_records(score).items():
            write_record(tmp_path / "results/runs" / run.path / name, record)
    return tmp_path / "results"


def test_commands(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["export-atif", "--results", str(results), "--out", str(tmp_path / "atif")])
    assert len(list((tmp_path / "atif").glob("*.json"))) == 3
    main(["export-evaluator", "b", "--results", str(results), "--out", str(tmp_path / "b.json")])
    assert "2 cells, 1 valid" in capsys.readouterr().out
    first, second = json.loads((tmp_path / "b.json").read_text())["cells"]
    assert (first["task_score"], first["s3"], first["valid"]) == (0.5, 1.0, True)
    assert (second["task_score"], second["s3"], second["valid"]) == (None, None, False)
    with pytest.raises(ConfigError, match="is no agent"):
        main(["export-evaluator", "c", "--results", str(results)])


def evaluated(agent: str, **changed: float | bool | None) -> Evaluation:
    """Two tracks of two cells with 0.8 everywhere; ``changed`` is so in the first track's cells."""
    common = {"tier": "lite", "task_score": 0.8, "s1": 0.8, "s2": 0.8, "s3": 0.8, "s4": 0.8, "s5": 0.8, "valid": True}
    cells = [
        {"track": track, "task_id": f"{track}-task", "repeat": repeat, **common, **(changed if track == "vqa" else {})}
        for track in ("vqa", "detection")
        for repeat in (1, 2)
    ]
    return Evaluation.model_validate({"schema_version": 1, "agent": agent, "cells": cells})


@pytest.mark.parametrize(
    ("changed", "refused_by"),
    [
        ({}, []),
        # Overall is half stages, half task: a task score 0.04 lower in half of the cells is 0.02 in its mean and
        # 0.01 in Overall, both at or below the limits.
        ({"task_score": 0.76}, []),
        ({"task_score": 0.73}, ["overall", "task_score"]),
        # S3 weighs 0.35 × ½: 0.08 lower in half of the cells is 0.04 in its mean, 0.007 in Overall.
        ({"s3": 0.72}, ["s3"]),
        # S1 has no limit of its own; 0.08 of its ¼ × ½ in half of the cells is 0.005.
        ({"s1": 0.72}, []),
        ({"task_score": 0.6, "s1": 1.0, "s2": 1.0, "s3": 1.0, "s4": 1.0, "s5": 1.0}, ["task_score"]),
        ({"task_score": 0.69, "s1": 0.8}, ["overall", "task_score", "overall of vqa"]),
        ({"valid": False}, ["valid"]),
    ],
)
def test_gate(changed: dict[str, float | bool | None], refused_by: list[str]) -> None:
    """Limits: Overall 0.01, task 0.03, S3 to S5 0.03, Overall of a track 0.05."""
    found = compare(evaluated("old"), evaluated("new", **changed))
    assert [one.what for one in found if one.reason] == refused_by


def test_gate_leaves_out_what_was_not_judged() -> None:
    """Of four cells one has no S3: its mean and that of Overall are over three; a track without any cannot be told."""
    base, new = evaluated("old"), evaluated("new")
    one = [new.cells[0].model_copy(update={"s3": None}), *new.cells[1:]]
    pairs = {each.what: each.pairs for each in compare(base, new.model_copy(update={"cells": one}))}
    assert (pairs["s3"], pairs["overall"], pairs["task_score"], pairs["overall of vqa"]) == (3, 3, 4, 1)
    with pytest.raises(ConfigError, match="overall of vqa: no cell in which both have it"):
        compare(base, evaluated("new", s3=None))


def test_gate_compares_the_same_cells_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, other = evaluated("old"), evaluated("new", task_score=0.1)
    less = other.model_copy(update={"cells": other.cells[1:]})
    with pytest.raises(ConfigError, match="1 cell in one of the two only, first vqa/vqa-task/lite/1"):
        compare(base, less)
    for name, each in (("base", base), ("new", other)):
        write_json(tmp_path / f"{name}.json", each.model_dump(mode="json"))
    with pytest.raises(SystemExit) as stopped:
        main(["promote", str(tmp_path / "base.json"), str(tmp_path / "new.json")])
    assert stopped.value.code == 3
    assert "new: refused, 3 reasons" in capsys.readouterr().out
