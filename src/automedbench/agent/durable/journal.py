"""Journal of an attempt: each effect is on disk before the run goes on, so a crash costs no paid reply.

An effect is what the loop cannot compute again: a model's reply, an executed call with its evidence, a look at the
submission. After a crash the same loop runs again and gets the recorded effects instead of new ones until they are used
up; then it goes on live. Dialogue, compaction, strikes, stages and counters rebuild themselves by the same code.

The time of a run moves only with its effects: every decision between two of them sees the time at the end of the first,
so that notices and limits come out the same when they are repeated, and an interrupted effect is not charged.

``log/journal.jsonl`` is append-only: one ``Line`` each, synced to disk. A last line torn by a kill is dropped.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

import pydantic
from pydantic import Field, TypeAdapter

from automedbench.agent.log import RunLog
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Model, now

ValueT = TypeVar("ValueT")


class JournalMismatch(InfrastructureError):
    """The recorded effects are not those of this code or this run; the attempt cannot go on."""


class Line(Model):
    """One line of a journal."""

    type: Literal["begin", "effect", "resume"]
    kind: str = Field("", description="what sort of effect")
    about: str = Field("", description="what the effect was asked for; another one on replay is a mismatch")
    run_s: float = Field(ge=0.0, description="time of the run after it, interruptions left out")
    at: datetime
    events: int = Field(0, description="lines of events.jsonl by then")
    messages: int = Field(0, description="lines of transcript.jsonl by then")
    value: Any = None


class Journal:
    """The journal of one attempt; a context manager. The effects that it holds are replayed first.

    ``check`` is called before every live effect and raises when this process may not go on (see ``Lease.check``).
    """

    def __init__(
        self,
        path: Path,
        log: RunLog,
        check: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self._log, self._check, self._clock = log, check, clock
        lines, length = _read(path)
        effects = [line for line in lines if line.type == "effect"]
        self._recorded = deque(effects)
        self._last = lines[-1] if lines else None
        self._run_s = 0.0
        self._mark: float | None = None
        self.effects = len(effects)
        self.resumes = sum(line.type == "resume" for line in lines)
        self.replayed = False
        self._interrupted = _open_effect(lines)
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.ftruncate(self._file, length)
        except OSError as error:
            raise self._unwritable(error) from error

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def clock(self) -> float:
        """Seconds of the run at the end of the latest effect."""
        return self._run_s

    @property
    def replaying(self) -> bool:
        """Recorded effects are left."""
        return bool(self._recorded)

    def was_interrupted(self, kind: str, about: str) -> bool:
        """This effect had begun when the last process ended, and is done a second time."""
        return (kind, about) == self._interrupted

    def effect(
        self,
        kind: str,
        about: str,
        compute: Callable[[], ValueT],
        adapter: TypeAdapter[ValueT],
        *,
        long: bool = False,
        rehearse: bool = False,
    ) -> ValueT:
        """The recorded value of the next effect; live, ``compute()``, recorded before it is returned.

        ``long``: note the beginning too, so that a resumed run knows that it was interrupted in it. ``rehearse``:
        compute also while replaying and forget the value, for what costs nothing and has a state. Raises
        JournalMismatch when another effect was recorded, InfrastructureError when the disk is full.
        """
        self.replayed = bool(self._recorded)
        if self.replayed:
            return self._replay(kind, about, compute if rehearse else None, adapter)
        self._check()
        self._mark = self._clock() if self._mark is None else self._mark
        self._log.go_on()
        if long:
            self._append(Line(type="begin", kind=kind, about=about, run_s=self._run_s, at=now()))
        value = compute()
        # The process that took over meanwhile writes this journal now.
        self._check()
        moment = self._clock()
        self._run_s, self._mark = self._run_s + max(0.0, moment - self._mark), moment
        events, messages = self._log.written
        plain = adapter.dump_python(value, mode="json")
        recorded = self._log.mask.value(plain)
        self._append(
            Line(
                type="effect",
                kind=kind,
                about=about,
                run_s=self._run_s,
                at=now(),
                events=events,
                messages=messages,
                value=recorded,
            )
        )
        self.effects += 1
        # An endpoint that repeats the key must not get it into a call's code: the loop goes on with the masked value.
        return value if recorded == plain else adapter.validate_python(recorded)

    def _replay(
        self, kind: str, about: str, rehearse: Callable[[], ValueT] | None, adapter: TypeAdapter[ValueT]
    ) -> ValueT:
        self._log.silence()
        line = self._recorded.popleft()
        if (line.kind, line.about) != (kind, about):
            raise JournalMismatch(
                f"{self.path}: '{line.kind} {line.about}' was recorded where '{kind} {about}' comes now.\n"
                "The attempt was made by another version of the harness; it is kept, and a new one starts."
            )
        try:
            value = adapter.validate_python(line.value)
        except pydantic.ValidationError as error:
            raise JournalMismatch(f"{self.path}: the value of '{kind} {about}' cannot be read.") from error
        if rehearse is not None:
            rehearse()
        self._run_s = line.run_s
        if not self._recorded:
            self._go_live(line)
        return value

    def _go_live(self, last: Line) -> None:
        self.resumes += 1
        self._append(Line(type="resume", run_s=self._run_s, at=now()))
        since = (now() - (self._last or last).at).total_seconds()
        lost_s = round(max(0.0, since), 3)
        self._log.speak(
            last.events, last.messages, self._run_s, effects=self.effects, resumes=self.resumes, lost_s=lost_s
        )

    def _append(self, line: Line) -> None:
        """Write one line and wait for the disk; a line that does not fit is taken back."""
        data = json.dumps(line.model_dump(mode="json"), sort_keys=True).encode() + b"\n"
        try:
            before = os.fstat(self._file).st_size
            try:
                done = 0
                while done < len(data):
                    done += os.write(self._file, data[done:])
                os.fsync(self._file)
            except OSError:
                os.ftruncate(self._file, before)
                raise
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> InfrastructureError:
        return InfrastructureError(
            f"Cannot write the journal {self.path}: {error.strerror or error}.\n"
            "Free space, then run the same command again: the run goes on where it was."
        )


def read_lines(path: Path) -> list[Line]:
    """The lines of a journal, none when there is no file; a torn last line is left out.

    Raises JournalMismatch when another line cannot be read.
    """
    return _read(path)[0]


def _read(path: Path) -> tuple[list[Line], int]:
    """Whole lines, and the bytes that they take."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise InfrastructureError(f"{path} cannot be read: {error.strerror or error}.") from error
    lines: list[Line] = []
    length = 0
    texts = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
    for number, text in enumerate(texts, start=1):
        try:
            lines.append(Line.model_validate_json(text))
        except pydantic.ValidationError as error:
            if number == len(texts):
                break
            raise JournalMismatch(f"{path}: line {number} cannot be read; the attempt cannot go on.") from error
        length += len(text)
    return lines, length


def _open_effect(lines: list[Line]) -> tuple[str, str] | None:
    """The effect that had begun and not ended."""
    for line in reversed(lines):
        if line.type != "resume":
            return (line.kind, line.about) if line.type == "begin" else None
    return None
