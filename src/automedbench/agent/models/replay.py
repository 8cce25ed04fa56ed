"""Replay: the replies of a recorded run once more, so that the real loop executes their code again, and what differs.

What each call answered and what it changed is compared. Times, durations, addresses and folders differ between any two
executions and are left out.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedbench.agent.durable.attempts import read_lines
from automedbench.agent.loop import ANSWER
from automedbench.agent.models.model import PreparedModel, Reply
from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.files import parse_json_object, sha256_bytes
from automedbench.base.records import CodeCall, Conversation
from automedbench.campaign.agents import Agent, read_code_provider
from automedbench.sandbox.airlock.collector import read_beneath

LAST_WORDS = "The recording ends here."


def load_replay(agent: Agent) -> PreparedModel:
    """The replies in the journal of the run that ``transcript`` names; afterwards a text without a call.

    Raises ConfigError for a program that ran its own tools, MissingDataError without a journal, JournalMismatch for a
    damaged one.
    """
    run = Path(agent.transcript or "")
    if read_code_provider(run) == "command":
        raise ConfigError(
            [f"transcript: {run} is of a program that ran its own tools; only runs of our loop can be replayed"]
        )
    lines, _ = read_lines(run / "log/journal.jsonl")
    if not lines:
        raise MissingDataError(f"{run}: has no log/journal.jsonl with replies.\nName the folder of a run.")
    answers = [ANSWER.validate_python(line.value) for line in lines if (line.type, line.kind) == ("effect", "reply")]
    replies = (
        Reply(reply.content, reply.calls, reply.finish_reason, opaque=reply.opaque, model="replay")
        for answer in answers
        if (reply := answer.reply)
    )
    return PreparedModel(itertools.chain(replies, itertools.repeat(Reply(LAST_WORDS, model="replay"))))


MAX_DIFF_LINES = 12
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
    recorded: Conversation, again: Conversation, workspaces: tuple[Path, Path] | None = None, *, pruned: bool = False
) -> list[TurnReport]:
    """One report for each recorded turn.

    ``workspaces`` are what the two left; a file that differs counts against the last turn that changed it. Where the
    recorded one was ``pruned``, what it does not hold is not compared.
    """
    files = _find_changed(recorded.calls, *workspaces, pruned) if workspaces else {}
    turns = [message.turn for message in recorded.messages if message.role == "assistant"]
    return [_compare_turn(turn, recorded, again, files.get(turn, [])) for turn in turns]


def first_divergence(reports: list[TurnReport]) -> TurnReport | None:
    """The earliest turn that came out differently."""
    return next((report for report in reports if report.reason), None)


def _compare_turn(turn: int, recorded: Conversation, again: Conversation, files: list[str]) -> TurnReport:
    answers = [_list_contents(each, turn, "tool") for each in (recorded, again)]
    n_calls = len(answers[0])
    if not _list_contents(again, turn, "assistant"):
        return TurnReport(turn, n_calls, "the replay had ended before this turn")
    if n_calls != len(answers[1]):
        return TurnReport(turn, n_calls, f"{len(answers[1])} calls answered instead of {n_calls}")
    for before, after in zip(*answers, strict=True):
        if (found := _compare_answers(before, after)) is not None:
            return TurnReport(turn, n_calls, *found)
    names = [
        [path for call in each.calls if call.turn == turn for path in call.new_files] for each in (recorded, again)
    ]
    if names[0] != names[1]:
        return TurnReport(turn, n_calls, "other files changed", _diff("\n".join(names[0]), "\n".join(names[1])))
    if files:
        return TurnReport(turn, n_calls, f"content differs: {', '.join(files[:3])}{' …' if len(files) > 3 else ''}")
    return TurnReport(turn, n_calls)


def _compare_answers(before: str, after: str) -> tuple[str, str] | None:
    """Difference between two tool results with a short diff; None when they are equivalent."""
    left, right = _read(before), _read(after)
    for key in _COMPARED:
        one, other = _normalize(left.get(key)), _normalize(right.get(key))
        if one != other:
            multiline = "\n" in one + other
            return f"{key} differs", _diff(one, other) if multiline else f"- {one[:200]}\n+ {other[:200]}"
    return None


def _read(answer: str) -> Mapping[str, Any]:
    value = parse_json_object(answer)
    return {"note": answer} if value is None else value


def _normalize(value: Any) -> str:
    """A value as text without what differs between any two executions."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    return text


def _diff(before: str, after: str) -> str:
    """The changed lines; of long differences the first ones of both sides."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "recorded", "replayed", lineterm="", n=0)
    changed = [line[:160] for line in lines if not line.startswith(("---", "+++", "@@"))]
    if len(changed) <= MAX_DIFF_LINES:
        return "\n".join(changed)
    excerpt = [line for mark in "-+" for line in [each for each in changed if each[0] == mark][: MAX_DIFF_LINES // 2]]
    return "\n".join([*excerpt, f"… {len(changed) - len(excerpt)} more lines"])


def _list_contents(conversation: Conversation, turn: int, role: str) -> list[str]:
    return [message.content for message in conversation.messages if (message.turn, message.role) == (turn, role)]


def _find_changed(calls: Sequence[CodeCall], before: Path, after: Path, pruned: bool) -> dict[int, list[str]]:
    """Turn → files that it wrote last and whose content is not what it was."""
    writer = {path: call.turn for call in calls for path in call.new_files}
    found: dict[int, list[str]] = {}
    for path in _find_differing(sorted(writer), before, after, pruned):
        found.setdefault(writer[path], []).append(path)
    return found


def _find_differing(paths: list[str], before: Path, after: Path, pruned: bool) -> Iterator[str]:
    for path in paths:
        one, other = (read_beneath(root, path, LARGEST) for root in (before, after))
        # A later turn may have removed it; it counts when only one of the two has it.
        if one is None and (pruned or other is None):
            continue
        if one is None or other is None or not _is_equivalent(one, other):
            yield path


def _is_equivalent(one: bytes, other: bytes) -> bool:
    if sha256_bytes(one) == sha256_bytes(other):
        return True
    if max(len(one), len(other)) > LARGEST_TEXT:
        return False
    try:
        return _normalize(one.decode()) == _normalize(other.decode())
    except UnicodeDecodeError:
        return False
