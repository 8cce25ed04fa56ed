"""Workspaces of attempts: where they lie while an agent works, and how they are put away into archives.

``attempts/0001/workspace`` is a folder, or with ``scratch`` a link to one on a disk of the node. While it is there, it
is the workspace; when it is not, ``outputs.tar`` and ``workspace.tar`` are. Archives are whole before the attempt is
sealed, and folders are removed after that, so a kill at any moment loses neither.

A workspace on scratch comes home when its attempt is interrupted, so that it goes on on any node. After ``kill -9`` or
with a lost node it does not: on the same node the attempt goes on with what lies there, on another one it cannot.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import write_text
from automedbench.base.reserve import is_disk_full
from automedbench.sandbox.airlock.archive import OUTPUTS, REST, is_evidence, pack, unpack
from automedbench.sandbox.container.scratch import remove_tree, walk

WORKSPACE, CALLS = "workspace", "log/exec"
OWNER = "attempt"
"""File on scratch beside a workspace: the attempt that it is of."""
UNFINISHED, YOUNG_S = ".workspace", 3600.0


def open_workspace(attempt: Path, scratch: str | None) -> None:
    """Make the attempt's workspace where it has none: empty, or as it was put away when the attempt was interrupted.

    ``scratch`` may name environment variables of the node. Raises InfrastructureError when it cannot be made.
    """
    place = attempt / WORKSPACE
    if os.path.lexists(place):
        return
    try:
        folder = _make_on_scratch(attempt, scratch) if scratch else attempt / UNFINISHED
        remove_tree(folder)
        folder.mkdir()
        for archive in (attempt / OUTPUTS, attempt / REST):
            if archive.is_file():
                unpack(archive, folder)
        if scratch:
            place.symlink_to(folder)
        else:
            folder.rename(place)
    except OSError as error:
        raise InfrastructureError(f"Cannot make {place}: {error.strerror or error}.") from error


def is_lost(attempt: Path) -> bool:
    """The workspace lay on scratch, and is not on this node."""
    place = attempt / WORKSPACE
    return not place.is_dir() and (place.is_symlink() or not (attempt / OUTPUTS).is_file())


SMALL_BYTES = 1 << 20
"""Of a file that is kept of a workspace that fills the disk."""


def put_away(attempt: Path, expected: Mapping[str, int] | None = None) -> None:
    """Write the archives: outputs, the rest, the code calls. Nothing may write there any more.

    Where the disk is full, all but small and ``expected`` files (path → largest size) are removed first. Raises
    InfrastructureError when there is no room all the same; with None, nothing is removed.
    """
    try:
        _pack_workspace(attempt)
    except InfrastructureError as error:
        if expected is None or not is_disk_full(error):
            raise
        _shed(attempt / WORKSPACE, expected)
        _pack_workspace(attempt)
    if (attempt / CALLS).is_dir():
        pack(attempt / CALLS, attempt / f"{CALLS}.tar")


def remove_loose(attempt: Path) -> None:
    """Remove what the archives of a sealed attempt hold; may be repeated."""
    if (attempt / OUTPUTS).is_file():
        _remove_workspace(attempt)
    if (attempt / f"{CALLS}.tar").is_file():
        remove_tree(attempt / CALLS)


def take_home(attempt: Path) -> None:
    """Bring a workspace from scratch into the archives of its interrupted attempt.

    Raises InfrastructureError when the disk is full; it then stays where it is.
    """
    if (attempt / WORKSPACE).is_symlink() and not is_lost(attempt):
        _pack_workspace(attempt)
        _remove_workspace(attempt)


def _pack_workspace(attempt: Path) -> None:
    place = (attempt / WORKSPACE).resolve()
    pack(place, attempt / OUTPUTS, is_evidence)
    pack(place, attempt / REST, lambda path: not is_evidence(path))


def _shed(workspace: Path, expected: Mapping[str, int]) -> None:
    """Remove large files that no score needs."""
    for at, path, found in walk(workspace.resolve(), strict=False):
        if not stat.S_ISDIR(found.st_mode) and found.st_blocks * 512 > expected.get(path, SMALL_BYTES):
            with contextlib.suppress(OSError):
                os.unlink(path.rpartition("/")[2], dir_fd=at)


def _remove_workspace(attempt: Path) -> None:
    """The folder on scratch goes first: without its link, nothing would name it."""
    place = attempt / WORKSPACE
    if place.is_symlink():
        remove_tree(place.resolve().parent)
        place.unlink()
    else:
        remove_tree(place)


# --- scratch ---------------------------------------------------------------------------------------------------


def _make_on_scratch(attempt: Path, scratch: str) -> Path:
    """A folder of this process's own there; raises InfrastructureError without one."""
    parent, node = Path(os.path.expandvars(scratch)), socket.gethostname()
    if "$" in str(parent):
        raise InfrastructureError(
            f"scratch: '{scratch}' names a variable that is not set on {node}.\n"
            "Name a folder that every node has, or leave scratch out (null)."
        )
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _sweep(parent)
        folder = Path(tempfile.mkdtemp(prefix=f"automedbench-{node}-", dir=parent)).resolve()
        write_text(folder / OWNER, str(attempt.absolute()))
    except OSError as error:
        raise InfrastructureError(
            f"scratch: {parent} on {node} cannot be used: {error.strerror or error}.\n"
            "Free space there, or name another folder of the nodes."
        ) from error
    return folder / WORKSPACE


def _sweep(parent: Path) -> None:
    """Remove what killed drivers left on this node and no attempt needs any more."""
    for owner in parent.resolve().glob(f"automedbench-{socket.gethostname()}-*/{OWNER}"):
        with contextlib.suppress(OSError):
            attempt = Path(owner.read_text())
            others = (path for path in attempt.parent.glob("[0-9]*") if path.name > attempt.name)
            # A young one may be about to get its link.
            left = attempt.is_dir() and time.time() - owner.stat().st_mtime > YOUNG_S
            left = left and os.path.realpath(attempt / WORKSPACE) != str(owner.parent / WORKSPACE)
            if left or any((path / "run.json").is_file() for path in others):
                remove_tree(owner.parent)
