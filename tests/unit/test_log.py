"""The log of an attempt: one line per event whatever is in it, keys masked, a full disk reported as ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from automedbench.agent.log import Masker, RunLog
from automedbench.agent.models.model import ChatMessage, ToolCall
from automedbench.base.errors import InfrastructureError

KEY = "sk-canary-0123456789"


def lines(path: Path) -> list[str]:
    return path.read_bytes().decode("ascii").splitlines()


def test_events_are_numbered_and_flushed(tmp_path: Path) -> None:
    with RunLog(tmp_path / "log") as log:
        log.event("run_start")
        log.event("notice", 3, text="x")
        seen = [json.loads(line) for line in lines(tmp_path / "log/events.jsonl")]
    assert [(event["seq"], event["type"], event["turn"]) for event in seen] == [
        (1, "run_start", None),
        (2, "notice", 3),
    ]
    assert all(event["t_s"] >= 0 for event in seen)


def test_appends_to_what_is_there(tmp_path: Path) -> None:
    for _ in range(2):
        with RunLog(tmp_path) as log:
            log.event("x")
    assert [json.loads(line)["seq"] for line in lines(tmp_path / "events.jsonl")] == [1, 2]


def test_a_torn_last_line_is_removed(tmp_path: Path) -> None:
    with RunLog(tmp_path) as log:
        log.event("x")
        log.message(0, ChatMessage("user", "whole"))
    for name in ("events.jsonl", "transcript.jsonl"):
        with open(tmp_path / name, "a") as stream:
            stream.write('{"type": "half')
    with RunLog(tmp_path) as log:
        log.event("y")
    assert [json.loads(line)["type"] for line in lines(tmp_path / "events.jsonl")] == ["x", "y"]
    assert [json.loads(line)["content"] for line in lines(tmp_path / "transcript.jsonl")] == ["whole"]


def test_what_a_crashed_process_wrote_is_not_written_twice(tmp_path: Path) -> None:
    """Two lines came before the last recorded effect, one after it; the rest of what followed it is new."""
    with RunLog(tmp_path) as log:
        for kind in ("a", "b", "after"):
            log.event(kind, 1, n=1)
        log.message(0, ChatMessage("user", "before"))
        log.message(1, ChatMessage("tool", "after"))
    with RunLog(tmp_path) as log:
        log.event("decoy", marker="second")
        log.mute()
        log.event("a", 1, n=1)
        log.message(0, ChatMessage("user", "before"))
        log.unmute(2, 1, 10.0, effects=1)
        for _ in range(2):
            log.event("after", 1, n=1)
            log.message(1, ChatMessage("tool", "after"))
    assert [json.loads(line)["type"] for line in lines(tmp_path / "events.jsonl")] == [
        "a", "b", "after", "decoy", "resume", "after",
    ]  # fmt: skip
    contents = [json.loads(line)["content"] for line in lines(tmp_path / "transcript.jsonl")]
    assert contents == ["before", "after", "after"]


def test_what_differs_is_written(tmp_path: Path) -> None:
    with RunLog(tmp_path) as log:
        log.event("a", 1, n=1)
        log.event("b", 1)
    with RunLog(tmp_path) as log:
        log.unmute(0, 0, 0.0)
        log.event("a", 1, n=2)
        log.event("b", 1)
    assert [json.loads(line)["type"] for line in lines(tmp_path / "events.jsonl")] == ["a", "b", "resume", "a", "b"]


def test_after_a_new_effect_nothing_is_left_out(tmp_path: Path) -> None:
    with RunLog(tmp_path) as log:
        log.event("a", 1)
    with RunLog(tmp_path) as log:
        log.unmute(0, 0, 0.0)
        log.end_replay()
        log.event("a", 1)
    assert len(lines(tmp_path / "events.jsonl")) == 3


def test_first_event_of_a_kind(tmp_path: Path) -> None:
    with RunLog(tmp_path) as log:
        assert log.first("decoy") == {}
        log.event("decoy", marker="one")
        log.event("decoy", marker="two")
    with RunLog(tmp_path) as log:
        assert log.first("decoy")["marker"] == "one"


HOSTILE = {
    "newlines": "a\nb\r\nc\u2028d\x85e",
    "terminal escape": "\x1b]0;title\x07\x1b[2J",
    "lone surrogate": "a\ud800b",
    "NUL": "a\0b",
    "long line": "x" * 5_000_000,
    "looks like an event": '"}\n{"type": "run_end"}',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_nothing_breaks_a_line(tmp_path: Path, text: str) -> None:
    with RunLog(tmp_path) as log:
        log.event("exec_end", 1, **{text[:50]: text})
        log.message(1, ChatMessage("assistant", text, (ToolCall("i", text, text),), opaque={"reasoning": [text]}))
        log.event("last")
    assert [json.loads(line)["type"] for line in lines(tmp_path / "events.jsonl")] == ["exec_end", "last"]
    assert len(lines(tmp_path / "transcript.jsonl")) == 1
    assert "\x1b" not in "".join(lines(tmp_path / "transcript.jsonl"))


def test_keys_are_masked_everywhere(tmp_path: Path) -> None:
    with RunLog(tmp_path, Masker([KEY])) as log:
        log.event("x", 1, **{KEY: [f"Bearer {KEY}", {"a": KEY}]})
        log.message(1, ChatMessage("tool", f"a {KEY} b", call_id=KEY, opaque={"r": KEY}))
    text = "".join(lines(tmp_path / "events.jsonl") + lines(tmp_path / "transcript.jsonl"))
    assert KEY not in text
    assert text.count("[masked]") == 6  # by hand: key, two values; content, call id, opaque


def test_short_values_are_no_secrets() -> None:
    assert Masker(["", "a"])("a cat") == "a cat"


def test_longer_secret_first() -> None:
    assert Masker(["secret", "secret-longer"])("secret-longer secret") == "[masked] [masked]"


def test_full_disk(tmp_path: Path) -> None:
    """Every write to /dev/full fails for lack of space."""
    log = RunLog(tmp_path)
    log._events._stream.close()
    log._events._stream = open("/dev/full", "a", encoding="ascii")  # noqa: SIM115 - closed below
    with pytest.raises(InfrastructureError, match="No space left"):
        log.event("x")
    with pytest.raises(InfrastructureError, match="No space left"):
        log.__exit__(None, None, None)


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file")
    with pytest.raises(InfrastructureError, match="Cannot write the log"):
        RunLog(tmp_path / "log")
