"""Scratch folders, gone when this process is gone, however it ended: also after ``kill -9``, which cleans nothing up.

A caretaker, one small process per driver, gets each folder over a socket. When that ends it removes what is
left. It has a session of its own, so that Ctrl-C in a terminal does not reach it; standard library only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from automedbench.base.errors import InfrastructureError
from automedbench.sandbox.container.helper import HelperProcess, module_command

LEAST_BYTES = 16 * 1024**2
"""Free space below which no run is begun: profiles, start-up files and sockets of a run take a few megabytes."""
_MAKE_ROOM = "Free space there, or set TMPDIR to a larger folder on a disk of this machine."
PATIENCE_S = 60.0
"""How long the caretaker tries: the supervisors of code calls need some seconds to end what still writes there."""


def why_no_scratch() -> str:
    """Problem of this machine's temporary folder, with the remedy; empty when it has room."""
    try:
        # Where TMPDIR names a full folder, Python silently takes another: perhaps the working directory.
        folder = os.environ.get("TMPDIR") or tempfile.gettempdir()
        facts = os.statvfs(folder)
    except OSError as error:
        return f"No temporary folder can be used: {error.strerror or error}.\n{_MAKE_ROOM}"
    free = facts.f_bavail * facts.f_frsize
    if free < LEAST_BYTES or (facts.f_files and not facts.f_favail):
        return f"The temporary folder {folder} is full: {free} bytes, {facts.f_favail} files are free.\n{_MAKE_ROOM}"
    return "" if os.access(folder, os.W_OK) else f"The temporary folder {folder} cannot be written.\n{_MAKE_ROOM}"


def make_scratch(prefix: str, parent: Path | None = None) -> Path:
    """A new private folder on this node, below the machine's temporary folder or ``parent``.

    Raises InfrastructureError when the temporary folder is full or cannot be written.
    """
    if parent is None and (problem := why_no_scratch()):
        raise InfrastructureError(problem)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent)).resolve()
    _notify("+", folder)
    return folder


def remove_scratch(folder: Path) -> None:
    """Remove such a folder, also one whose permissions the agent took away; may be called twice."""
    remove_tree(folder)
    if not os.path.lexists(folder):
        _notify("-", folder)


@contextlib.contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """Such a folder for the block; it is gone when this process is, however it ends."""
    folder = make_scratch(prefix)
    try:
        yield folder
    finally:
        remove_scratch(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder as far as possible, without following links; never raises."""
    repair_modes(folder)
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):  # an agent can nest folders deeper than Python follows
        _remove_deep(str(folder))


MAX_ENTRIES = 2_000_000  # files and folders that a walk looks at
MAX_DEPTH = 500  # folders within folders; each level costs a walk two descriptors


class Unseen(Exception):
    """Something below a folder that a walk cannot reach."""


def walk(
    folder: str | os.PathLike[str], *, strict: bool = True, device: int | None = None
) -> Iterator[tuple[int, str, os.stat_result]]:
    """Every entry below a folder, as a descriptor of its folder, its path below the top one and its status.

    No link is followed. Paths may be longer than the kernel takes, and folders whose mode forbids their owner anything
    are opened for it again. What vanishes meanwhile is left out. Raises Unseen for what cannot be reached; where it is
    not ``strict``, that is left out too. With ``device`` no folder of another file system is entered.
    """
    levels: list[tuple[int, Any, str]] = []
    try:
        _enter(levels, folder, None, "")
        while levels:
            at, listing, above = levels[-1]
            entry = next(listing, None)
            if entry is None:
                _leave(levels)
                continue
            with contextlib.suppress(FileNotFoundError, *(() if strict else (OSError, Unseen))):
                found = os.stat(entry.name, dir_fd=at, follow_symlinks=False)
                yield at, f"{above}{entry.name}", found
                if stat.S_ISDIR(found.st_mode) and device in (None, found.st_dev):
                    _enter(levels, entry.name, at, f"{above}{entry.name}/")
    except OSError as error:
        raise Unseen(f"{error.strerror}") from error
    finally:
        while levels:
            _leave(levels)


def _leave(levels: list[tuple[int, Any, str]]) -> None:
    at, listing, _ = levels.pop()
    listing.close()
    os.close(at)


def _enter(levels: list[tuple[int, Any, str]], name: str | os.PathLike[str], at: int | None, path: str) -> None:
    if len(levels) >= MAX_DEPTH:
        raise Unseen(f"folders are nested deeper than {MAX_DEPTH} levels")
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        descriptor = _open_folder(name, at)
        levels.append((descriptor, os.scandir(descriptor), path))


def _open_folder(name: str | os.PathLike[str], at: int | None) -> int:
    """A descriptor of a folder, whose mode is changed where it forbids its owner anything; raises OSError."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(name, flags | os.O_PATH, dir_fd=at)
    try:
        _permit(handle, 0o700)
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)


def _remove_deep(folder: str) -> None:
    for command in (["chmod", "-R", "u+rwx", "--", folder], ["rm", "-rf", "--", folder]):
        with contextlib.suppress(OSError):
            subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


MAX_REPAIRED = 200_000
"""Files and folders below a folder whose modes are repaired."""


def repair_modes(folder: Path) -> None:
    """Give the owner of a folder back what it may do with all below: enter, list and change folders, read files.

    By descriptor: below ``folder`` itself no link is followed and no other file system entered. Never raises; what
    lies deeper than a walk goes or behind 200 000 entries stays as it is.
    """
    left = MAX_REPAIRED
    with contextlib.suppress(OSError, Unseen):
        for at, path, found in walk(os.path.realpath(folder), strict=False, device=os.stat(folder).st_dev):
            if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
                continue
            if (left := left - 1) < 0:
                return
            if stat.S_ISREG(found.st_mode) and not found.st_mode & 0o400:
                _let_read(at, path.rpartition("/")[2])


def _let_read(folder: int, name: str) -> None:
    """Let its owner read a file of an open folder, if that is its only name: others may lie elsewhere."""
    with contextlib.suppress(OSError):
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            status = os.fstat(handle)
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                _permit(handle, 0o400)
        finally:
            os.close(handle)


def _permit(handle: int, bits: int) -> None:
    """Add bits to the mode of what a descriptor of ``O_PATH`` is open at."""
    status = os.fstat(handle)
    if status.st_mode & bits != bits:
        with contextlib.suppress(OSError):
            os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(status.st_mode) | bits)


# --- the caretaker ---------------------------------------------------------------------------------------------

_lock = threading.Lock()
_caretakers: dict[int, HelperProcess] = {}
"""Process id → its caretaker. A forked child has one of its own."""


def _notify(sign: str, folder: Path) -> None:
    with _lock:
        mine = os.getpid()
        if mine not in _caretakers:
            for inherited in _caretakers.values():
                inherited.control.close()
            _caretakers.clear()
            _caretakers[mine] = HelperProcess("the caretaker", module_command(__name__), PATIENCE_S)
        with contextlib.suppress(OSError):
            _caretakers[mine].control.sendall(os.fsencode(f"{sign}{folder}\n"))


def main(arguments: list[str]) -> None:
    """Read ``+folder`` and ``-folder`` until the driver is gone, then remove what was not taken back."""
    left: set[str] = set()
    with open(int(arguments[0]), encoding="utf-8", errors="surrogateescape") as orders:
        for line in orders:
            folder = line[1:].rstrip("\n")
            if line.startswith("+"):
                left.add(folder)
            else:
                left.discard(folder)
    deadline = time.monotonic() + PATIENCE_S
    while left and time.monotonic() < deadline:
        for folder in sorted(left):
            remove_tree(Path(folder))
        left = {folder for folder in left if os.path.lexists(folder)}
        time.sleep(0.2 if left else 0)
