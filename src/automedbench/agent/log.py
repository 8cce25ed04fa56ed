"""Log of an attempt: append-only, outside the workspace, flushed after every line, and unbreakable by its content.

``events.jsonl`` holds one JSON object per event, ``transcript.jsonl`` every message unabridged, ``exec/`` the code
calls and their output. Text of an agent is escaped to plain ASCII JSON; values of keys are masked.

A run that goes on after a crash repeats its effects (see ``Journal``): the log is silent then, and afterwards leaves
out the lines that the crashed process had written already.

The dialogue holds all messages, and those of them that are sent, which are compacted to fit a model's window,
mechanically and without a model: system prompt, kickoff and the last turns always stay. First old tool results lose
their output, then the middle turns become one summary; the unabridged transcript stays in the log. Rules:
docs/specification.md, 8.6.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from automedbench.agent.models.model import ChatMessage, Reply, estimate_tokens
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import clean_text, parse_json_object, unwritable
from automedbench.base.masking import masked, secret_forms
from automedbench.base.records import CodeCall, Message, now
from automedbench.base.reserve import makes_room

STAMPS = {"seq", "ts", "t_s"}
OF_ONE_PROCESS = {"decoy", "resume", "interrupted"}
"""Events that are not repeated when a run goes on in another process."""


class Masker:
    """Replaces known secret values in text. The second line of defence: the first is that no key gets near."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms = secret_forms(secrets)

    def __call__(self, text: str) -> str:
        return clean_text(masked(text, self._forms))

    def value(self, value: Any) -> Any:
        """A JSON-able value with every text in it masked."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            return {self(str(key)): self.value(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(inner) for inner in value]
        return value


class RunLog:
    """Writer of one attempt's log; a context manager. Raises InfrastructureError when the disk is full."""

    def __init__(self, folder: Path, mask: Masker | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder = folder
        self.exec_folder = folder / "exec"
        self.mask = mask or Masker()
        self._clock = clock
        self._started = clock()
        self._silent = False
        try:
            self.exec_folder.mkdir(parents=True, exist_ok=True)
            self._events = _Lines(folder / "events.jsonl")
            self._transcript = _Lines(folder / "transcript.jsonl")
        except OSError as error:
            raise unwritable(f"the log {folder}", error) from error

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        try:
            with contextlib.closing(self._events), contextlib.closing(self._transcript):
                pass
        except OSError as failure:
            if error is None:
                raise unwritable(f"the log {self.folder}", failure) from failure

    def event(self, kind: str, turn: int | None = None, /, **fields: Any) -> None:
        """Append one event; ``t_s`` is the time of the run, or of this process before its run goes on.

        Raises InfrastructureError when it cannot be written.
        """
        head = {
            "seq": self._events.count + 1,
            "ts": now().isoformat(),
            "t_s": round(self._clock() - self._started, 3),
            "type": kind,
            "turn": turn,
        }
        self._write(self._events, head | fields)

    def message(self, turn: int, message: ChatMessage, **marks: bool) -> None:
        """Append one message as sent or received, with everything the provider gave; ``marks`` are those that are set.

        Raises InfrastructureError when it cannot be written.
        """
        calls = [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            | ({"opaque": dict(call.opaque)} if call.opaque else {})
            for call in message.calls
        ]
        self._write(
            self._transcript,
            {
                "turn": turn,
                "role": message.role,
                "content": message.content,
                "tool_calls": calls,
                "tool_call_id": message.call_id,
                "opaque": dict(message.opaque),
                "reasoning": message.reasoning,
                **{name: True for name, is_set in marks.items() if is_set},
            },
        )

    def reply(self, turn: int, reply: Reply, *, n_calls: int, recovered: int = 0) -> None:
        """Append the metadata of a model's reply."""
        self.event(
            "api_reply",
            turn,
            model=reply.model,
            finish_reason=reply.finish_reason,
            usage=reply.usage.model_dump(),
            reported_cost=reply.reported_cost,
            service_tier=reply.service_tier,
            api_s=round(reply.api_s, 3),
            n_calls=n_calls,
            recovered=recovered,
        )

    def first(self, kind: str) -> dict[str, Any]:
        """The first event of a kind, empty when there is none."""
        return next((event for event in self._events.beyond(0) if event["type"] == kind), {})

    def count(self, kind: str, **fields: Any) -> int:
        """Events of a kind that have these fields."""
        events = (event for event in self._events.beyond(0) if event["type"] == kind)
        return sum(fields.items() <= event.items() for event in events)

    # --- going on after a crash -------------------------------------------------------------------------------

    @property
    def written(self) -> tuple[int, int]:
        """Lines of events and of the transcript so far."""
        return self._events.count, self._transcript.count

    def mute(self) -> None:
        """Write nothing: what comes is in the log already."""
        self._silent = True

    def unmute(self, events: int, messages: int, run_s: float, **resumed: Any) -> None:
        """Write again, first the event ``resume``.

        Lines beyond these counts were written after the last recorded effect: they are not written twice. Raises
        InfrastructureError when the log cannot be read.
        """
        self._silent = False
        self._started = self._clock() - run_s
        try:
            again = self._events.beyond(events), self._transcript.beyond(messages)
        except (OSError, ValueError) as error:
            raise InfrastructureError(f"Cannot read the log {self.folder}: {error}.") from error
        self.event("resume", **resumed)
        self._events.expected = deque(event for event in again[0] if event["type"] not in OF_ONE_PROCESS)
        self._transcript.expected = deque(again[1])

    def end_replay(self) -> None:
        """From here on everything is new."""
        self._events.expected.clear()
        self._transcript.expected.clear()

    def _write(self, lines: _Lines, value: dict[str, Any]) -> None:
        if self._silent:
            return
        try:
            lines.add(json.dumps(self.mask.value(value), sort_keys=True, default=str))
        except OSError as error:
            try:
                if not makes_room(error):
                    raise
                lines.flush()
            except OSError as last:
                raise unwritable(f"the log {self.folder}", last) from last


class _Lines:
    """One file of JSON lines, flushed after each. A line that a kill has torn is removed when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.expected: deque[dict[str, Any]] = deque()
        whole = path.read_bytes() if path.exists() else b""
        whole = whole[: whole.rfind(b"\n") + 1]
        self.count = whole.count(b"\n")
        self._stream = open(path, "a", encoding="ascii")  # noqa: SIM115 - open for the run
        self._stream.truncate(len(whole))

    def add(self, text: str) -> None:
        """Append one line, unless it is the next of those that are there already."""
        if self.expected and _same(self.expected[0], json.loads(text)):
            self.expected.popleft()
            return
        self.expected.clear()
        self.count += 1
        self._stream.write(text + "\n")
        self.flush()

    def flush(self) -> None:
        """Write what is not on the disk yet; after a full disk it may be called again. Raises OSError."""
        self._stream.flush()

    def beyond(self, count: int) -> list[dict[str, Any]]:
        """Records after the first ``count`` lines."""
        return [json.loads(line) for line in self.path.read_bytes().splitlines()[count:]]

    def close(self) -> None:
        self._stream.close()


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return {key: one[key] for key in one.keys() - STAMPS} == {key: other[key] for key in other.keys() - STAMPS}


SHRINK = 0.6
"""Of what was sent, the share that may be sent again after the provider reported an overflow."""


class Dialogue:
    """Messages in order. ``sent`` may be shortened; ``messages`` and the transcript never are."""

    def __init__(self, system: str, kickoff: str, log: RunLog, context_tokens: int) -> None:
        self.turn = 0
        self.calls: Sequence[CodeCall] = ()
        self._log = log
        self._window = context_tokens
        self._all: list[Entry] = []
        self._sent: list[Entry] = []
        self._scale = 1.0
        self.add(ChatMessage("system", system))
        self.add(ChatMessage("user", kickoff))

    @property
    def sent(self) -> list[ChatMessage]:
        return [entry.message for entry in self._sent]

    @property
    def estimated_tokens(self) -> int:
        return self._estimate(self.sent)

    def add(
        self,
        message: ChatMessage,
        unabridged: ChatMessage | None = None,
        *,
        by_program: bool = False,
        aside: bool = False,
    ) -> None:
        """Append a message; ``unabridged`` is what the log keeps when the message was cut.

        ``by_program``: a command agent's program wrote it. One ``aside`` of the conversation stands in the log alone.
        """
        self._log.message(self.turn, unabridged or message, by_program=by_program, aside=aside)
        if not aside:
            self._all.append(Entry(self.turn, unabridged or message, by_program))
            self._sent.append(Entry(self.turn, message, by_program))

    def set_aside(self) -> None:
        """Drop all messages so far but the brief: they were beside the conversation."""
        del self._all[HEAD:], self._sent[HEAD:]

    def notice(self, text: str) -> None:
        """Send a notice to the model; ``text`` starts with its bracketed tag."""
        self._log.event("notice", self.turn, text=text)
        self.add(ChatMessage("user", text))

    def calibrate(self, prompt_tokens: int, messages: Sequence[ChatMessage]) -> None:
        """Scale estimates by how many tokens the provider measured for ``messages`` (0: unknown)."""
        if prompt_tokens:
            self._scale = min(4.0, max(0.5, prompt_tokens / max(1, estimate_tokens(messages))))

    def fit(self) -> None:
        """Shorten what is sent when it fills 80 % of the model's window."""
        if self.estimated_tokens > FILL * self._window:
            self._compact(int(FILL * self._window), "window")

    def shrink(self) -> None:
        """Shorten what is sent after the provider refused its size."""
        self._compact(int(SHRINK * self.estimated_tokens), "overflow")

    def records(self) -> list[Message]:
        """Every message for judge and reader, without what only the provider understands."""
        return [
            Message(
                turn=entry.turn,
                role=entry.message.role,
                content=self._log.mask(entry.message.content),
                reasoning=self._log.mask(entry.message.reasoning),
                by_program=entry.by_program,
            )
            for entry in self._all
        ]

    def _estimate(self, messages: Sequence[ChatMessage]) -> int:
        return int(estimate_tokens(messages) * self._scale)

    def _compact(self, target: int, why: str) -> None:
        before, count = self.estimated_tokens, len(self._sent)
        self._sent = compact(self._sent, self.calls, lambda messages: self._estimate(messages) <= target)
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
    by_program: bool = False


def describe_call(call: CodeCall) -> str:
    """The line of an executed call in a summary."""
    files, comment = call.new_files, find_first_comment(call.code) or "no comment"
    wrote = f"; wrote {', '.join(files[:5])}{' …' if len(files) > 5 else ''}" if files else ""
    return f"- turn {call.turn}, {call.language}: {comment}; exit code {call.exit_code}{wrote}"


def compact(
    entries: Sequence[Entry], calls: Sequence[CodeCall], fits: Callable[[Sequence[ChatMessage]], bool]
) -> list[Entry]:
    """The mildest shortening that ``fits``; when none does, the strongest."""
    result = _remove_old_output(entries)
    for kept_turns in (KEEP_TURNS, 3, 1):
        if fits([entry.message for entry in result]):
            break
        result = _summarise(entries, calls, kept_turns)
    return result


def find_first_comment(code: str) -> str:
    """The first comment line of a program, without its mark, at most 100 characters."""
    for line in code.splitlines():
        stripped = line.strip()
        if stripped.startswith("#") and not stripped.startswith("#!"):
            return stripped.lstrip("# ")[:100]
    return ""


def _remove_old_output(entries: Sequence[Entry]) -> list[Entry]:
    oldest = entries[-1].turn - KEEP_TURNS
    return [
        Entry(entry.turn, _remove_output(entry.message))
        if entry.message.role == "tool" and entry.turn <= oldest
        else entry
        for entry in entries
    ]


def _remove_output(message: ChatMessage) -> ChatMessage:
    note = f"{REMOVED}, {len(message.content)} characters"
    result = parse_json_object(message.content) or {}
    if str(result.get("note")).startswith(REMOVED):
        return message
    kept = {key: result[key] for key in ("status", "exit_code", "accepted") if key in result}
    short = json.dumps(kept | {"note": note})
    return replace(message, content=short) if len(short) < len(message.content) else message


def _summarise(entries: Sequence[Entry], calls: Sequence[CodeCall], kept_turns: int) -> list[Entry]:
    oldest = entries[-1].turn - kept_turns
    middle = [entry for entry in entries[HEAD:] if entry.turn <= oldest]
    if not middle:
        return list(entries)
    lines = [describe_call(call) for call in calls if call.turn <= oldest]
    text = f"[SUMMARY] Turns 1 to {oldest} were removed to fit your context window. What was run in them:\n"
    summary = ChatMessage("user", text + ("\n".join(lines) or "- nothing"))
    recent = [entry for entry in entries[HEAD:] if entry.turn > oldest]
    return [*entries[:HEAD], Entry(oldest, summary), *recent]
