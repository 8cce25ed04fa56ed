"""Archives of what an agent left: two tar files per attempt, and what they hold as a folder again for who reads it.

``outputs.tar`` holds ``agents_outputs/`` and ``plan/``, which are evidence: every score can be made again from it.
``workspace.tar`` holds the rest, which ``automedbench prune`` may take. Both are plain tar, which any machine reads
without privileges. Holes stay holes, times are exact, and links, pipes and hard links stay what they were, so that a
collector sees of an archive what it would have seen of the workspace (docs/decisions.md).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Collection, Iterator, Mapping
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import atomic_path, read_record
from automedbench.base.records import FileEntry, SubmissionRecord
from automedbench.campaign.record import RunFiles
from automedbench.sandbox.airlock.collector import MAX_VISITED
from automedbench.sandbox.container.scratch import repair_modes, scratch_folder, walk

OUTPUTS, REST = "outputs.tar", "workspace.tar"
PRUNED = "pruned.txt"
"""File of an attempt that lists what was taken out of ``workspace.tar``, and when."""
EVIDENCE = frozenset({"agents_outputs", "plan"})
"""Folders of a workspace that are packed into ``outputs.tar``."""

MAX_PATH, COPIED = 4000, 1 << 20
MAX_HEADER = 64 * 1024
"""Bytes of a name, or of what else is said about a member."""
_EXTENDED = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
MAX_PIECES = 10_000
"""Parts of one file between its holes; one with more is left out."""
LARGEST_HOLE = 1 << 40
LARGEST_SPARSE = 8**11
"""Bytes of data from which Python's reader misses where a file with holes ends: such a file is packed as a whole."""
FREE_DATA, DATA_PER_BLOCK = 1 << 30, 100
"""Bytes of data that a file may claim beyond a hundred times what it takes on the disk, where holes are unknown."""
HARD_LINK = "AUTOMEDBENCH.nlink"
"""Header of a file that had several names, also where the others are not in the archive."""

Wanted = Callable[[str], bool]


def is_evidence(path: str) -> bool:
    """Check whether a path of a workspace is packed into ``outputs.tar``."""
    return path.partition("/")[0] in EVIDENCE


def pack(folder: Path, archive: Path, wanted: Wanted = lambda _path: True) -> None:
    """Write all below ``folder`` whose path is ``wanted`` into ``archive``, in one piece. No process may write there.

    What cannot be read, and sockets, are left out. Raises InfrastructureError when the archive cannot be written.
    """
    repair_modes(folder)
    known: dict[tuple[int, int], str] = {}
    with atomic_path(archive) as temporary, tarfile.open(temporary, "w:", format=tarfile.PAX_FORMAT) as tar:
        for at, path, found in walk(folder, strict=False):
            if wanted(path):
                _add(tar, at, path, found, known)


def _add(tar: tarfile.TarFile, at: int, path: str, found: os.stat_result, known: dict[tuple[int, int], str]) -> None:
    info, name = tarfile.TarInfo(path), path.rpartition("/")[2]
    info.mode, info.mtime = stat.S_IMODE(found.st_mode), max(0, int(found.st_mtime))
    info.pax_headers = {"mtime": format(Decimal(found.st_mtime_ns).scaleb(-9), "f")}
    with contextlib.ExitStack() as stack:
        content = None
        if stat.S_ISDIR(found.st_mode):
            info.type = tarfile.DIRTYPE
        elif stat.S_ISFIFO(found.st_mode):
            info.type = tarfile.FIFOTYPE
        elif stat.S_ISLNK(found.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=at)
        elif not stat.S_ISREG(found.st_mode):
            return
        elif (found.st_dev, found.st_ino) in known:
            info.type, info.linkname = tarfile.LNKTYPE, known[found.st_dev, found.st_ino]
        else:
            try:
                handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
            except OSError:
                return
            stack.callback(os.close, handle)
            pieces = _find_data(handle, found)
            if pieces is None:
                return
            if found.st_nlink > 1:
                info.pax_headers = {**info.pax_headers, HARD_LINK: str(found.st_nlink)}
                known[found.st_dev, found.st_ino] = path
            content = _MemberContent(handle, _describe(info, found.st_size, pieces), pieces)
            info.size = content.length
        tar.addfile(info, content)
        tar.members.clear()  # type: ignore[attr-defined]  # of two million files they would take gigabytes


def _find_data(handle: int, found: os.stat_result) -> list[tuple[int, int]] | None:
    """Data segments of a sparse file as offsets and lengths (bytes); None when it claims more than it can have."""
    pieces: list[tuple[int, int]] = []
    at = 0
    while at < found.st_size and len(pieces) <= MAX_PIECES:
        try:
            start = os.lseek(handle, at, os.SEEK_DATA)
            at = min(os.lseek(handle, start, os.SEEK_HOLE), found.st_size)
        except OSError as error:
            # ENXIO: only a hole is left. Others: a file system that does not report holes.
            pieces = pieces if error.errno == errno.ENXIO else [(0, found.st_size)]
            break
        pieces.append((start, at - start))
    if sum(length for _, length in pieces) >= LARGEST_SPARSE:
        pieces = [(0, found.st_size)]
    most = FREE_DATA + DATA_PER_BLOCK * 512 * found.st_blocks
    return pieces if len(pieces) <= MAX_PIECES and sum(length for _, length in pieces) <= most else None


def _describe(info: tarfile.TarInfo, size: int, pieces: list[tuple[int, int]]) -> bytes:
    """Header of a sparse file's data in GNU format 1.0; empty for a file without holes."""
    if pieces == [(0, size)] or not size:
        return b""
    chunks = pieces if pieces and sum(pieces[-1]) == size else [*pieces, (size, 0)]
    info.pax_headers = {
        **info.pax_headers,
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": info.name,
        "GNU.sparse.realsize": str(size),
    }
    text = "".join(f"{number}\n" for number in (len(chunks), *(each for piece in chunks for each in piece))).encode()
    return text + bytes(-len(text) % tarfile.BLOCKSIZE)


class _MemberContent:
    """A description, then the pieces of an open file; zeros where the file has become shorter."""

    def __init__(self, handle: int, description: bytes, pieces: list[tuple[int, int]]) -> None:
        self._handle, self._description, self._pieces = handle, description, list(reversed(pieces))
        self.length = len(description) + sum(length for _, length in pieces)

    def read(self, size: int = tarfile.RECORDSIZE, /) -> bytes:
        """The next ``size`` bytes, less at the end."""
        data, self._description = self._description[:size], self._description[size:]
        while self._pieces and len(data) < size:
            at, left = self._pieces.pop()
            wanted = min(left, size - len(data))
            found = os.pread(self._handle, wanted, at) or bytes(wanted)
            data += found
            if left > len(found):
                self._pieces.append((at + len(found), left - len(found)))
        return data


# --- and out of them again ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _open_archive(archive: Path) -> Iterator[tuple[tarfile.TarFile, Iterator[tarfile.TarInfo]]]:
    """An archive and what it holds; raises InfrastructureError when it, or what is made of it, fails."""
    if not archive.is_file():
        raise InfrastructureError(
            f"{archive} does not exist.\nRestore it, or move the run's folder away to repeat the run."
        )
    try:
        with read_archive(archive) as opened:
            yield opened
    except (tarfile.TarError, OSError, ValueError, EOFError, ArithmeticError) as error:
        raise InfrastructureError(
            f"{archive} cannot be unpacked: {getattr(error, 'strerror', None) or error}.\n"
            "Free space in the temporary folder (TMPDIR), or restore the file, then run the same command again."
        ) from error


@contextlib.contextmanager
def read_archive(archive: Path) -> Iterator[tuple[tarfile.TarFile, Iterator[tarfile.TarInfo]]]:
    """An archive of any origin, and its members one by one; raises TarError for a header longer than any is."""
    with tarfile.open(archive, "r:", tarinfo=_BoundedHeader) as tar:
        yield tar, _members(tar)


class _BoundedHeader(tarfile.TarInfo):
    """Header of a member; Python's reader takes minutes for a long one."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _EXTENDED and self.size > MAX_HEADER:
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (member := tar.next()) is not None:
        tar.members.clear()  # type: ignore[attr-defined]
        yield member


def unpack(
    archive: Path,
    folder: Path,
    content: Callable[[str, int], bool] = lambda _path, _size: True,
    wanted: Wanted = lambda _path: True,
) -> list[Path]:
    """Lay what is ``wanted`` of an archive out in ``folder``.

    A file that ``content`` (path, bytes) does not ask for is a hole of its size. Returns the files that had several
    names in the workspace. Raises InfrastructureError when the archive is damaged or there is no room.
    """
    folders: dict[str, tarfile.TarInfo | None] = {"": None}
    linked = []
    with _open_archive(archive) as (tar, members):
        for member in members:
            place = folder / member.name
            if not _is_inside(folders, member.name) or len(os.fsencode(place)) > MAX_PATH or not wanted(member.name):
                continue
            if os.path.lexists(place):  # what is written there would go through a link of that name
                raise InfrastructureError(f"{archive} holds '{member.name}' twice: it was not packed here.")
            if member.isdir():
                place.mkdir(0o700)
                folders[member.name] = member
                continue
            if member.islnk():
                with contextlib.suppress(FileNotFoundError):
                    if _is_inside(folders, member.linkname):
                        os.link(folder / member.linkname, place, follow_symlinks=False)
                continue
            if member.issym():
                place.symlink_to(member.linkname)
            elif member.isfifo():
                os.mkfifo(place)
            elif content(member.name, member.size):
                tar.makefile(member, place)
            else:
                _make_hole(place, member.size)
            linked += [place] if HARD_LINK in member.pax_headers else []
            _restore(place, member)
        for name, recorded in reversed(folders.items()):
            if recorded is not None:
                _restore(folder / name, recorded)
    return linked


def is_plain(name: str) -> bool:
    """Check that a member's path is normalised and stays below the folder that it is extracted to."""
    path = PurePosixPath(name)
    return not path.is_absolute() and path.as_posix() == name and ".." not in path.parts and "\0" not in name


def _is_inside(folders: Collection[str], path: str) -> bool:
    """Check that the path is in an extracted folder; links never count, so that no path leads through one."""
    return path.rpartition("/")[0] in folders and not path.startswith("/")


def _make_hole(place: Path, size: int) -> None:
    with open(place, "xb") as stream:
        stream.truncate(min(size, LARGEST_HOLE))


def _restore(place: Path, member: tarfile.TarInfo) -> None:
    recorded = member.pax_headers.get("mtime", member.mtime)
    changed = int(Decimal(str(recorded)).scaleb(9))
    os.utime(place, ns=(changed, changed), follow_symlinks=False)
    if not member.issym():
        place.chmod(member.mode & 0o777)


@contextlib.contextmanager
def unpack_outputs(run: Path, expected: Mapping[str, int]) -> Iterator[Path]:
    """A folder on this node with what an agent left of its outputs and plan, gone afterwards.

    Only of ``expected`` files (path → largest size) there is more than name, kind and size, and of others only the
    first. Raises InfrastructureError when the archive is damaged or there is no room.
    """
    with scratch_folder("automedbench-outputs-") as scratch:
        workspace = scratch / "workspace"
        workspace.mkdir()
        wanted = _names_to_look_at(expected)
        linked = unpack(run / OUTPUTS, workspace, lambda path, size: size <= expected.get(path, -1), wanted)
        for number, path in enumerate(linked):
            os.link(path, scratch / str(number))  # the collector refuses what has a second name
        yield workspace


def _names_to_look_at(expected: Collection[str]) -> Wanted:
    """The expected files, the folders that they are in, and as many other names as a collector looks at."""
    needed, others = {*expected}, itertools.count()
    needed |= {str(folder) for path in expected for folder in PurePosixPath(path).parents}
    return lambda path: path in needed or next(others) < MAX_VISITED


@contextlib.contextmanager
def unpack_workspace(run: Path) -> Iterator[Path]:
    """A folder on this node with all that is kept of a run's workspace, gone afterwards.

    Raises InfrastructureError as ``unpack_outputs`` does.
    """
    with scratch_folder("automedbench-workspace-") as scratch:
        unpack(run / OUTPUTS, scratch)
        if (run / REST).is_file():
            unpack(run / REST, scratch)
        yield scratch


@contextlib.contextmanager
def unpack_submission(files: RunFiles) -> Iterator[Path]:
    """A folder on this node with the files that were collected of a run, gone afterwards.

    They are stored once, among the outputs; ``submission.json`` says which of them count, and ``submission/`` holds
    what collecting made anew. Raises InfrastructureError as ``unpack_outputs`` does.
    """
    made = files.file("submission")
    record = read_record(files.file("submission.json"), SubmissionRecord)
    with scratch_folder("automedbench-submission-") as scratch:
        names = collected_files(record)
        with _open_archive(files.file(OUTPUTS)) as (tar, members):
            for member in members:
                entry = names.get(member.name)
                is_collected = entry is not None and member.isreg() and member.size == entry.bytes
                if is_collected and is_plain(member.name):
                    place = scratch / member.name
                    place.parent.mkdir(parents=True, exist_ok=True)
                    tar.makefile(member, place)
        if made.is_dir():
            shutil.copytree(made, scratch, copy_function=shutil.copyfile, dirs_exist_ok=True)
        yield scratch


def collected_files(record: SubmissionRecord) -> dict[str, FileEntry]:
    """Everything that was collected: path in a submission → size and digest."""
    cases = {f"agents_outputs/{path}": entry for case in record.cases for path, entry in case.files.items()}
    return cases | record.extra


# --- less of them ----------------------------------------------------------------------------------------------


def list_members(archive: Path) -> Iterator[tuple[str, int]]:
    """Path and bytes in the archive of everything that it holds. Raises InfrastructureError when it is damaged."""
    with _open_archive(archive) as (tar, members):
        for path, start, end in _member_ranges(tar, members):
            yield path, end - start


def drop_members(archive: Path, unwanted: Wanted) -> None:
    """Write the archive anew without what is ``unwanted``; it is whole at every moment.

    Raises InfrastructureError when it is damaged or the disk is full.
    """
    with (
        _open_archive(archive) as (tar, members),
        open(archive, "rb") as source,
        atomic_path(archive) as temporary,
        open(temporary, "wb") as target,
    ):
        for path, start, end in _member_ranges(tar, members):
            if not unwanted(path):
                _copy(source, target, start, end)
        target.write(bytes(2 * tarfile.BLOCKSIZE))
        target.flush()


def _member_ranges(tar: tarfile.TarFile, members: Iterator[tarfile.TarInfo]) -> Iterator[tuple[str, int, int]]:
    """Path of each member, and where it begins and ends with its headers."""
    last = next(members, None)
    for member in members:
        assert last is not None
        yield last.name, last.offset, member.offset
        last = member
    if last is not None:
        yield last.name, last.offset, tar.offset


def _copy(source: BinaryIO, target: BinaryIO, start: int, end: int) -> None:
    source.seek(start)
    for at in range(start, end, COPIED):
        target.write(source.read(min(COPIED, end - at)))
