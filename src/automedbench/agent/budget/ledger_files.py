"""Files of the campaign's ledger: what one process appends, and what a reader makes of the files of all.

``<results>/ledger/`` holds

    <host>-<boot>-<pid>-<start>-<serial>.jsonl   lines of one process: who it is, then its entries; written by it alone
    closed.jsonl                                 one line per file whose reservations are all settled: its sums
    closed/                                      these files, kept as they are
    lock.json                                    held while a process reserves or closes

A line counts when it ends with a newline or can be read without one: a process that is killed leaves at most its last
line torn, and that line was of something not yet done.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal, TypeVar

import pydantic

from automedbench.agent.budget.prices import as_money
from automedbench.agent.durable.lease import Holder
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Model, Money, now

CLOSED = "closed.jsonl"
CLOSED_FOLDER = "closed"
ZERO = Decimal(0)

Key = tuple[str, str]
"""Path of the run and token of its attempt."""

LineT = TypeVar("LineT", bound=pydantic.BaseModel)


class Entry(Model):
    """One line of a process: something about the money of one attempt at a run."""

    event: Literal["reserve", "announce", "spend", "settle"]
    run: str
    token: str
    usd: Money | None = None
    tokens: int = 0
    at: datetime = pydantic.Field(default_factory=now)

    @property
    def amount(self) -> Decimal:
        """USD as a number; 0 where the price is unknown."""
        return Decimal(self.usd or 0)


class Sums(Model):
    """What one process booked for one attempt; a line of ``closed.jsonl`` holds those of one file."""

    run: str
    token: str
    spent: Money = "0"
    settled: Money = "0"
    tokens: int = 0
    requests: int = 0
    unpriced: int = pydantic.Field(0, description="requests whose price is unknown")


class ClosedFile(Model):
    """A file that is read no more, because its sums stand here."""

    file: str
    sums: list[Sums]


@dataclass
class Account:
    """The money of one attempt in one process's file."""

    reserved: Decimal | None = None
    spent: Decimal = ZERO
    settled: Decimal = ZERO
    announced: list[Decimal] = field(default_factory=list)
    tokens: int = 0
    requests: int = 0
    unpriced: int = 0

    def book(self, entry: Entry) -> None:
        """Take one more line into account. A spend answers the oldest open announcement."""
        match entry.event:
            case "reserve":
                self.reserved = entry.amount
            case "announce":
                self.announced.append(entry.amount)
            case "spend":
                del self.announced[:1]
                self.spent += entry.amount
                self.tokens += entry.tokens
                self.requests += 1
                self.unpriced += entry.usd is None
            case "settle":
                self.reserved = None
                self.announced.clear()
                self.settled = max(self.settled, entry.amount)

    def sums(self, key: Key) -> Sums:
        """The account as it is kept in ``closed.jsonl``."""
        spent, settled = as_money(self.spent) or "0", as_money(self.settled) or "0"
        return Sums(
            run=key[0],
            token=key[1],
            spent=spent,
            settled=settled,
            tokens=self.tokens,
            requests=self.requests,
            unpriced=self.unpriced,
        )


def account_of(sums: Sums) -> Account:
    """The account of a closed file: nothing of it is reserved or announced any more."""
    return Account(
        spent=Decimal(sums.spent),
        settled=Decimal(sums.settled),
        tokens=sums.tokens,
        requests=sums.requests,
        unpriced=sums.unpriced,
    )


@dataclass
class ProcessFile:
    """The file of one process: who wrote it, its accounts, when it was written last (the file server's clock)."""

    path: Path
    owner: Holder | None
    accounts: dict[Key, Account]
    written_ns: int


@dataclass
class Contents:
    """A whole ledger: files of processes, accounts of closed files, and lines that cannot be read."""

    files: list[ProcessFile] = field(default_factory=list)
    closed: list[tuple[Key, Account]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_ledger(folder: Path) -> Contents:
    """Everything that was booked so far; an absent folder is an empty ledger.

    A file that is closed while this reads is counted once: its sums are appended before it is moved, and are read
    last here. Raises InfrastructureError when a file cannot be read.
    """
    contents = Contents()
    for path in _process_files(folder):
        found = read_process_file(path, contents.problems)
        if found is not None:
            contents.files.append(found)
    closed = list(_parsed(folder / CLOSED, _read(folder / CLOSED), ClosedFile, contents.problems))
    names = {line.file for line in closed}
    contents.files = [found for found in contents.files if found.path.name not in names]
    contents.closed = [((sums.run, sums.token), account_of(sums)) for line in closed for sums in line.sums]
    return contents


def read_process_file(path: Path, problems: list[str]) -> ProcessFile | None:
    """One file, its unreadable lines added to ``problems``; None when it is empty or was closed and moved meanwhile."""
    data = _read(path)
    try:
        written_ns = path.stat().st_mtime_ns
    except FileNotFoundError:
        return None
    header, newline, rest = data.partition(b"\n")
    if not newline:
        return None
    owner = next(iter(_parsed(path, header + newline, Holder, problems)), None)
    accounts: dict[Key, Account] = {}
    for entry in _parsed(path, rest, Entry, problems, first=2):
        accounts.setdefault((entry.run, entry.token), Account()).book(entry)
    return ProcessFile(path, owner, accounts, written_ns)


def append_line(path: Path, record: Model, *, first: Model | None = None) -> None:
    """Add one line and wait until it is on the disk; ``first`` starts a new file. A half-written line is taken back.

    Raises InfrastructureError when the disk is full or the folder cannot be written.
    """
    lines = b"".join(f"{line.model_dump_json(by_alias=True)}\n".encode() for line in (first, record) if line)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | (os.O_EXCL if first else 0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, flags, 0o644)
        try:
            before = os.fstat(handle).st_size
            try:
                if os.write(handle, lines) != len(lines):
                    raise OSError(28, "no space left for a whole line")
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, before)
                raise
        finally:
            os.close(handle)
        if before == 0:
            _sync_folder(path.parent)
    except OSError as error:
        raise InfrastructureError(
            f"Cannot write to the campaign's ledger {path}: {error.strerror or error}.\n"
            "Free space or fix the permissions, then run the same command again; nothing was asked of a model."
        ) from error


def drop_torn_tail(path: Path) -> None:
    """Cut off a last line without its newline; only under the lock, for a file with several writers."""
    try:
        with open(path, "rb+") as stream:
            data = stream.read()
            stream.truncate(data.rfind(b"\n") + 1)
    except FileNotFoundError:
        return


def _process_files(folder: Path) -> list[Path]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".jsonl"))
    except FileNotFoundError:
        return []
    return [folder / name for name in names if name != CLOSED]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise InfrastructureError(f"The campaign's ledger {path} cannot be read: {error.strerror or error}.") from error


def _parsed(path: Path, data: bytes, kind: type[LineT], problems: list[str], first: int = 1) -> Iterator[LineT]:
    """Lines as records. A torn last line is passed over, any other unreadable line is a problem."""
    for number, (line, ended) in enumerate(_lines(data), first):
        try:
            yield kind.model_validate_json(line)
        except pydantic.ValidationError:
            if ended:
                problems.append(f"{path}: line {number} cannot be read")


def _lines(data: bytes) -> Iterable[tuple[bytes, bool]]:
    """Lines and whether each ends with a newline."""
    *whole, rest = data.split(b"\n")
    yield from ((line, True) for line in whole if line.strip())
    if rest:
        yield rest, False


def _sync_folder(folder: Path) -> None:
    """Make a new name durable; file systems that cannot do it for folders say EINVAL."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError:
        return
    finally:
        os.close(handle)
