"""Disk space that is held back for the end of a run: a file beside its log, given up when the disk is full.

With it log, journal and result can still be written, however an agent filled the disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

RESERVE = ".reserve"
RESERVE_BYTES = 64 * 2**20
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_held: list[Path] = []


@contextlib.contextmanager
def hold_reserve(*folders: Path) -> Iterator[None]:
    """Hold 64 MiB back in each of these folders within the block, as far as there is room."""
    for file in (folder / RESERVE for folder in folders):
        with contextlib.suppress(OSError), open(file, "wb") as stream:
            _held.append(file)
            os.posix_fallocate(stream.fileno(), 0, RESERVE_BYTES)
    try:
        yield
    finally:
        give_up_reserve()
        _held.clear()


def give_up_reserve() -> bool:
    """Remove what is held back; false where nothing was."""
    there = [file for file in _held if file.exists()]
    for file in there:
        file.unlink(missing_ok=True)
    return bool(there)


def makes_room(error: BaseException | None) -> bool:
    """Give the reserve up after an error of a full disk: what failed may be tried once more."""
    return is_disk_full(error) and give_up_reserve()


def is_disk_full(error: BaseException | None) -> bool:
    """Check for an operating system's error of a full disk or quota, also as the cause of one of ours."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return isinstance(error, OSError) and error.errno in _FULL


def is_reserve_used() -> bool:
    """Check whether a reserve of this process had to be given up."""
    return any(not file.exists() for file in _held)
