"""Replay: the replies of a recorded run once more, so that the real loop executes their code again, and what differs.

What each call answered and what it changed is compared. Times, durations, addresses and folders differ between any two
executions and are left out.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedbench.agent.models.model import ChatMessage, Reply, ToolCall, ToolSpec
from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.files import parse_json_object, sha256_bytes
from automedbench.campaign.agents import Agent, code_provider
from automedbench.sandbox.airlock.collector import read_beneath

LAST_WORDS = "The recording ends here."


@dataclass(frozen=True)
class Recording:
    """The log of a run: its messages and events, one dictionary per line, in order."""

    messages: tuple[dict[str, Any], ...]
    events: tuple[dict[str, Any], ...]

    @property
    def turns(self) -> list[int]:
        """Numbers of the turns with a reply."""
        return [int(message["turn"]) for message in self.messages if message["role"] == "assistant"]

    def of_turn(self, turn: int, role: str) -> list[dict[str, Any]]:
        """Messages of one turn."""
        return [message for message in self.messages if message["turn"] == turn and message["role"] == role]

    def events_of(self, kind: str, turn: int | None = None) -> list[dict[str, Any]]:
        """Events of a kind, of one turn or all."""
        return [event for event in self.events if event["type"] == kind and turn in (None, event.get("turn"))]


class ReplayModel:
    """Answers with the recorded replies in order; afterwards with a text without a call. Costs nothing."""

    def __init__(self, recording: Recording) -> None:
        self._replies = [
            _as_reply(recording, message) for message in recording.messages if message["role"] == "assistant"
        ]
        self._next = 0

    def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], timeout_s: float) -> Reply:
        """The next recorded reply; the conversation is not read."""
        self._next += 1
        if self._next > len(self._replies):
            return Reply(LAST_WORDS, model="replay")
        return self._replies[self._next - 1]


def load_replay(agent: Agent) -> ReplayModel:
    """The recorded replies of the run that ``transcript`` names; raises ConfigError or MissingDataError."""
    run = Path(agent.transcript or "")
    if code_provider(run) == "command":
        raise ConfigError(
            [f"transcript: {run} is of a program that ran its own tools; only runs of our loop can be replayed"]
        )
    return ReplayModel(read_recording(run / "log"))


def read_recording(log: Path) -> Recording:
    """The log of a run; a last line that a kill has torn is left out.

    Raises MissingDataError when it cannot be read, ConfigError when a line is damaged.
    """
    return Recording(tuple(_lines(log / "transcript.jsonl")), tuple(_lines(log / "events.jsonl")))


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise MissingDataError(
            f"{path} cannot be read: {error.strerror}.\nName the folder of a run (with its log/)."
        ) from error
    found = []
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            found.append(json.loads(line))
        except ValueError as error:
            raise ConfigError([f"{path}: line {number} is not JSON"]) from error
    return found


def _as_reply(recording: Recording, message: dict[str, Any]) -> Reply:
    """A recorded reply; how it ended (cut by its length or not) stands in the events."""
    told = recording.events_of("api_reply", message["turn"])
    calls = tuple(ToolCall(call["id"], call["name"], call["arguments"]) for call in message["tool_calls"])
    default = "tool_calls" if calls else "stop"
    finish = str(told[-1].get("finish_reason") or default) if told else default
    return Reply(message["content"], calls, finish, opaque=message.get("opaque") or {}, model="replay")


SHOWN_LINES = 12
LARGEST = 256 * 1024**2
LARGEST_TEXT = 4 * 1024**2

_COMPARED = ("status", "exit_code", "error", "stdout", "stderr", "accepted", "missing", "missing_count", "note")
_VOLATILE = (
    (re.compile(r"(?:/[\w.@+~=-]+)+/(?=[\w.@+~=-])"), ".../"),
    (re.compile(r"0x[0-9a-fA-F]{6,}"), "0x..."),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"), "<time>"),
    (re.compile(r"\b\d{1,2}:\d\d:\d\d(?:\.\d+)?\b"), "<time>"),
    (
        re.compile(r"\b(?:\d+m)?\d+(?:\.\d+)?(?:e-?\d+)? ?(?:ms|us|µs|ns|s|sec|secs|seconds?|min|minutes?)\b"),
        "<duration>",
    ),
    (re.compile(r"(\"?\w*(?:time|elapsed|duration|seconds|_s)\"?\s*[:=]\s*)\d+(?:\.\d+)?(?:e-?\d+)?"), r"\1<duration>"),
)


@dataclass(frozen=True)
class TurnReport:
    """One recorded turn: its calls, and how it came out differently; ``reason`` is empty where it did not."""

    turn: int
    n_calls: int
    reason: str = ""
    difference: str = ""


def compare_runs(
    recorded: Recording, again: Recording, workspaces: tuple[Path, Path] | None = None, *, pruned: bool = False
) -> list[TurnReport]:
    """One report for each recorded turn.

    ``workspaces`` are what the two left; a file that differs counts against the last turn that changed it. Where the
    recorded one was ``pruned``, what it does not hold is not compared.
    """
    files = _changed_contents(recorded, *workspaces, pruned) if workspaces else {}
    return [_compare_turn(turn, recorded, again, files.get(turn, [])) for turn in recorded.turns]


def first_divergence(reports: list[TurnReport]) -> TurnReport | None:
    """The earliest turn that came out differently."""
    return next((report for report in reports if report.reason), None)


def _compare_turn(turn: int, recorded: Recording, again: Recording, files: list[str]) -> TurnReport:
    said = recorded.of_turn(turn, "assistant")
    n_calls = sum(len(message["tool_calls"]) for message in said)
    if not again.of_turn(turn, "assistant"):
        return TurnReport(turn, n_calls, "the replay had ended before this turn")
    answers = [[message["content"] for message in each.of_turn(turn, "tool")] for each in (recorded, again)]
    if len(answers[0]) != len(answers[1]):
        return TurnReport(turn, n_calls, f"{len(answers[1])} calls answered instead of {len(answers[0])}")
    for before, after in zip(*answers, strict=True):
        if (found := _compare_answers(before, after)) is not None:
            return TurnReport(turn, n_calls, *found)
    names = [_changed(each, turn) for each in (recorded, again)]
    if names[0] != names[1]:
        return TurnReport(turn, n_calls, "other files changed", _diff("\n".join(names[0]), "\n".join(names[1])))
    if files:
        return TurnReport(turn, n_calls, f"content differs: {', '.join(files[:3])}{' …' if len(files) > 3 else ''}")
    return TurnReport(turn, n_calls)


def _compare_answers(before: str, after: str) -> tuple[str, str] | None:
    """What differs between two tool results and a short diff of it; None when nothing that counts does."""
    left, right = _read(before), _read(after)
    for key in _COMPARED:
        one, other = _normal(left.get(key)), _normal(right.get(key))
        if one != other:
            multiline = "\n" in one + other
            return f"{key} differs", _diff(one, other) if multiline else f"- {one[:200]}\n+ {other[:200]}"
    return None


def _read(answer: str) -> Mapping[str, Any]:
    value = parse_json_object(answer)
    return {"note": answer} if value is None else value


def _normal(value: Any) -> str:
    """A value as text without what differs between any two executions."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    return text


def _diff(before: str, after: str) -> str:
    """The changed lines; of long differences the first ones of both sides."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "recorded", "replayed", lineterm="", n=0)
    changed = [line[:160] for line in lines if not line.startswith(("---", "+++", "@@"))]
    if len(changed) <= SHOWN_LINES:
        return "\n".join(changed)
    shown = [line for mark in "-+" for line in [each for each in changed if each[0] == mark][: SHOWN_LINES // 2]]
    return "\n".join([*shown, f"… {len(changed) - len(shown)} more lines"])


def _changed(recording: Recording, turn: int) -> list[str]:
    return [path for event in recording.events_of("exec_end", turn) for path in event.get("new_files") or []]


def _changed_contents(recorded: Recording, before: Path, after: Path, pruned: bool) -> dict[int, list[str]]:
    """Turn → files that it wrote last and whose content is not what it was."""
    writer: dict[str, int] = {}
    for event in recorded.events_of("exec_end"):
        writer |= dict.fromkeys(event.get("new_files") or [], int(event["turn"]))
    found: dict[int, list[str]] = {}
    for path in _differing(sorted(writer), before, after, pruned):
        found.setdefault(writer[path], []).append(path)
    return found


def _differing(paths: list[str], before: Path, after: Path, pruned: bool) -> Iterator[str]:
    for path in paths:
        one, other = (read_beneath(root, path, LARGEST) for root in (before, after))
        # A later turn may have removed it; it counts when only one of the two has it.
        if one is None and (pruned or other is None):
            continue
        if one is None or other is None or not _same(one, other):
            yield path


def _same(one: bytes, other: bytes) -> bool:
    if sha256_bytes(one) == sha256_bytes(other):
        return True
    if max(len(one), len(other)) > LARGEST_TEXT:
        return False
    try:
        return _normal(one.decode()) == _normal(other.decode())
    except UnicodeDecodeError:
        return False
