"""Cache behind hub mirror and package index: files by their SHA-256, and what was answered to which address.

One folder on the campaign's storage serves the processes of all runs, on all nodes. ``blobs`` holds whole, verified
files; ``parts`` what is on its way, each locked (flock) by the process that fills it, so that a killed one leaves a
part that the next goes on with; ``notes`` say which answer an address gave. The folder can be deleted at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import write_bytes, write_json

FRESH_S = 600.0
"""For so long what may change (listings, branches) is answered without asking again."""
KEPT_FREE = 2**30
"""Bytes of the disk that are never filled."""
MAX_FILES, MAX_NOTES = 50_000, 100_000
"""More entries than about these are never kept, however small they are."""
LOOK_S = 60.0
"""How often at least what came in small pieces is counted."""
MAX_FILLS, MAX_WHOLE = 8, 4
"""Large files that one run fetches at a time, and small answers that are held in memory."""
PARTS = ("blobs", "parts", "notes")
"""Its folders: whole files, files during their download, what is known of each answer."""
CACHE_FIX = "Set sandbox.egress.cache to a folder that can be written and locked, or to null."


@dataclass(frozen=True)
class Stored:
    """An answer of status 200. ``fixed``: its address never gives another; ``at``: when it came, in seconds of UTC.

    ``file``: under which name it lies, where that is not its SHA-256.
    """

    sha256: str
    size: int
    headers: dict[str, str]
    fixed: bool
    at: float
    file: str = ""

    @property
    def name(self) -> str:
        """Its place in the cache."""
        return self.file or self.sha256

    @property
    def is_fresh(self) -> bool:
        """True when there is no need to ask again."""
        return self.fixed or 0 <= time.time() - self.at < FRESH_S


class Cache:
    """``alone``: answers come from here and from nowhere else."""

    def __init__(self, folder: Path, max_bytes: int, *, alone: bool = False) -> None:
        """Raises InfrastructureError when the folder cannot be written or keeps no locks."""
        self.folder, self.max_bytes, self.alone = folder, max_bytes, alone
        self.fills, self.whole = 0, asyncio.Semaphore(MAX_WHOLE)
        self._new, self._looked = 0, time.monotonic()
        try:
            for name in PARTS:
                (folder / name).mkdir(parents=True, exist_ok=True)
            with open(folder / "lock", "ab") as stream:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            raise InfrastructureError(f"The cache {folder} cannot be used: {error.strerror}.\n{CACHE_FIX}") from error

    def find(self, key: str) -> Stored | None:
        """Look up the cached answer of an address, if its file is still there; it counts as used now."""
        try:
            stored = Stored(**json.loads(self._note(key).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None
        with contextlib.suppress(OSError):
            os.utime(self._note(key))
        return stored if self.holds(stored.name) == stored.size else None

    def holds(self, name: str) -> int | None:
        """Size of a whole file, None where it does not exist; it counts as used now."""
        path = self.blob(name)
        with contextlib.suppress(OSError):
            os.utime(path)
            return path.stat().st_size
        return None

    def blob(self, name: str) -> Path:
        """Path of a complete file."""
        return self.folder / "blobs" / name

    def part(self, name: str) -> Path:
        """Path of a file during its download."""
        return self.folder / "parts" / name

    def has_room(self, size: int) -> bool:
        """True when a file of this size may be kept."""
        return size <= self.max_bytes and size + KEPT_FREE < shutil.disk_usage(self.folder).free

    def claim(self, name: str) -> int | None:
        """A descriptor of the part, locked as long as it is open; None while another process has it."""
        part = self.part(name)
        file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Who had the lock before may have moved or removed the part.
            if os.path.samestat(os.fstat(file), part.stat()):
                return file
        os.close(file)
        return None

    def add(self, name: str, content: bytes) -> None:
        """Keep a small verified file."""
        write_bytes(self.blob(name), content)
        self._count(name)

    def keep(self, name: str) -> None:
        """A claimed part is whole and verified: from now on it is there for all."""
        os.replace(self.part(name), self.blob(name))
        self._count(name)

    def _count(self, name: str) -> None:
        """Count a new file, and make room now and then."""
        with contextlib.suppress(FileNotFoundError):
            self._new += self.blob(name).stat().st_size
        if self._new > self.max_bytes / 100 or time.monotonic() - self._looked > LOOK_S:
            self._new, self._looked = 0, time.monotonic()
            self._make_room(self.blob(name))

    def note(self, key: str, stored: Stored) -> None:
        """Store the answer of an address; the least recently used are evicted now and then."""
        note = self._note(key)
        note.parent.mkdir(exist_ok=True)
        write_json(note, asdict(stored))
        if random.random() < 1 / 8:
            for old in sorted(note.parent.iterdir(), key=_last_use)[: -MAX_NOTES // 256]:
                old.unlink(missing_ok=True)

    def _note(self, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / "notes" / name[:2] / name

    def _make_room(self, kept: Path) -> None:
        """Remove what was not used for longest, until the rest is within the limit."""
        sizes = {path: facts.st_size for path, facts in sorted(self._files(), key=lambda item: item[1].st_mtime)}
        over, many = sum(sizes.values()) - self.max_bytes, len(sizes) - MAX_FILES
        for path, size in sizes.items():
            if over <= 0 and many <= 0:
                return
            if path != kept and self._remove(path):
                over, many = over - size, many - 1

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for kind in ("blobs", "parts"):
            for path in (self.folder / kind).iterdir():
                with contextlib.suppress(FileNotFoundError):
                    yield path, path.stat()

    def _remove(self, path: Path) -> bool:
        """Remove a file, unless it is a part that some process fills."""
        if path.parent.name == "blobs":
            path.unlink(missing_ok=True)
            return True
        file = self.claim(path.name)
        if file is not None:
            path.unlink(missing_ok=True)
            os.close(file)
        return file is not None


def _last_use(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
