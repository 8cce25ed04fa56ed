"""Collector, the import airlock: copies regular files of expected names and sizes out of a workspace, and nothing else.

The workspace is hostile: every component is opened relative to its parent's descriptor without following links, and
nothing is decided about a file but through the descriptor that it is then read from. Archives are never unpacked, and
nothing waits: not for the writer of a pipe, not for a lock or a lease. Normally every process of the agent has ended by
then; the rules hold while one still runs. Rules: docs/specification.md, 9.4.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from automedbench.base.files import new_folder, unwritable
from automedbench.base.records import FileEntry, Rejected, RejectedReason

MAX_UNEXPECTED = 200
MAX_VISITED = 10_000
MAX_DEPTH = 16
BLOCK = 1024 * 1024

_HOLE = bytes(BLOCK)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO must not wait for a writer. O_NOCTTY: a terminal must not become ours.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True)
class Collected:
    """Files collected from a workspace; paths relative to it. Expected files that are missing are in no list."""

    files: dict[str, FileEntry]
    extra: dict[str, FileEntry]
    rejected: list[Rejected]


class _FileRefused(Exception):
    """A file stays behind, for this reason."""

    def __init__(self, reason: RejectedReason, target: str | None = None) -> None:
        self.reason: RejectedReason = reason
        self.target = target
        super().__init__(reason)


@dataclass
class _Tray:
    """The unfinished destination, and the refusals so far."""

    folder: Path
    owners: frozenset[int]
    rejected: list[Rejected] = field(default_factory=list)
    unexpected: int = 0

    def reject(self, path: str, reason: RejectedReason, target: str | None = None) -> None:
        """Record why a file stays behind; of unexpected files only the first 200."""
        if reason == "unexpected":
            self.unexpected += 1
            if self.unexpected > MAX_UNEXPECTED:
                return
        self.rejected.append(Rejected(path=_printable(path), reason=reason, target=target and _printable(target)))


def collect(
    workspace: Path, expected: Mapping[str, int], destination: Path, extra: Mapping[str, int] | None = None
) -> Collected:
    """Copy the ``expected`` and ``extra`` files (relative path → largest size in bytes) to ``destination``.

    The copies are read-only files below the same relative paths; ``destination`` is replaced as a whole. Everything
    else below the top folders of ``expected`` is left behind. Refusals are listed: all of those of expected files, and
    the first 200 of other ones.

    Raises InfrastructureError when the workspace cannot be read or the destination cannot be written.
    """
    optional = dict(extra or {})
    for path in [*expected, *optional]:
        _check_name(path)
    try:
        with _opened_workspace(workspace) as (root, owners), new_folder(destination, replace=True) as folder:
            tray = _Tray(folder, owners)
            copied = {path: _collect_one(root, path, limit, tray) for path, limit in expected.items()}
            added = {path: _collect_one(root, path, limit, tray) for path, limit in optional.items()}
            known = {*expected, *optional}
            # What stands in the place of one of these folders was reported with each file that should lie in it.
            folders = {str(folder) for path in known for folder in PurePosixPath(path).parents}
            for top in sorted({PurePosixPath(path).parts[0] for path in expected}):
                _list_unexpected(root, top, known | folders, tray)
    except OSError as error:
        raise unwritable(destination, error) from error
    return Collected(_drop_missing(copied), _drop_missing(added), tray.rejected)


def read_beneath(workspace: Path, path: str, limit: int) -> bytes | None:
    """Content of one regular file of a workspace by the same rules; None when it does not exist or is refused."""
    try:
        _check_name(path)
        with _opened_workspace(workspace) as (root, owners), _opened_file(root, path, limit, owners) as handle:
            data = os.read(handle, limit + 1)
            return data if len(data) <= limit else None
    except (_FileRefused, OSError, ValueError):
        return None


def _drop_missing(entries: Mapping[str, FileEntry | None]) -> dict[str, FileEntry]:
    return {path: entry for path, entry in entries.items() if entry is not None}


def _check_name(path: str) -> None:
    """Expected names come from the card and our code; a bad one is a bug, not the agent's doing."""
    parts = path.split("/")
    if path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"expected path {path!r} is not a plain relative path")


@contextlib.contextmanager
def _opened_workspace(workspace: Path) -> Iterator[tuple[int, frozenset[int]]]:
    """Descriptor of the workspace and the owners that its files may have."""
    root = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield root, frozenset({os.fstat(root).st_uid, os.geteuid()})
    finally:
        os.close(root)


def _collect_one(root: int, path: str, limit: int, tray: _Tray) -> FileEntry | None:
    """Copy one file; None when it does not exist or was refused, which the tray records."""
    with contextlib.ExitStack() as stack:
        try:
            try:
                handle = stack.enter_context(_opened_file(root, path, limit, tray.owners))
            except FileNotFoundError:  # of the destination it would be a fault of the machine
                return None
            return _copy(handle, tray.folder / path, limit)
        except _FileRefused as refused:
            tray.reject(path, refused.reason, refused.target)
            return None


@contextlib.contextmanager
def _opened_file(root: int, path: str, limit: int, owners: frozenset[int]) -> Iterator[int]:
    """Open a file beneath ``root``, following nothing; raises FileNotFoundError or _FileRefused."""
    with contextlib.ExitStack() as stack:
        handle = _open_path(stack, root, path)
        _check(os.fstat(handle), limit, owners)
        yield handle


def _open_path(stack: contextlib.ExitStack, root: int, path: str) -> int:
    """Open component by component; raises FileNotFoundError, or _FileRefused with what is in the way."""
    *folders, name = path.split("/")
    if {"", ".", ".."} & {*folders, name}:
        raise _FileRefused("unreadable")
    here = root
    for folder in folders:
        here = _open(stack, here, folder, _FOLDER)
    return _open(stack, here, name, _FILE)


def _open(stack: contextlib.ExitStack, parent: int, name: str, flags: int) -> int:
    try:
        handle = os.open(name, flags, dir_fd=parent)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _describe_refusal(parent, name, error) from error
    stack.callback(os.close, handle)
    return handle


def _describe_refusal(parent: int, name: str, error: OSError) -> _FileRefused | FileNotFoundError:
    """Name the reason why a component could not be opened."""
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return _FileRefused("unreadable")
    kind = _kind(status)
    if kind == "link":
        return _FileRefused("link", _read_target(parent, name))
    if kind is None and error.errno == errno.ENOTDIR:
        return FileNotFoundError(name)  # a file where a folder is expected: the file below it does not exist
    return _FileRefused("unreadable" if kind is None or kind == "directory" else kind)


def _read_target(parent: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=parent)
    except OSError:
        return None


def _kind(status: os.stat_result) -> RejectedReason | None:
    """Kind of a path that is not a regular file."""
    mode = status.st_mode
    if stat.S_ISLNK(mode):
        return "link"
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISFIFO(mode):
        return "fifo"
    if stat.S_ISSOCK(mode):
        return "socket"
    return None if stat.S_ISREG(mode) else "device"


def _check(status: os.stat_result, limit: int, owners: frozenset[int]) -> None:
    kind = _kind(status)
    if kind is not None:
        raise _FileRefused(kind)
    if status.st_nlink != 1:
        raise _FileRefused("hardlink")
    # In a container without user mapping an agent owns all its files; another's file was put there by other means.
    if status.st_uid not in owners:
        raise _FileRefused("unreadable")
    if status.st_size > limit:
        raise _FileRefused("too_large")


def _copy(handle: int, target: Path, limit: int) -> FileEntry:
    """Copy and hash one open file; a file that grows past its limit or changes meanwhile is refused.

    Holes stay holes, so that a copy takes no more room than the workspace was allowed to.
    """
    before = os.fstat(handle)
    digest = hashlib.sha256()
    size = 0
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(target, "xb") as stream:
            while block := _read(handle):
                size += len(block)
                if size > limit:
                    raise _FileRefused("too_large")
                digest.update(block)
                if block == _HOLE:
                    stream.seek(size)
                else:
                    stream.write(block)
            stream.truncate(size)
            stream.flush()
            os.fsync(stream.fileno())
        if size != before.st_size or _version(before) != _version(os.fstat(handle)):
            raise _FileRefused("unreadable")
    except _FileRefused:
        target.unlink()
        raise
    os.chmod(target, 0o444)
    return FileEntry(sha256=digest.hexdigest(), bytes=size)


def _version(status: os.stat_result) -> tuple[int, ...]:
    """Fingerprint that changes with the content, owner and link count of a file."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_nlink


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, BLOCK)
    except OSError as error:
        raise _FileRefused("unreadable") from error


def _list_unexpected(root: int, top: str, known: set[str], tray: _Tray) -> None:
    """List what lies below ``top`` and is not ``known``, in order of name, within bounds."""
    pending = [top]
    visited = 0
    while pending and visited < MAX_VISITED:
        folder = pending.pop()
        for name, is_folder, target in _entries(root, folder):
            visited += 1
            path = f"{folder}/{name}"
            if is_folder and path.count("/") < MAX_DEPTH:
                pending.append(path)
            elif path not in known:
                tray.reject(path, "unexpected", target)


def _entries(root: int, folder: str) -> list[tuple[str, bool, str | None]]:
    """Name, is it a folder, link target of each entry; nothing when the folder cannot be opened without links."""
    with contextlib.ExitStack() as stack:
        here = root
        try:
            for part in folder.split("/"):
                here = _open(stack, here, part, _FOLDER)
            with os.scandir(here) as found:
                bounded = itertools.islice(found, MAX_VISITED)
                names = [(entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in bounded]
        except (OSError, _FileRefused):
            return []
        return [(name, folder_, _read_target(here, name) if link else None) for name, folder_, link in sorted(names)]


def _printable(text: str) -> str:
    """File names are bytes that an agent chose: escape what is not printable UTF-8 and keep them short."""
    clean = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in clean)[:500]
