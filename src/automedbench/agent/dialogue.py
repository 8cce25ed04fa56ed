"""Dialogue of a run: what was said, what of it is sent, and the log of both.

What is sent is compacted to fit a model's window, mechanically and without a model: system prompt, kickoff and the last
turns always stay. First old tool results lose their output, then the middle turns become one summary; the unabridged
transcript stays in the log. Rules: docs/specification.md, 8.6.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from automedbench.agent.log import RunLog
from automedbench.agent.models.chat import ChatMessage, estimate_tokens
from automedbench.base.records import Message

SHRINK = 0.6
"""Of what was sent, the share that may be sent again after the provider said that it does not fit."""


class Dialogue:
    """Messages in order. ``sent`` may be shortened; ``messages`` and the transcript never are."""

    def __init__(self, system: str, kickoff: str, log: RunLog, context_tokens: int) -> None:
        self.turn = 0
        self.notes: list[CallNote] = []
        self._log = log
        self._window = context_tokens
        self._all: list[Entry] = []
        self._sent: list[Entry] = []
        self._estimate = token_estimator(0, [])
        self.add(ChatMessage("system", system))
        self.add(ChatMessage("user", kickoff))

    @property
    def sent(self) -> list[ChatMessage]:
        """What the next request holds."""
        return [entry.message for entry in self._sent]

    @property
    def estimated_tokens(self) -> int:
        """Size of the next request."""
        return self._estimate(self.sent)

    def add(self, message: ChatMessage, unabridged: ChatMessage | None = None) -> None:
        """Append a message; ``unabridged`` is what the log keeps when the message was cut."""
        self._log.message(self.turn, unabridged or message)
        self._all.append(Entry(self.turn, unabridged or message))
        self._sent.append(Entry(self.turn, message))

    def notice(self, text: str) -> None:
        """Say something to the model; ``text`` starts with its bracketed tag."""
        self._log.event("notice", self.turn, text=text)
        self.add(ChatMessage("user", text))

    def measured(self, prompt_tokens: int, messages: Sequence[ChatMessage]) -> None:
        """Learn from the provider how many tokens ``messages`` were."""
        if prompt_tokens:
            self._estimate = token_estimator(prompt_tokens, messages)

    def fit(self) -> None:
        """Shorten what is sent when it fills 80 % of the model's window."""
        if self.estimated_tokens > FILL * self._window:
            self._compact(int(FILL * self._window), "window")

    def shrink(self) -> None:
        """Shorten what is sent after the provider refused its size."""
        self._compact(int(SHRINK * self.estimated_tokens), "overflow")

    def records(self) -> list[Message]:
        """Every message for judge and reader, without the opaque reasoning."""
        return [
            Message(turn=entry.turn, role=entry.message.role, content=self._log.mask(entry.message.content))
            for entry in self._all
        ]

    def _compact(self, target: int, why: str) -> None:
        before, count = self.estimated_tokens, len(self._sent)
        self._sent = compact(self._sent, self.notes, lambda messages: self._estimate(messages) <= target)
        self._log.event(
            "compaction",
            self.turn,
            why=why,
            tokens_before=before,
            tokens_after=self.estimated_tokens,
            messages_before=count,
            messages_after=len(self._sent),
        )


KEEP_TURNS = 6
FILL = 0.8
"""Share of the window at which the conversation is compacted."""

REMOVED = "output removed"
HEAD = 2
"""Messages that always stay: system prompt and kickoff."""


@dataclass(frozen=True)
class Entry:
    """A message and the turn it belongs to; system and kickoff are turn 0."""

    turn: int
    message: ChatMessage


@dataclass(frozen=True)
class CallNote:
    """What the summary keeps of one executed call."""

    turn: int
    language: str
    comment: str
    exit_code: int | None
    files: Sequence[str]

    def line(self) -> str:
        """One line of the summary."""
        wrote = f"; wrote {', '.join(self.files[:5])}{' …' if len(self.files) > 5 else ''}" if self.files else ""
        return f"- turn {self.turn}, {self.language}: {self.comment or 'no comment'}; exit code {self.exit_code}{wrote}"


def compact(
    entries: Sequence[Entry], notes: Sequence[CallNote], fits: Callable[[Sequence[ChatMessage]], bool]
) -> list[Entry]:
    """The mildest shortening that ``fits``; when none does, the strongest."""
    result = list(entries)
    for shorten in _steps(notes):
        result = shorten(entries)
        if fits([entry.message for entry in result]):
            break
    return result


def token_estimator(measured: int, messages: Sequence[ChatMessage]) -> Callable[[Sequence[ChatMessage]], int]:
    """Estimate by length, scaled by what the provider measured for ``messages`` (0: unknown)."""
    by_length = max(1, estimate_tokens(messages))
    scale = min(4.0, max(0.5, measured / by_length)) if measured else 1.0
    return lambda other: int(estimate_tokens(other) * scale)


def first_comment(code: str) -> str:
    """The first comment line of a program, without its mark, at most 100 characters."""
    for line in code.splitlines():
        stripped = line.strip()
        if stripped.startswith("#") and not stripped.startswith("#!"):
            return stripped.lstrip("# ")[:100]
    return ""


def _steps(notes: Sequence[CallNote]) -> Iterable[Callable[[Sequence[Entry]], list[Entry]]]:
    yield lambda entries: _without_old_output(entries, KEEP_TURNS)
    for keep in (KEEP_TURNS, 3, 1):
        yield lambda entries, keep=keep: _summarised(entries, notes, keep)  # type: ignore[misc]


def _without_old_output(entries: Sequence[Entry], keep: int) -> list[Entry]:
    oldest = _last_turn(entries) - keep
    return [
        Entry(entry.turn, _without_output(entry.message))
        if entry.message.role == "tool" and entry.turn <= oldest
        else entry
        for entry in entries
    ]


def _without_output(message: ChatMessage) -> ChatMessage:
    note = f"{REMOVED}, {len(message.content)} characters"
    try:
        result = json.loads(message.content)
    except ValueError:
        result = {}
    if str(result.get("note")).startswith(REMOVED):
        return message
    kept = {key: result[key] for key in ("status", "exit_code", "accepted") if key in result}
    short = json.dumps(kept | {"note": note})
    return replace(message, content=short) if len(short) < len(message.content) else message


def _summarised(entries: Sequence[Entry], notes: Sequence[CallNote], keep: int) -> list[Entry]:
    oldest = _last_turn(entries) - keep
    middle = [entry for entry in entries[HEAD:] if entry.turn <= oldest]
    if not middle:
        return list(entries)
    lines = [note.line() for note in notes if note.turn <= oldest]
    text = f"[SUMMARY] Turns 1 to {oldest} were removed to fit your context window. What was run in them:\n"
    summary = ChatMessage("user", text + ("\n".join(lines) or "- nothing"))
    recent = [entry for entry in entries[HEAD:] if entry.turn > oldest]
    return [*entries[:HEAD], Entry(oldest, summary), *recent]


def _last_turn(entries: Sequence[Entry]) -> int:
    return entries[-1].turn if entries else 0
