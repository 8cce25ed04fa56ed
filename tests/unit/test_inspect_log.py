"""Runs as logs of Inspect AI. Its own reader is asked too, where it is installed (it is no dependency)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from export_inspect import eval_log, log_name, main
from exported_runs import LoggedRun
from factories import make_call, make_conversation, make_run, make_run_record, make_score, make_scores, run_records

from automedbench.base.errors import ConfigError
from automedbench.base.files import write_json, write_record
from automedbench.base.records import Message, Totals


def logged(repeat: int = 1, task: float = 0.5, **changes: object) -> LoggedRun:
    score = make_score(make_run(repeat=repeat), make_scores(task=task), **changes)
    calls = [make_call(2, stdout="one\n"), make_call(3, code="1/0", status="error", exit_code=1, stderr="ZeroDivision")]
    return LoggedRun(score, make_run_record(score), make_conversation(score, calls))


def test_repeats_are_epochs_of_one_sample() -> None:
    """Task halves 0.25 and 0.75 with a perfect agentic half: overall 0.625 and 0.875, mean 0.75."""
    log = eval_log([logged(2, task=0.75), logged(1, task=0.25)])
    assert [(sample["id"], sample["epoch"]) for sample in log["samples"]] == [
        ("bccd-det-task", 1),
        ("bccd-det-task", 2),
    ]
    assert [sample["scores"]["overall"]["value"] for sample in log["samples"]] == [0.625, 0.875]
    means = {score["name"]: score["metrics"]["mean"]["value"] for score in log["results"]["scores"]}
    assert (means["overall"], means["task"], means["agentic"]) == (0.75, 0.5, 1.0)
    assert log["eval"]["config"] == {"epochs": 2}


def test_code_calls_hang_on_what_the_agent_said() -> None:
    """Brief (system and user), then per turn the note with its call and what the call printed."""
    messages = eval_log([logged()])["samples"][0]["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    note, result = messages[4], messages[5]
    assert note["tool_calls"][0]["arguments"] == {"language": "python", "code": "1/0"}
    assert result["tool_call_id"] == note["tool_calls"][0]["id"]
    assert "ZeroDivision" in result["content"]
    assert "exit code 1" in result["content"]


def test_answers_of_other_tools_are_kept() -> None:
    run = logged()
    told = Message(turn=4, role="tool", content="Submission refused: 3 files are missing.")
    said = Message(turn=4, role="assistant", content="I submit.")
    conversation = run.conversation.model_copy(update={"messages": [*run.conversation.messages, said, told]})
    messages = eval_log([LoggedRun(run.score, run.run, conversation)])["samples"][0]["messages"]
    assert [message["content"] for message in messages[-2:]] == [said.content, told.content]


def test_what_a_call_printed_comes_once() -> None:
    """The harness answers in JSON, where line ends are escaped; an answer with a warning says more and is kept."""
    run = logged()
    calls = [make_call(2, stdout="one\ntwo\n")]
    plain = {"status": "ok", "exit_code": 0, "stdout": "one\ntwo\n", "stderr": "", "elapsed_s": 0.1}
    for answer, kept in ((plain, 0), (plain | {"warning": "Do not do that."}, 1)):
        told = Message(turn=2, role="tool", content=json.dumps(answer))
        conversation = run.conversation.model_copy(update={"messages": [told], "calls": calls})
        messages = eval_log([LoggedRun(run.score, run.run, conversation)])["samples"][0]["messages"]
        assert [message["role"] for message in messages] == ["assistant", "tool", *["user"] * kept]


@pytest.mark.parametrize(("outcome", "limit"), [("time_limit", "time"), ("token_limit", "token"), ("submitted", None)])
def test_limits(outcome: str, limit: str | None) -> None:
    sample = eval_log([logged(outcome=outcome)])["samples"][0]
    assert (sample.get("limit") or {}).get("type") == limit


def test_usage_is_that_of_all_repeats() -> None:
    """Two runs of 90 000 + 10 000 tokens (factories)."""
    log = eval_log([logged(1), logged(2)])
    assert log["stats"]["model_usage"]["model-1"]["total_tokens"] == 200_000
    assert logged().score.totals != Totals()


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two agents, one of them with two repeats."""
    for agent, repeat in (("a", 1), ("a", 2), ("b", 1)):
        score = make_score(make_run(agent, repeat=repeat))
        for name, record in run_records(score).items():
            write_record(tmp_path / "results/runs" / score.run.path / name, record)
    return tmp_path / "results"


def test_command(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--results", str(results), "--out", str(tmp_path / "logs")])
    names = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert [name.rpartition("_")[0] for name in names] == [
        "2026-01-02T03-04-05+00-00_bccd-det-task-lite-a",
        "2026-01-02T03-04-05+00-00_bccd-det-task-lite-b",
    ]
    assert len(json.loads((tmp_path / "logs" / names[0]).read_text())["samples"]) == 2
    assert "2 logs of 3 runs" in capsys.readouterr().out


def test_nothing_to_export(results: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no scored run"):
        main(["--results", str(results), "--agent", "c", "--out", str(tmp_path / "logs")])


def test_inspect_reads_it(tmp_path: Path) -> None:
    """By hand with inspect-ai 0.3.285: read and listed, scores and messages as above."""
    inspect_log = pytest.importorskip("inspect_ai.log", reason="inspect-ai is no dependency")
    runs = [logged(1), logged(2, outcome="time_limit")]
    write_json(tmp_path / log_name(runs), eval_log(runs))
    found = inspect_log.read_eval_log(str(tmp_path / log_name(runs)))
    assert [sample.scores["overall"].value for sample in found.samples] == [0.75, 0.75]
    assert len(inspect_log.list_eval_logs(str(tmp_path))) == 1
