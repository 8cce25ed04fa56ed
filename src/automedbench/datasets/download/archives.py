"""Archives of others: unpacked so that nothing can be written outside a folder, and no more than is sensible.

Refused as a whole: absolute names, ``..``, links, devices, encrypted members, more members or bytes than the limits.
Passed over: what file managers leave in archives, and members that no pattern takes.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Literal, cast

from automedbench.base.errors import InfrastructureError
from automedbench.base.records import FileEntry

Kind = Literal["zip", "tar", "tar.gz", "gz"]
BLOCK = 1 << 20
_SUFFIXES = re.compile(r"\.(zip|tar|tgz|gz)$", re.IGNORECASE)
_JUNK = re.compile(r"(^|/)(__MACOSX/|\._|\.DS_Store$|Thumbs\.db$|desktop\.ini$)", re.IGNORECASE)
_TAR_MAGIC = slice(257, 262)
_DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, gzip.BadGzipFile, EOFError)


MOST_MEMBERS = 3_000_000
MOST_RATIO, ALWAYS = 200, 2 * 2**30
"""An archive may become so many bytes per byte of it, but that many bytes in any case."""


class _MemberRefused(Exception):
    """The archive is not one, is damaged, or holds what is not unpacked."""


def is_archive_name(name: str) -> bool:
    """Return whether files of this name are unpacked by default; compressed volumes are not."""
    return _SUFFIXES.search(name) is not None and not name.lower().endswith(".nii.gz")


def archive_kind(path: Path) -> Kind | None:
    """Archive format by a file's first bytes; None for other files."""
    with open(path, "rb") as stream:
        head = stream.read(512)
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return "zip"
    if head[_TAR_MAGIC] == b"ustar":
        return "tar"
    if head[:2] != b"\x1f\x8b":
        return None
    try:
        with gzip.open(path) as inner:
            return "tar.gz" if inner.read(512)[_TAR_MAGIC] == b"ustar" else "gz"
    except (OSError, EOFError, zlib.error):
        return "gz"


def unpack(
    archive: Path,
    folder: Path,
    place: str,
    single: str,
    *,
    wanted: Callable[[str], bool] = lambda path: True,
    name: str = "",
    room: Callable[[int], None] = lambda count: None,
) -> dict[str, FileEntry]:
    """Unpack into ``folder`` below ``place`` (empty: directly); returns path below ``folder`` → content.

    ``single`` is the path of what a lone compressed file holds. ``wanted`` gets paths below ``folder``; the others are
    passed over. ``room`` is told the bytes that will be written as soon as they are known, and may raise.
    Raises InfrastructureError, naming ``name``, when it is no archive, is damaged, or holds what is refused.
    """
    kind = archive_kind(archive)
    call = name or archive.name
    try:
        if kind is None:
            raise _MemberRefused(f"expected a zip, tar or gz archive, found {_looks_like(archive)}")
        writer = _ArchiveWriter(folder, wanted, max(ALWAYS, MOST_RATIO * archive.stat().st_size))
        if kind == "gz":
            with gzip.open(archive) as stream:
                writer.write(single, cast(IO[bytes], stream))
        else:
            prefix = f"{place}/" if place else ""
            for path, read in _members(archive, kind, room, lambda path: writer.takes(prefix + path)):
                writer.write(prefix + path, read())
    except _MemberRefused as error:
        raise InfrastructureError(
            f"{call}: {error}.\nNothing of it was kept. Compare it with the card's `layout`; if the download was "
            "damaged, run the same command again."
        ) from None
    except _DAMAGE as error:
        raise InfrastructureError(
            f"{call}: expected a whole {kind} archive, found a damaged one ({str(error) or type(error).__name__}).\n"
            "Nothing of it was kept; run the same command again to download it anew."
        ) from error
    return writer.written


class _ArchiveWriter:
    """Writes members below a folder, counts, and notes what they hold."""

    def __init__(self, folder: Path, wanted: Callable[[str], bool], most: int) -> None:
        self._folder, self._wanted, self._left = folder, wanted, most
        self._most = most
        self.written: dict[str, FileEntry] = {}

    def takes(self, path: str) -> bool:
        """Return whether a member is extracted."""
        return not _JUNK.search(path) and self._wanted(path)

    def write(self, path: str, stream: IO[bytes]) -> None:
        """One file; a later member of the same name replaces an earlier one, as archivers do."""
        if not self.takes(path):
            return
        if len(self.written) >= MOST_MEMBERS:
            raise _MemberRefused(f"more than {MOST_MEMBERS} files")
        target = self._folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        digest, size = hashlib.sha256(), 0
        with stream, open(target, "wb") as out:
            while block := stream.read(BLOCK):
                size += len(block)
                if size > self._left:
                    raise _MemberRefused(f"it unpacks to more than {self._most} bytes")
                digest.update(block)
                out.write(block)
        self._left -= size
        self.written[path] = FileEntry(sha256=digest.hexdigest(), bytes=size)


_Member = tuple[str, Callable[[], IO[bytes]]]


def _members(archive: Path, kind: Kind, room: Callable[[int], None], taken: Callable[[str], bool]) -> Iterator[_Member]:
    """Path and reader of every file; raises _MemberRefused for what is neither file nor folder."""
    if kind == "zip":
        yield from _zipped(archive, room, taken)
        return
    with tarfile.open(archive, "r|gz" if kind == "tar.gz" else "r|", bufsize=BLOCK) as tar:
        for count, entry in enumerate(tar):
            if count >= MOST_MEMBERS:
                raise _MemberRefused(f"more than {MOST_MEMBERS} members")
            if entry.isdir() or _JUNK.search(entry.name):
                continue
            path = _safe(entry.name)
            if not entry.isreg():
                raise _MemberRefused(f"'{path}' is a link or a special file")
            if taken(path):
                yield path, lambda entry=entry, tar=tar: cast(IO[bytes], tar.extractfile(entry))  # type: ignore[misc]


def _zipped(archive: Path, room: Callable[[int], None], taken: Callable[[str], bool]) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as opened:
        entries = [entry for entry in opened.infolist() if not entry.is_dir() and not _JUNK.search(entry.filename)]
        if len(entries) > MOST_MEMBERS:
            raise _MemberRefused(f"more than {MOST_MEMBERS} members")
        chosen = []
        for entry in entries:
            path = _safe(entry.filename)
            mode = entry.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                raise _MemberRefused(f"'{path}' is a link or a special file")
            if entry.flag_bits & 0x1:
                raise _MemberRefused(f"'{path}' is encrypted")
            if taken(path):
                chosen.append((path, entry))
        room(sum(entry.file_size for _, entry in chosen))
        for path, entry in chosen:
            try:
                stream = opened.open(entry)
            except RuntimeError as error:
                raise _MemberRefused(
                    f"'{path}' is compressed in a way that Python cannot read; unpack it by hand"
                ) from error
            yield path, lambda stream=stream: stream  # type: ignore[misc]


def _safe(name: str) -> str:
    path = safe_path(name)
    if path is None:
        raise _MemberRefused(f"the name {name[:80]!r} is empty or leads outside of the folder")
    return path


def safe_path(name: str) -> str | None:
    """A name as a path below a folder, None where it leads out of it; archives of Windows may hold backslashes."""
    path = name.replace("\\", "/")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    absolute = path.startswith("/") or re.match(r"[A-Za-z]:", path)
    if absolute or ".." in parts or not parts or "\0" in path or any(len(part.encode()) > 255 for part in parts):
        return None
    return "/".join(parts)


def _looks_like(path: Path) -> str:
    with open(path, "rb") as stream:
        head = stream.read(512).lstrip().lower()
    if not head:
        return "an empty file"
    if head.startswith((b"<!doctype html", b"<html")):
        return "a web page (a login, a licence to accept, or a message of the host)"
    if head.startswith((b"{", b"[", b"<?xml")):
        return "a message of the host"
    return "something else"


def is_web_page(path: Path) -> bool:
    """Return whether a file is HTML, which hosts send when they want a login."""
    return "web page" in _looks_like(path)
