"""A source's files, several at a time, each complete or not there: downloaded, checked, unpacked, in its place.

Every item has a folder of its own, named by the digest of what it is, that outlives the process: ``body`` (and
``body.part``) is the download, ``ready/`` holds the files in their places below the data set's folder, ``done.json``
says that the item is complete and what it is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field

from automedbench.base.errors import AutoMedBenchError, InfrastructureError, MissingDataError, is_machine_fault
from automedbench.base.files import hash_json, read_record, write_record
from automedbench.base.records import Downloaded, FileEntry, Model
from automedbench.datasets.download import archives, transfer
from automedbench.datasets.download.access import Access

EVERY_S = 60.0
LISTED = 3

UNPACKED = 1.3
"""Bytes on disk per byte of an archive, where the card does not say: medical archives hardly compress."""


@dataclass(frozen=True)
class DownloadItem:
    """One thing to get."""

    name: str
    """For messages and the receipt: no query, no credentials."""
    identity: object
    """All that decides the content; JSON."""
    get: Callable[[Path, transfer.DownloadProgress], bool]
    """Writes the file (or fills the folder, for a ``tree``); returns whether it continued an earlier download."""
    client: str
    place: str = ""
    """Path of the file below the data set's folder, or folder that an archive is unpacked into."""
    single: str = ""
    """Path of what a lone compressed file holds."""
    unpack: bool = False
    tree: bool = False
    checksum: str | None = None
    """``algorithm:hexadecimal`` as published."""
    bytes: int | None = None
    request: transfer.Request | None = None
    """What ``get`` asks for, where that is one file over HTTP."""
    revision: Callable[[], str | None] = lambda: None
    wanted: Callable[[str], bool] = lambda path: True


class FinishedItem(Model):
    """``done.json``: an item that is complete."""

    downloaded: Downloaded
    files: dict[str, FileEntry] = Field(description="path below the data set's folder → content")


@dataclass
class Collector:
    """Gets items into folders below one folder."""

    folder: Path
    access: Access
    watch: transfer.DownloadProgress = field(default_factory=transfer.DownloadProgress)
    _plans: list[DownloadItem] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch.patience_s = self.access.patience_s

    def place_of(self, item: DownloadItem) -> Path:
        """The item's own folder."""
        return self.folder / hash_json(item.identity)

    def is_done(self, item: DownloadItem) -> bool:
        """Return whether the item is complete."""
        return (self.place_of(item) / "done.json").is_file()

    def planned_by(self, item: DownloadItem) -> Path:
        """The file of an item that says which others there are; an interrupted fetch goes on with the same one."""
        self._plans.append(item)
        self.one(item)
        return self.place_of(item) / "ready" / item.place

    @contextlib.contextmanager
    def planning(self) -> Iterator[None]:
        """Discard the listing on failure, so that the next call requests it anew when it lacks the card's files."""
        try:
            yield
        except transfer.SourceUnreachable:
            raise
        except AutoMedBenchError:
            for item in self._plans:
                self.forget(item)
            raise

    def forget(self, item: DownloadItem) -> None:
        """Throw away what there is of an item."""
        shutil.rmtree(self.place_of(item), ignore_errors=True)

    def all(self, items: Sequence[DownloadItem]) -> list[FinishedItem]:
        """Every item, in order. Those that work are kept when others fail; then the first failure is raised."""
        missing = [item for item in items if not self.is_done(item)]
        absent = [item.name for item in missing if not (self.place_of(item) / "body").is_file()]
        if self.access.offline and absent:
            names = ", ".join(absent[:LISTED]) + (f" and {len(absent) - LISTED} more" if len(absent) > LISTED else "")
            raise MissingDataError(f"offline, and {len(absent)} of {len(items)} files are not downloaded: {names}")
        self._check_space(missing)
        with self._progress(missing):
            failures = self._in_parallel(missing)
        if failures:
            raise _joined(failures, sum(map(self.is_done, items)), len(items))
        return [self.one(item) for item in items]

    def one(self, item: DownloadItem) -> FinishedItem:
        """One item, from wherever an earlier attempt ended."""
        place = self.place_of(item)
        done = place / "done.json"
        if done.is_file():
            return read_record(done, FinishedItem)
        place.mkdir(parents=True, exist_ok=True)
        scratch, ready = place / "unpacking", place / "ready"
        for folder in (scratch, ready):
            shutil.rmtree(folder, ignore_errors=True)
        scratch.mkdir()
        try:
            found = self._tree(item, scratch) if item.tree else self._file(item, place, scratch)
        except OSError as error:
            if not is_machine_fault(error):
                raise
            raise transfer.write_error(error, place.parent) from error
        scratch.rename(ready)
        write_record(done, found)
        (place / "body").unlink(missing_ok=True)
        return found

    def _tree(self, item: DownloadItem, scratch: Path) -> FinishedItem:
        self._online(item)
        item.get(scratch, self.watch)
        files = entries_below(scratch)
        downloaded = Downloaded(
            name=item.name,
            bytes=sum(entry.bytes for entry in files.values()),
            sha256=None,
            published=None,
            revision=item.revision(),
            client=item.client,
        )
        return FinishedItem(downloaded=downloaded, files=files)

    def _file(self, item: DownloadItem, place: Path, scratch: Path) -> FinishedItem:
        body = place / "body"
        downloaded = self._body(item, body)
        if not item.unpack:
            target = scratch / item.place
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(body, target)
            entry = FileEntry(sha256=downloaded.sha256 or "", bytes=downloaded.bytes)
            return FinishedItem(downloaded=downloaded, files={item.place: entry})
        try:
            files = archives.unpack(
                body,
                scratch,
                item.place,
                item.single,
                wanted=lambda path: self._wanted(item, path),
                name=item.name,
                room=lambda count: transfer.check_space(place, count, item.name),
            )
        except transfer.NoSpace:
            raise
        except InfrastructureError as error:
            body.unlink()
            raise transfer.ContentMismatch(str(error)) from error
        return FinishedItem(downloaded=downloaded, files=files)

    def _body(self, item: DownloadItem, body: Path) -> Downloaded:
        """Download and check; what was put together from two attempts and is wrong is downloaded once more as one."""
        while True:
            continued = False
            if not body.is_file():
                self._online(item)
                continued = item.get(body, self.watch)
            if archives.is_web_page(body) and not item.name.lower().endswith((".html", ".htm", ".xml")):
                body.unlink()
                raise MissingDataError(
                    f"{item.name}: expected the file, found a web page (a login, or a licence to accept)"
                )
            algorithm, _, expected = (item.checksum or "").partition(":")
            found = transfer.digests(body, *{"sha256", algorithm or "sha256"})
            size = body.stat().st_size
            right = (not expected or found[algorithm] == expected) and item.bytes in (None, size)
            if right:
                return Downloaded(
                    name=item.name, bytes=size, sha256=found["sha256"], published=item.checksum, client=item.client
                )
            body.unlink()
            if not continued:
                what = f"{algorithm} {found[algorithm]}" if expected and item.bytes in (None, size) else f"{size} bytes"
                wanted = expected if expected and item.bytes in (None, size) else f"{item.bytes} bytes"
                raise transfer.ContentMismatch(
                    f"{item.name}: found {what}, expected {wanted}.\n"
                    "The source changed or the download is damaged; this file was thrown away, nothing was installed."
                )

    def _online(self, item: DownloadItem) -> None:
        if self.access.offline:
            raise MissingDataError(f"offline, and {item.name} is not downloaded")

    def _check_space(self, items: Sequence[DownloadItem]) -> None:
        sizes = [(item.bytes or 0, item.unpack) for item in items]
        largest = max((size for size, packed in sizes if packed), default=0)
        needed = sum(int(size * UNPACKED) if packed else size for size, packed in sizes) + largest
        if needed:
            transfer.check_space(self.folder, needed, "this data set")

    @contextlib.contextmanager
    def _progress(self, items: Sequence[DownloadItem]) -> Iterator[None]:
        """Tells bytes and files of the items in the log, a line a minute and one at the end."""
        total = sum(item.bytes or 0 for item in items)
        of = f" of {total / 1e6:.1f}" if total and all(item.bytes is not None for item in items) else ""
        end, begun = threading.Event(), time.monotonic()

        def text() -> str:
            return f"{self.watch.done / 1e6:.1f}{of} MB, {sum(map(self.is_done, items))} of {len(items)} files"

        def lines() -> None:
            while not end.wait(EVERY_S):
                with contextlib.suppress(OSError):
                    print(text(), file=sys.stderr, flush=True)

        thread = threading.Thread(target=lines, daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join(5)
            if items:
                print(f"Downloaded {text()} in {time.monotonic() - begun:.0f} s", file=sys.stderr)

    def _in_parallel(self, items: Sequence[DownloadItem]) -> list[Exception]:
        """Get the items; what failed. After a failure that others would share nothing new is begun.

        Who interrupts waits for a block or a member of an archive.
        """
        failures: list[Exception] = []

        def attempt(item: DownloadItem) -> None:
            if not all(map(_only_this, failures)):
                return
            try:
                self.one(item)
            except Exception as error:
                failures.append(error)

        pool = ThreadPoolExecutor(max(1, self.access.workers))
        try:
            list(pool.map(attempt, items))
        except BaseException:
            self.watch.stop.set()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        return failures

    def _wanted(self, item: DownloadItem, path: str) -> bool:
        """Return whether a member of an archive is extracted; raises Stopped on a request to stop."""
        self.watch.advance(0)
        return item.wanted(path)


def entries_below(folder: Path) -> dict[str, FileEntry]:
    """Content of every file below a folder."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name: describe_file(folder / name) for name in names}


def describe_file(path: Path) -> FileEntry:
    """Content of one file."""
    return FileEntry(sha256=transfer.digests(path, "sha256")["sha256"], bytes=path.stat().st_size)


def _link(body: Path, target: Path) -> None:
    """A second name for the download, so that a kill between two steps does not lose it."""
    try:
        os.link(body, target)
    except OSError:
        body.rename(target)


def _only_this(error: Exception) -> bool:
    """Return whether the failure is of this file alone, not of credentials, network or disk."""
    return isinstance(error, AutoMedBenchError) and not isinstance(
        error, (transfer.SourceUnreachable, transfer.NoSpace)
    )


def _joined(failures: list[Exception], kept: int, of: int) -> Exception:
    """The failure to raise: a bug before all, then one of this machine, then other content, then a lack of data."""
    ranks = ((AutoMedBenchError, 1), (transfer.ContentMismatch, 1), (MissingDataError, 2))
    first = min(failures, key=lambda error: sum(rank for kind, rank in ranks if isinstance(error, kind)))
    if of == 1 or not isinstance(first, AutoMedBenchError):
        return first
    head, line, rest = str(first).partition("\n")
    more = f"{of - kept - 1} more not had, " if of > kept + 1 else ""
    return type(first)(f"{head.rstrip('.')} ({more}{kept} of {of} files are kept){'.' if line else ''}{line}{rest}")
