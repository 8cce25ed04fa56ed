"""Runs as trajectories (ATIF), and the recipe for trainers of agents."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from export_atif import main, trajectory
from exported_runs import LoggedRun
from factories import (
    ROOT,
    make_call,
    make_conversation,
    make_run,
    make_run_record,
    make_score,
    make_scores,
    run_records,
)

from automedbench.base.files import write_record
from automedbench.base.records import Message
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
    main(["--results", str(results), "--out", str(tmp_path / "atif")])
    assert len(list((tmp_path / "atif").glob("*.json"))) == 3


def test_recipe_for_training(results: Path) -> None:
    """The gate of docs/bundles.md as it stands there: Overall 0.75 for 0.75, then a task score lower by 0.1."""
    recipe = re.search(r"```python\n(.+?)```", (ROOT / "docs/bundles.md").read_text("utf-8"), re.DOTALL)
    assert recipe is not None
    command = [sys.executable, "-c", recipe[1], "a", "b"]
    done = subprocess.run(command, cwd=results.parent, capture_output=True, text=True, check=True)
    assert done.stdout == "1 runs in common; fell by {'overall': 0.0, 'task': 0.0}\n"
    path = results / "runs" / make_run("b", repeat=1).path / "score.json"
    score = json.loads(path.read_text())
    score["scores"]["task"] -= 0.1
    path.write_text(json.dumps(score))
    assert subprocess.run(command, cwd=results.parent, capture_output=True, check=False).returncode == 1
