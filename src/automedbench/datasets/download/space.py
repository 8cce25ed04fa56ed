"""Room on the disk: looked for before a download, named when it ends."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from automedbench.base.errors import InfrastructureError

KEPT_FREE = 100 * 2**20
"""Bytes of the disk that are never filled."""


class NoSpace(InfrastructureError):
    """The disk is full, or would be."""


def free_bytes(folder: Path) -> int:
    """Bytes that may still be written below the folder."""
    return shutil.disk_usage(folder).free


def check_space(folder: Path, needed: int, what: str) -> None:
    """Raise InfrastructureError when ``needed`` bytes do not fit on the disk of the folder."""
    free = free_bytes(folder)
    if needed + KEPT_FREE > free:
        raise no_space(folder, f"{what} needs about {_gb(needed)}, {_gb(free)} are free")


def no_space(folder: Path, what: str) -> NoSpace:
    """The error for a disk that is full, or will be."""
    return NoSpace(
        f"Not enough space in {folder}: {what}.\n"
        "What is downloaded so far is kept. Free space, or set data.raw to another disk; then run the same again."
    )


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def write_error(error: OSError, folder: Path) -> InfrastructureError:
    """The error for a file that could not be written below the folder."""
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return no_space(folder, reason)
    return InfrastructureError(
        f"Cannot write below {folder}: {reason}.\nWhat is downloaded so far is kept. Fix that, then run the same again."
    )
