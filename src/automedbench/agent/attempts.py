"""Attempts of a run: one folder each, never deleted; one of them is published as the result of the run.

D/attempts/0001/  workspace/  log/  brief.md  conversation.json  run.json   (run.json last: the seal)
                  published   (the attempt was handed to the next rules)
                  failure.json   (instead of a seal: what broke, and what it had cost by then)
D/workspace, D/log          relative links to the attempt that counts
D/brief.md, D/conversation.json, D/run.json   its copies (run.json last)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field

from automedbench.errors import InfrastructureError
from automedbench.files import read_record, write_bytes, write_record, write_text
from automedbench.records import Conversation, Model, RunId, RunRecord, Totals, now

PUBLISHED = ("brief.md", "conversation.json", "run.json")
LINKED = ("workspace", "log")


class FailureRecord(Model):
    """``attempts/NNNN/failure.json``: an attempt that gave no result, and what it had cost."""

    schema_: Literal["automedbench/failure/1"] = Field("automedbench/failure/1", alias="schema")
    run: RunId
    attempt: int = Field(ge=1)
    kind: Literal["infrastructure", "cancelled", "bug"]
    error: str
    message: str
    totals: Totals
    failed_at: datetime


@dataclass(frozen=True)
class Identity:
    """What must be equal for a finished attempt to answer the same question."""

    run: RunId
    agent_digest: str
    task_version: int
    brief_sha256: str
    cases_sha256: str
    limits: dict[str, float | int | None]


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


def list_attempts(run: Path) -> list[AttemptFolder]:
    """All attempts of a run, oldest first."""
    numbers = sorted(int(path.name) for path in (run / "attempts").glob("[0-9]*") if path.name.isdigit())
    return [AttemptFolder(run, number) for number in numbers]


def create_attempt(run: Path, brief: str) -> AttemptFolder:
    """The next attempt, with an empty workspace and the brief. Raises InfrastructureError when it cannot be made."""
    existing = list_attempts(run)
    attempt = AttemptFolder(run, existing[-1].number + 1 if existing else 1)
    try:
        attempt.path.mkdir(parents=True)
        attempt.workspace.mkdir()
        attempt.log.mkdir()
    except OSError as error:
        raise InfrastructureError(f"Cannot make {attempt.path}: {error.strerror or error}.") from error
    write_text(attempt.path / "brief.md", brief)
    return attempt


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


def adoptable(run: Path, identity: Identity, sealed_before: set[int], waited: bool) -> AttemptFolder | None:
    """The newest sealed attempt, when it answers ``identity`` and nothing was made of it yet.

    An attempt that was finished while this process waited for the lease counts too. Once the next step has collected
    a published attempt, asking for the run again means asking for a new one. Until then it may be that the workflow
    was killed before it noted the result, and paying again would be worse than not repeating.
    """
    sealed = [attempt for attempt in list_attempts(run) if attempt.sealed]
    if not sealed or identity_of(sealed[-1].record()) != identity:
        return None
    newest = sealed[-1]
    finished_meanwhile = waited and newest.number not in sealed_before
    collected = newest.was_published and (run / "submission.json").exists()
    return newest if finished_meanwhile or not collected else None


def identity_of(record: RunRecord) -> Identity:
    """What a sealed attempt answered."""
    return Identity(
        record.run,
        record.agent_digest,
        record.task_version,
        record.brief_sha256,
        record.cases_sha256,
        dict(record.limits),
    )


def record_failure(attempt: AttemptFolder, run: RunId, error: BaseException, totals: Totals) -> None:
    """Keep why an attempt gave no result."""
    kind: Literal["infrastructure", "cancelled", "bug"] = "bug"
    if isinstance(error, InfrastructureError):
        kind = "infrastructure"
    elif isinstance(error, (KeyboardInterrupt, SystemExit)):
        kind = "cancelled"
    write_record(
        attempt.path / "failure.json",
        FailureRecord(
            run=run,
            attempt=attempt.number,
            kind=kind,
            error=type(error).__name__,
            message=str(error) or "interrupted",
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
