"""Attempts of a run: one folder each, never deleted; one of them is published as the result of the run.

D/attempts/0001/  outputs.tar  workspace.tar  log/  brief.md  conversation.json  run.json   (run.json last: the seal)
                  workspace   (folder or link, until the attempt is sealed: see ``workspaces``)
                  published   (the attempt was handed to the next rules)
                  failure-0001.json …   (each interruption: what broke, and what the attempt had cost by then)
D/outputs.tar, D/workspace.tar, D/log   relative links to the attempt that counts
D/brief.md, D/conversation.json, D/run.json   its copies (run.json last)

An interrupted attempt goes on with the next start, from its journal, for any end of its process: each effect is on disk
before the run goes on, so a crash costs no paid reply. An effect is what the loop cannot compute again: a model's
reply, an executed call with its evidence, a look at the submission. After a crash the same loop runs again and gets the
recorded effects instead of new ones until they are used up; then it goes on live. Dialogue, compaction, strikes, stages
and counters rebuild themselves by the same code.

The time of a run moves only with its effects: every decision between two of them sees the time at the end of the first,
so that notices and limits come out the same when they are repeated, and an interrupted effect is not charged.

``log/journal.jsonl`` is append-only: one ``Line`` each, synced to disk. A last line torn by a kill is dropped.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import pydantic
from pydantic import Field, TypeAdapter, ValidationError

from automedbench.agent.durable.workspaces import is_lost, open_workspace, put_away, remove_loose
from automedbench.agent.log import RunLog
from automedbench.base.errors import InfrastructureError, is_machine_fault
from automedbench.base.files import read_record, write_bytes, write_record, write_text
from automedbench.base.records import Conversation, Enforced, Model, RunId, RunRecord, Totals, now
from automedbench.base.reserve import makes_room
from automedbench.sandbox.airlock.archive import OUTPUTS, REST

PUBLISHED = ("brief.md", "conversation.json", "run.json")
LINKED = ("workspace", OUTPUTS, REST, "log")
DEATHS = 3
"""Times that the same call may take its driver with it, without a word, before that is the agent's result."""


class FailureRecord(Model):
    """``attempts/NNNN/failure-0001.json``: an interruption of an attempt, and what it had cost by then."""

    schema_: Literal["automedbench/failure/2"] = Field("automedbench/failure/2", alias="schema")
    run: RunId
    attempt: int = Field(ge=1)
    kind: Literal["infrastructure", "cancelled", "bug"]
    resumable: bool = Field(description="the next start goes on with the attempt")
    error: str
    message: str
    effects: int = Field(ge=0, description="recorded effects by then; the same number again: nothing was gained")
    totals: Totals
    failed_at: datetime


class Identity(Model):
    """Fields that are equal in attempts at the same question. The brief holds limits, network and GPU."""

    run: RunId
    agent_digest: str
    task_version: int
    brief_sha256: str
    cases_sha256: str
    limits: dict[str, float | int | None]


class Start(Model):
    """First effect of an attempt: what it answers, and where it was begun."""

    identity: Identity
    resumable: bool
    enforced: Enforced
    started_at: datetime


@dataclass(frozen=True)
class AttemptFolder:
    """One attempt of the run in folder ``run``."""

    run: Path
    number: int

    @property
    def path(self) -> Path:
        return self.run / "attempts" / f"{self.number:04d}"

    @property
    def workspace(self) -> Path:
        """The only folder that the agent can write; gone when the attempt is sealed."""
        return self.path / "workspace"

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def journal(self) -> Path:
        return self.log / "journal.jsonl"

    @property
    def sealed(self) -> bool:
        return (self.path / "run.json").is_file()

    def record(self) -> RunRecord:
        return read_record(self.path / "run.json", RunRecord)

    def failures(self) -> list[FailureRecord]:
        """Its interruptions so far, oldest first; a killed process leaves none."""
        return [read_record(path, FailureRecord) for path in sorted(self.path.glob("failure-*.json"))]


def list_attempts(run: Path) -> list[AttemptFolder]:
    """All attempts of a run, oldest first."""
    numbers = sorted(int(path.name) for path in (run / "attempts").glob("[0-9]*") if path.name.isdigit())
    return [AttemptFolder(run, number) for number in numbers]


def next_attempt(run: Path) -> AttemptFolder:
    """The attempt after all that exist; not made yet."""
    existing = list_attempts(run)
    return AttemptFolder(run, existing[-1].number + 1 if existing else 1)


def create_attempt(attempt: AttemptFolder, brief: str, given: Mapping[str, str], scratch: str | None = None) -> None:
    """Make an attempt with the brief and a workspace that holds what is ``given`` (name → text), nothing else.

    With ``scratch`` the workspace lies there. Raises InfrastructureError when it cannot be made.
    """
    try:
        attempt.path.mkdir(parents=True)
        attempt.log.mkdir()
    except OSError as error:
        raise InfrastructureError(f"Cannot make {attempt.path}: {error.strerror or error}.") from error
    open_workspace(attempt.path, scratch)
    for name, text in given.items():
        write_text(attempt.workspace / name, text)
    write_text(attempt.path / "brief.md", brief)


def seal(
    attempt: AttemptFolder,
    conversation: Conversation,
    record: RunRecord,
    check: Callable[[], None] = lambda: None,
    expected: Mapping[str, int] | None = None,
) -> None:
    """Write archives and result into the attempt; from here on it is never repeated because of a crash.

    Nothing may write into the workspace any more. ``check`` raises when this process may not go on. Of a run that
    filled the disk only ``expected`` files (path → largest size) and small ones are kept if there is no room for more.
    Raises InfrastructureError when the disk is full.
    """
    put_away(attempt.path, expected if record.outcome == "out_of_disk" else None)
    check()
    write_record(attempt.path / "conversation.json", conversation)
    write_record(attempt.path / "run.json", record)


def publish(attempt: AttemptFolder) -> None:
    """Make ``attempt`` the one that counts. Repeating it is harmless. Raises OSError when a file cannot be written."""
    remove_loose(attempt.path)
    for name in LINKED:
        if (attempt.path / name).exists():
            _link(attempt.run / name, f"attempts/{attempt.path.name}/{name}")
        elif (attempt.run / name).is_symlink():
            (attempt.run / name).unlink()
    for name in PUBLISHED:
        write_bytes(attempt.run / name, (attempt.path / name).read_bytes())
    write_text(attempt.path / "published", "")


def find_usable_attempt(run: Path, identity: Identity, sealed_before: set[int]) -> AttemptFolder | None:
    """The attempt that answers ``identity`` without a new one: sealed (to be published), or interrupted (to go on).

    A sealed one counts when nothing was made of it yet, or when it was finished while this process waited for the
    lease. Once the next step has collected a published attempt, asking for the run again means asking for a new one.
    Until then it may be that the workflow was killed before it noted the result, and paying again would be worse than
    not repeating.
    """
    attempts = list_attempts(run)
    sealed = [attempt for attempt in attempts if attempt.sealed]
    newest = sealed[-1] if sealed else None
    if newest is not None and attempt_identity(newest.record()) == identity:
        finished_meanwhile = newest.number not in sealed_before
        collected = (newest.path / "published").is_file() and (run / "submission.json").exists()
        if finished_meanwhile or not collected:
            return newest
    later = [attempt for attempt in attempts if newest is None or attempt.number > newest.number]
    return next((attempt for attempt in reversed(later) if is_resumable(attempt, identity)), None)


def is_resumable(attempt: AttemptFolder, identity: Identity) -> bool:
    """The attempt was begun, answers ``identity``, its workspace can be had, and nothing forbids that it goes on.

    Raises InfrastructureError when its files cannot be read: stopping is better than paying for a new one.
    """
    try:
        start = read_start(attempt)
    except JournalMismatch:
        return False
    if start is None or not start.resumable or start.identity != identity or is_lost(attempt.path):
        return False
    return all(failure.resumable for failure in attempt.failures())


def read_start(attempt: AttemptFolder) -> Start | None:
    """Content of the attempt's first effect; None when there is none yet. Raises JournalMismatch if damaged."""
    first = next((line for line in read_lines(attempt.journal)[0] if line.type == "effect"), None)
    if first is None or first.kind != "start":
        return None
    try:
        return Start.model_validate(first.value)
    except ValidationError as error:
        raise JournalMismatch(f"{attempt.journal}: the first effect cannot be read.") from error


def count_silent_deaths(attempt: AttemptFolder, journal: Journal, about: str) -> int:
    """Number of times that a code call killed its driver: it began, and neither it nor the driver ended.

    A driver that was signalled to end, or failed, left a record. One whose memory ran out cannot: the kernel or the
    scheduler kills it.
    """
    recorded = sum(failure.effects == journal.effects for failure in attempt.failures())
    return journal.count_begun("exec", about) - recorded


def count_silent_attempts(now: AttemptFolder) -> int:
    """Number of attempts right before this one, at its question, that died silently: a program is one call."""

    own = read_start(now)

    def died(attempt: AttemptFolder) -> bool:
        start = None if attempt.sealed or attempt.failures() else read_start(attempt)
        return start is not None and own is not None and start.identity == own.identity

    earlier = [attempt for attempt in list_attempts(now.run) if attempt.number < now.number]
    return sum(1 for _ in itertools.takewhile(died, reversed(earlier)))


def attempt_identity(record: RunRecord) -> Identity:
    """Identity that a sealed attempt answered."""
    return Identity.model_validate({name: getattr(record, name) for name in Identity.model_fields})


def record_failure(
    attempt: AttemptFolder, run: RunId, error: BaseException, totals: Totals, *, effects: int, resumable: bool
) -> None:
    """Keep why an attempt was interrupted.

    A bug of ours gives an attempt up when it comes a second time without any progress in between.
    """
    kind: Literal["infrastructure", "cancelled", "bug"] = "bug"
    if isinstance(error, InfrastructureError) or is_machine_fault(error):
        kind = "infrastructure"
    elif isinstance(error, (KeyboardInterrupt, SystemExit)):
        kind = "cancelled"
    earlier = attempt.failures()
    stuck = kind == "bug" and any((other.kind, other.effects) == ("bug", effects) for other in earlier)
    write_record(
        attempt.path / f"failure-{len(earlier) + 1:04d}.json",
        FailureRecord(
            run=run,
            attempt=attempt.number,
            kind=kind,
            resumable=resumable and not stuck and not isinstance(error, JournalMismatch),
            error=type(error).__name__,
            message=str(error) or "interrupted",
            effects=effects,
            totals=totals,
            failed_at=now(),
        ),
    )


def _link(place: Path, target: str) -> None:
    """A relative link at ``place``, replaced in one step."""
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        os.symlink(target, temporary)
        os.replace(temporary, place)
    except OSError as error:
        raise InfrastructureError(f"Cannot make the link {place}: {error.strerror or error}.") from error


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
        lines, length = read_lines(path)
        effects = [line for line in lines if line.type == "effect"]
        self._recorded = deque(effects)
        self._last = lines[-1] if lines else None
        self._run_s = 0.0
        self._mark: float | None = None
        self.effects = len(effects)
        self.resumes = sum(line.type == "resume" for line in lines)
        self.replayed = False
        # The effect that had begun and not ended, once for each time.
        since = itertools.takewhile(lambda line: line.type != "effect", reversed(lines))
        self._unended = [(line.kind, line.about) for line in since if line.type == "begin"]
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.ftruncate(self._file, length)
        except OSError as error:
            raise self._unwritable(error) from error

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def clock(self) -> float:
        """Seconds of the run at the end of the latest effect."""
        return self._run_s

    def stand_still(self, seconds: float) -> None:
        """Leave out seconds since the latest effect that were not the run's."""
        if self._mark is not None:
            self._mark += seconds

    @property
    def replaying(self) -> bool:
        """Recorded effects are left."""
        return bool(self._recorded)

    def count_begun(self, kind: str, about: str) -> int:
        """Number of times that this effect began, and did not end, before this process."""
        return self._unended.count((kind, about))

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
        self._log.end_replay()
        if long:
            self._append(Line(type="begin", kind=kind, about=about, run_s=self._run_s, at=now()))
        value = compute()
        # The process that took over meanwhile writes this journal now.
        self._check()
        instant = self._clock()
        self._run_s, self._mark = self._run_s + max(0.0, instant - self._mark), instant
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
        self._log.mute()
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
        self._log.unmute(
            last.events, last.messages, self._run_s, effects=self.effects, resumes=self.resumes, lost_s=lost_s
        )

    def _append(self, line: Line) -> None:
        """Write one line and wait for the disk; one that does not fit is taken back, and fits behind the reserve."""
        # In the order in which a provider sent them: what goes back to it after a crash must be the same bytes.
        data = json.dumps(line.model_dump(mode="json")).encode() + b"\n"
        try:
            try:
                self._write(data)
            except OSError as error:
                if not makes_room(error):
                    raise
                self._write(data)
        except OSError as error:
            raise self._unwritable(error) from error

    def _write(self, data: bytes) -> None:
        before = os.fstat(self._file).st_size
        try:
            done = 0
            while done < len(data):
                done += os.write(self._file, data[done:])
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, before)
            raise

    def _unwritable(self, error: OSError) -> InfrastructureError:
        return InfrastructureError(
            f"Cannot write the journal {self.path}: {error.strerror or error}.\n"
            "Free space, then run the same command again: the run continues where it stopped."
        )


def read_lines(path: Path) -> tuple[list[Line], int]:
    """The lines of a journal, and the bytes that they take; none when there is no file. A torn last line is left out.

    Raises JournalMismatch when another line cannot be read.
    """
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
