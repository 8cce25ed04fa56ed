"""Transcripts from elsewhere: read, kept in our form, never believed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from toys import detection

from automedbench.agent.models.imported import import_transcript, read_transcript
from automedbench.base.errors import ConfigError
from automedbench.base.files import read_record, write_record
from automedbench.base.records import CaseEntry, Conversation, Manifest, RunId, RunRecord
from automedbench.commands import import_transcript as command

RUN = RunId(agent="elsewhere", task=detection.CARD.id, tier="lite", repeat=1)
MANIFEST = Manifest(
    task=detection.CARD.id,
    task_version=1,
    track="detection",
    dataset="bccd",
    sampling="all",
    cases=[CaseEntry(id="bccd_0001", inputs={}, private={})],
)


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": f"id-{name}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "You are an agent."},
    {"role": "user", "content": [{"type": "text", "text": "Begin."}]},
    {"role": "assistant", "content": None, "tool_calls": [call("bash", command="ls /data")]},
    {"role": "tool", "tool_call_id": "id-bash", "content": '{"exit_code": 1, "stdout": "", "stderr": "no such file"}'},
    {"role": "assistant", "content": "Done.", "tool_calls": [call("submit_results", summary="nothing found")]},
]
UPSTREAM = {
    "agent": "a",
    "model": "gpt-x",
    "task": "t",
    "tier": "lite",
    "system_prompt": "You are an agent.",
    "messages": MESSAGES[1:],
    "code_executions": [
        {"turn": 1, "language": "bash", "code": "ls", "exit_code": 0, "exec_time_s": 0.5, "stdout_preview": "x"},
        {"turn": 2, "language": "python", "exit_code": 1, "exec_time_s": 1},
    ],
    "trace_events": [],
}


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "foreign"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(json.dumps(MESSAGES), id="list"),
        pytest.param(json.dumps({"messages": MESSAGES}), id="object"),
        pytest.param("\n".join(map(json.dumps, MESSAGES)) + "\n\n", id="one per line"),
        pytest.param("\ufeff" + json.dumps(MESSAGES), id="byte order mark"),
    ],
)
def test_messages_become_a_run(tmp_path: Path, content: str) -> None:
    record = import_transcript(written(tmp_path, content), RUN, detection.CARD, MANIFEST, tmp_path / "run")
    conversation = read_record(tmp_path / "run/conversation.json", Conversation)
    assert [(message.turn, message.role) for message in conversation.messages] == [
        (0, "system"),
        (0, "user"),
        (1, "assistant"),
        (1, "tool"),
        (2, "assistant"),
    ]
    (bash,) = conversation.calls
    assert (bash.code, bash.exit_code, bash.status, bash.stdout) == ("ls /data", 1, "error", "no such file")
    assert (record.provider, record.outcome, record.totals.turns) == ("imported", "submitted", 2)
    assert (tmp_path / "run/brief.md").read_text() == "You are an agent.\n\nBegin."
    assert len((tmp_path / "run/log/transcript.jsonl").read_text().splitlines()) == 5
    assert list((tmp_path / "run/workspace").iterdir()) == []


def test_the_public_benchmarks_conversation(tmp_path: Path) -> None:
    """Its system prompt is a message, its list of executions are the calls; one without code is kept as such."""
    record = import_transcript(written(tmp_path, json.dumps(UPSTREAM)), RUN, detection.CARD, MANIFEST, tmp_path / "run")
    conversation = read_record(tmp_path / "run/conversation.json", Conversation)
    assert conversation.messages[0].content == "You are an agent."
    assert [(each.turn, each.language, each.code, each.status) for each in conversation.calls] == [
        (1, "bash", "ls", "ok"),
        (2, "python", "", "error"),
    ]
    assert (record.model, record.totals.n_exec, record.totals.n_exec_failed) == ("gpt-x", 2, 1)


def test_a_workspace_is_copied_with_its_plan(tmp_path: Path) -> None:
    left = tmp_path / "left"
    (left / "plan").mkdir(parents=True)
    (left / "plan/plan.md").write_text("# Plan")
    (left / "link").symlink_to("/etc/passwd")
    path = written(tmp_path, json.dumps(MESSAGES[:3]))
    record = import_transcript(path, RUN, detection.CARD, MANIFEST, tmp_path / "run", left)
    conversation = read_record(tmp_path / "run/conversation.json", Conversation)
    assert conversation.plan == "# Plan"
    assert conversation.workspace_files == {"plan/plan.md": 6}
    assert (tmp_path / "run/workspace/link").is_symlink()
    assert (record.outcome, record.submitted) == ("stopped", False)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"hello", id="text"),
        pytest.param(b"\xff\xfe", id="not UTF-8"),
        pytest.param(b"[]", id="no message"),
        pytest.param(b"{}", id="empty object"),
        pytest.param(b"[1, 2]", id="numbers"),
        pytest.param(b'[{"role": "king", "content": ""}]', id="unknown role"),
        pytest.param(b'[{"role": "user", "content": 5}]', id="content is a number"),
        pytest.param(b'{"messages": {"a": 1}}', id="messages is an object"),
        pytest.param(b"[" * 100_000, id="100 000 levels"),
    ],
)
def test_what_is_no_transcript_is_said(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ConfigError, match="foreign"):
        read_transcript(written(tmp_path, content))


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(MESSAGES))
    with pytest.raises(ConfigError, match="exists already"):
        import_transcript(path, RUN, detection.CARD, MANIFEST, tmp_path)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], root: Path) -> None:
    write_record(tmp_path / "manifest.json", MANIFEST)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    words = [
        *(str(written(tmp_path, json.dumps(MESSAGES))), "--agent", "human", "--tier", "lite"),
        *("--card", str(root / "config/tasks/detection/bccd-det-task.yaml")),
        *("--manifest", str(tmp_path / "manifest.json"), "--into", str(tmp_path / "run")),
    ]
    command.main(parser.parse_args(words))
    assert "2 turns, 1 code call, submitted; provider: imported" in capsys.readouterr().out
    assert read_record(tmp_path / "run/run.json", RunRecord).run.agent == "human"
