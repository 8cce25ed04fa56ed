"""Attempts of a run: one folder each, never deleted; one of them is published as the result of the run.

D/attempts/0001/  workspace/  log/  brief.md  conversation.json  run.json   (run.json last: the seal)
                  published   (the attempt was handed to the next rules)
                  failure-0001.json …   (each interruption: what broke, and what the attempt had cost by then)
D/workspace, D/log          relative links to the attempt that counts
D/brief.md, D/conversation.json, D/run.json   its copies (run.json last)

An interrupted attempt goes on with the next start, from its journal (``log/journal.jsonl``), for any end of its
process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from automedbench.agent.durable.journal import JournalMismatch, read_lines
from automedbench.base.errors import InfrastructureError, is_machine_fault
from automedbench.base.files import read_record, write_bytes, write_record, write_text
from automedbench.base.records import Conversation, Enforced, Model, RunId, RunRecord, Totals, now

PUBLISHED = ("brief.md", "conversation.json", "run.json")
LINKED = ("workspace", "log")


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
    """What must be equal for an attempt to answer the same question. The brief tells limits, network and GPU."""

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
        """Its folder."""
        return self.run / "attempts" / f"{self.number:04d}"

    @property
    def workspace(self) -> Path:
        """The only folder that the agent can write."""
        return self.path / "workspace"

    @property
    def log(self) -> Path:
        """Events, transcript and code calls."""
        return self.path / "log"

    @property
    def journal(self) -> Path:
        """Its recorded effects."""
        return self.log / "journal.jsonl"

    @property
    def sealed(self) -> bool:
        """A result stands in it."""
        return (self.path / "run.json").is_file()

    @property
    def was_published(self) -> bool:
        """Its result was handed on completely."""
        return (self.path / "published").is_file()

    def record(self) -> RunRecord:
        """The sealed result."""
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


def create_attempt(attempt: AttemptFolder, brief: str) -> None:
    """Make an attempt with an empty workspace and the brief. Raises InfrastructureError when it cannot be made."""
    try:
        attempt.path.mkdir(parents=True)
        attempt.workspace.mkdir()
        attempt.log.mkdir()
    except OSError as error:
        raise InfrastructureError(f"Cannot make {attempt.path}: {error.strerror or error}.") from error
    write_text(attempt.path / "brief.md", brief)


def seal(attempt: AttemptFolder, conversation: Conversation, record: RunRecord) -> None:
    """Write the result into the attempt; from here on it is never repeated because of a crash."""
    write_record(attempt.path / "conversation.json", conversation)
    write_record(attempt.path / "run.json", record)


def publish(attempt: AttemptFolder) -> None:
    """Make ``attempt`` the one that counts. Repeating it is harmless."""
    for name in LINKED:
        _link(attempt.run / name, f"attempts/{attempt.path.name}/{name}")
    for name in PUBLISHED:
        write_bytes(attempt.run / name, (attempt.path / name).read_bytes())
    write_text(attempt.path / "published", "")


def finished_or_resumable(run: Path, identity: Identity, sealed_before: set[int], waited: bool) -> AttemptFolder | None:
    """The attempt that answers ``identity`` without a new one: sealed (to be published), or interrupted (to go on).

    A sealed one counts when nothing was made of it yet, or when it was finished while this process waited for the
    lease. Once the next step has collected a published attempt, asking for the run again means asking for a new one.
    Until then it may be that the workflow was killed before it noted the result, and paying again would be worse than
    not repeating.
    """
    attempts = list_attempts(run)
    sealed = [attempt for attempt in attempts if attempt.sealed]
    newest = sealed[-1] if sealed else None
    if newest is not None and identity_of(newest.record()) == identity:
        finished_meanwhile = waited and newest.number not in sealed_before
        collected = newest.was_published and (run / "submission.json").exists()
        if finished_meanwhile or not collected:
            return newest
    later = [attempt for attempt in attempts if newest is None or attempt.number > newest.number]
    return next((attempt for attempt in reversed(later) if is_resumable(attempt, identity)), None)


def is_resumable(attempt: AttemptFolder, identity: Identity) -> bool:
    """The attempt was begun, answers ``identity``, and nothing forbids that it goes on.

    Raises InfrastructureError when its files cannot be read: stopping is better than paying for a new one.
    """
    try:
        start = started(attempt)
    except JournalMismatch:
        return False
    if start is None or not start.resumable or start.identity != identity:
        return False
    return all(failure.resumable for failure in attempt.failures())


def started(attempt: AttemptFolder) -> Start | None:
    """What the attempt's first effect says; None when it never came so far. Raises JournalMismatch if damaged."""
    first = next((line for line in read_lines(attempt.journal) if line.type == "effect"), None)
    if first is None or first.kind != "start":
        return None
    try:
        return Start.model_validate(first.value)
    except ValidationError as error:
        raise JournalMismatch(f"{attempt.journal}: the first effect cannot be read.") from error


def identity_of(record: RunRecord) -> Identity:
    """What a sealed attempt answered."""
    return Identity(
        run=record.run,
        agent_digest=record.agent_digest,
        task_version=record.task_version,
        brief_sha256=record.brief_sha256,
        cases_sha256=record.cases_sha256,
        limits=dict(record.limits),
    )


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
    if place.is_dir() and not place.is_symlink():
        raise InfrastructureError(f"{place} is a folder, but must be a link to an attempt; move it away.")
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        os.symlink(target, temporary)
        os.replace(temporary, place)
    except OSError as error:
        raise InfrastructureError(f"Cannot make the link {place}: {error.strerror or error}.") from error
