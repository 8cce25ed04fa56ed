"""Fetching raw data: from the user's own folder or a card's sources, never half, with a receipt of every file.

The data set's folder is filled as a whole by renaming, and known again without reading it. ``receipt.json`` says what
the files are. A marker beside it says that the folder is ours, which source it came from, and size and time of every
file, so that a second fetch need not read them; it also outlives the receipt, which a workflow engine deletes before
it runs the rule again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from automedbench.base.cards import DataSet, Source, TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.base.files import hash_json, parse_json_object, read_record, unwritable, write_json, write_record
from automedbench.base.records import FIXTURE_OF, Downloaded, FileEntry, Receipt, now
from automedbench.datasets.download.access import Access, describe, mask_url, pinned_commit
from automedbench.datasets.download.collecting import Collector, describe_file, entries_below
from automedbench.datasets.download.transfer import ContentMismatch, SourceUnreachable, check_space
from automedbench.datasets.fetchers import PLANNERS
from automedbench.datasets.patterns import path_matcher

RECEIPT = "receipt.json"
MARKER = ".fetched-by-automedbench"
OURS = frozenset({RECEIPT, MARKER})
LOCK, NEW, REPLACED = "lock", "new", "replaced"
"""In the folder of downloads, beside these: the data set as it is put together, and the one that it replaces."""
_FICLONE = 0x40049409
"""ioctl_ficlone(2): a copy that shares the disk's blocks until one of both is changed."""
_NOTE = "Fetched by automedbench; replaced as a whole when the source changes."


# --- what is there already ------------------------------------------------------------------------------------


def current(destination: Path, identity: str, *, check: bool = False) -> Receipt | None:
    """The receipt of a finished fetch of this very source, if every file is still what it says.

    Files whose size and time are as they were are believed, others are read; with ``check`` all are. A lost receipt
    is written again.
    """
    marker = _read_marker(destination)
    if marker.get("identity") != identity:
        return None
    try:
        receipt = Receipt.model_validate(marker["receipt"])
        stamps: Mapping[str, list[int]] = marker["stamps"]
    except (KeyError, ValueError):
        return None
    there = (path.relative_to(destination).as_posix() for path in destination.rglob("*") if path.is_file())
    if set(there) - OURS != receipt.files.keys():
        return None
    other = [name for name in receipt.files if check or stamp(destination / name) != stamps.get(name)]
    for name in other:
        size = (destination / name).stat().st_size
        if size != receipt.files[name].bytes or describe_file(destination / name) != receipt.files[name]:
            print(f"{destination / name} is not what was fetched; fetching again")
            return None
    if not (destination / RECEIPT).is_file():
        write_record(destination / RECEIPT, receipt)
    if other and not check:
        _mark(destination, identity, receipt)
    return receipt


def stamp(path: Path) -> list[int]:
    """Size and time of change of a file."""
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns]


def _read_marker(destination: Path) -> dict[str, Any]:
    try:
        return parse_json_object((destination / MARKER).read_bytes()) or {}
    except OSError:
        return {}


def _mark(folder: Path, identity: str, receipt: Receipt) -> None:
    stamps = {name: stamp(folder / name) for name in receipt.files}
    described = {"note": _NOTE, "identity": identity, "receipt": receipt.model_dump(mode="json"), "stamps": stamps}
    write_json(folder / MARKER, described)


# --- what is taken --------------------------------------------------------------------------------------------


def select(origin: Path, patterns: list[str], destination: Path) -> list[str]:
    """Relative paths of a folder's regular files that the patterns take (all but git's own without patterns).

    Raises MissingDataError when there is no folder or a pattern takes nothing, InfrastructureError for links and
    special files and when the two folders contain each other, ConfigError for patterns that lead outside.
    """
    if not origin.is_dir():
        raise MissingDataError(f"{origin} is not a folder")
    inner, outer = origin.resolve(), destination.resolve()
    if inner == outer or inner in outer.parents or outer in inner.parents:
        raise InfrastructureError(f"{origin} and {destination} contain each other; keep your own copy elsewhere.")
    check_patterns(patterns)
    found: set[str] = set()
    absent = []
    for pattern in patterns or ["**/*"]:
        taken = {path.relative_to(origin).as_posix() for path in origin.glob(pattern) if not path.is_dir()}
        taken = {name for name in taken if name.split("/")[0] != ".git"}
        found |= taken
        absent += [] if taken else [f"'{pattern}'"]
    if absent:
        raise MissingDataError(f"{origin} holds nothing that matches {' or '.join(absent)}")
    for name in sorted(found):
        _refuse_special(origin / name)
    return sorted(found - OURS)


def check_patterns(patterns: list[str]) -> None:
    """Raise ConfigError for patterns that lead out of the data set's folder."""
    outside = [pattern for pattern in patterns if pattern.startswith("/") or ".." in pattern.split("/")]
    if outside:
        raise ConfigError([f"dataset.sources.files: '{pattern}' must be relative, without '..'" for pattern in outside])


def _refuse_special(path: Path) -> None:
    if not stat.S_ISREG(path.lstat().st_mode):
        raise InfrastructureError(
            f"{path} is a link or a special file; only regular files are copied.\n"
            "Make a copy with the links resolved (`cp -rL`) and give that folder."
        )


def refuse_specials(folder: Path) -> None:
    """Raise InfrastructureError for a link or special file below a folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_dir():
            _refuse_special(path)


# --- putting in place -----------------------------------------------------------------------------------------


def copy_files(origin: Path, names: list[str], folder: Path) -> dict[str, FileEntry]:
    """Copy a user's files; where the file system can, without using space twice. Never links: theirs may change."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if not _clone(origin / name, folder / name):
            shutil.copyfile(origin / name, folder / name, follow_symlinks=False)
    return entries_below(folder)


def _clone(origin: Path, target: Path) -> bool:
    try:
        with open(origin, "rb") as source, open(target, "wb") as copy:
            fcntl.ioctl(copy.fileno(), _FICLONE, source.fileno())
    except OSError:
        return False
    return True


def link_files(files: Mapping[str, Path], folder: Path) -> None:
    """Give downloaded files, which are ours, a second name below the folder."""
    for name, path in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, target)
        except OSError:
            shutil.copyfile(path, target, follow_symlinks=False)


def put(folder: Path, receipt: Receipt, identity: str, destination: Path) -> Receipt:
    """Put the finished folder in place; what this program fetched before is moved to ``REPLACED`` beside the folder.

    Where that is the same, it stays with its receipt: another time of the fetch would repeat all that depends on it.
    """
    there, time = _read_marker(destination), {"fetched_at": None}
    is_same = there.get("receipt", {}) | time == receipt.model_dump(mode="json") | time
    if is_same and (known := current(destination, there.get("identity", ""), check=True)):
        _mark(destination, identity, known)
        return known
    if destination.is_dir() and any(destination.iterdir()) and not (destination / MARKER).is_file():
        raise InfrastructureError(
            f"{destination} holds other files that this program did not fetch; they are left alone.\n"
            "Move them away, then run the same command again."
        )
    _mark(folder, identity, receipt)
    write_record(folder / RECEIPT, receipt)
    if destination.exists():
        os.rename(destination, folder.with_name(REPLACED))
    os.rename(folder, destination)
    return receipt


# --- beside the destination -----------------------------------------------------------------------------------


@contextlib.contextmanager
def open_downloads(destination: Path) -> Iterator[Path]:
    """The folder of downloads that are not finished, for one process at a time; what is of no use in it is removed."""
    folder = destination.parent / f".{destination.name}.download"
    with _lock(folder):
        _restore(folder, destination)
        try:
            yield folder
        finally:
            _restore(folder, destination)
            if not any(path for name in ("done.json", "body", "body.part") for path in folder.glob(f"*/{name}")):
                shutil.rmtree(folder, ignore_errors=True)


def _restore(folder: Path, destination: Path) -> None:
    """Undo a replacement that ended between its two renames, and remove what is left of any other."""
    with contextlib.suppress(OSError):  # there is none, or the destination is filled
        os.rename(folder / REPLACED, destination)
    for name in (NEW, REPLACED):
        shutil.rmtree(folder / name, ignore_errors=True)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            stream = open(folder / LOCK, "ab")  # noqa: SIM115 - closed below, in two places
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"Another process fetches into {folder}; waiting for it")
            fcntl.flock(stream, fcntl.LOCK_EX)
        # Who held the lock before may have removed the file.
        if (folder / LOCK).exists() and os.path.samestat(os.fstat(stream.fileno()), os.stat(folder / LOCK)):
            break
        stream.close()
    with stream:
        yield


_UNPINNED = "skipped, because the card gives neither commit nor checksum to verify it"


def fetch_dataset(
    card: TaskCard, override: Path | None, destination: Path, access: Access | None = None, *, check: bool = False
) -> Receipt:
    """Fill ``destination`` with the card's raw data and a receipt; fetching the same again changes nothing.

    ``override`` is the user's own copy, in the layout of the card's first source; without it the card's sources are
    tried in order; one that gives other content than the card knows is warned of and passed over.
    ``check``: read all files that are there instead of believing their size and time.

    What was downloaded before an error or a kill is kept beside the destination, for the next call. Raises
    MissingDataError with the reason of every source and the way to get the data when none works, ContentMismatch when
    one of them gave something wrong, InfrastructureError when the disk is full or the destination holds files of
    someone else.
    """
    access = access or Access()
    sources = [_own_copy(card.dataset, override)] if override is not None else card.dataset.sources
    for source in sources:
        known = current(destination, _identity(source, access), check=check) if source.kind != "path" else None
        if known is not None:
            return known
    failures: list[InfrastructureError] = []
    passed_over: list[str] = []
    if not sources:
        raise _nothing(card, sources, failures)
    for source, following in zip(sources, [*sources[1:], None], strict=True):
        if passed_over and not _is_pinned(source):
            failures.append(MissingDataError(_UNPINNED))
            continue
        try:
            return _fetch(card.dataset, source, destination, access, check, passed_over)
        except (MissingDataError, ContentMismatch) as error:
            failures.append(error)
            described = _describe_failure(source, error)
            passed_over += [described] if isinstance(error, ContentMismatch) else []
            if following is not None:
                warning = "Warning: not taken from" if isinstance(error, ContentMismatch) else "Not had from"
                print(f"{warning} {described}. Next: {describe(following)}", flush=True)
        except InfrastructureError as error:
            raise type(error)(f"{card.id}: {error}") from error
    raise _nothing(card, sources, failures) from failures[0]


def _is_pinned(source: Source) -> bool:
    """Return whether the card pins the source's content: by a commit, or checksums."""
    return all(
        pinned_commit(part) is not None or bool(part.downloads and all(each.checksum for each in part.downloads))
        for part in (source, *source.also)
    )


def _nothing(card: TaskCard, sources: list[Source], failures: list[InfrastructureError]) -> InfrastructureError:
    """The error when no source worked: each one's reason on a line of its own, then what a person can do."""
    wrong = [error for error in failures if isinstance(error, ContentMismatch)]
    if wrong and len(failures) == 1:
        return ContentMismatch(f"{card.id}: {wrong[0]}")
    name = card.dataset.name
    how = f"How to get it: {_flat(card.dataset.how_to_get)}."
    if f"{name}: {{path" not in how:
        how += f" Your own copy is named by `datasets: {{{name}: {{path: <folder>}}}}`."
    if any(isinstance(error, SourceUnreachable) for error in failures):
        how += " Another place with the host's files is named by `fetch: {mirrors: {<host>: <URL>}}`."
    if not failures:
        head = f"No raw data for '{name}': its card names no source."
    elif len(failures) == 1:
        head = f"No raw data for '{name}': {_flat(failures[0])}."
    else:
        described = [f"- {_describe_failure(source, error)}" for source, error in zip(sources, failures, strict=True)]
        head = "\n".join([f"No raw data for '{name}': none of its {len(sources)} sources worked.", *described])
    return (ContentMismatch if wrong else MissingDataError)(f"{head}\n{how} (card: {card.id})")


def _describe_failure(source: Source, error: Exception) -> str:
    """Source and reason on one line; of other content what was found, as the next source may be right."""
    reason = _flat(str(error).partition("\n")[0] if isinstance(error, ContentMismatch) else error)
    return reason if mask_url(source.where) in reason else f"{describe(source)}: {reason}"


def _flat(error: Exception | str) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _own_copy(dataset: DataSet, override: Path) -> Source:
    parts = [part for first in dataset.sources[:1] for part in (first, *first.also)]
    # A part without patterns may hold anything.
    files = [pattern for part in parts for pattern in part.files] if all(part.files for part in parts) else []
    return Source(kind="path", where=str(override), files=files)


def _identity(source: Source, access: Access) -> str:
    """Digest that identifies a finished fetch."""
    parts = (source, *source.also)
    # Without what has its default: a field that cards gain later must not fetch everything again.
    described = [part.model_dump(mode="json", exclude={"credentials", "also"}, exclude_defaults=True) for part in parts]
    return hash_json([described, access.stand_in])


def _fetch(
    dataset: DataSet, source: Source, destination: Path, access: Access, check: bool, passed_over: list[str]
) -> Receipt:
    if source.kind == "path":
        return _copy(dataset, source, destination, access, check)
    for part in (source, *source.also):
        check_patterns(part.files)
    with open_downloads(destination) as folder:
        known = current(destination, _identity(source, access), check=check)
        if known is not None:  # another process fetched it while this one waited
            return known
        collector = Collector(folder, access)
        if dataset.download_gb and not access.stand_in and not access.offline:
            there = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            check_space(folder, max(0, int(dataset.download_gb * 1e9) - there), f"'{dataset.name}'")
        found, downloads, revision = _collect(source, collector)
        entries = {name: entry for name, (_, entry) in sorted(found.items())}
        receipt = _receipt(dataset, source, revision, entries, downloads, access, passed_over)
        with _writing(destination):
            (ready := folder / NEW).mkdir()
            link_files({name: path for name, (path, _) in found.items()}, ready)
            put(ready, receipt, _identity(source, access), destination)
        for place in folder.iterdir():
            if place.name != LOCK:
                shutil.rmtree(place, ignore_errors=True)
        return receipt


def _collect(
    source: Source, collector: Collector
) -> tuple[dict[str, tuple[Path, FileEntry]], list[Downloaded], str | None]:
    """Path → place and content of all that the source and those beside it give, what was downloaded, the revision."""
    found: dict[str, tuple[Path, FileEntry]] = {}
    downloads: list[Downloaded] = []
    revisions: list[str | None] = []
    for part in (source, *source.also):
        with collector.planning():
            plan = PLANNERS[part.kind](part, collector)
        collected = collector.all(plan.items)
        own: dict[str, tuple[Path, FileEntry]] = {}
        wanted = path_matcher(part.files)
        for item, got in zip(plan.items, collected, strict=True):
            ready = collector.place_of(item) / "ready"
            if item.tree:
                refuse_specials(ready)
            own |= {
                path: (ready / path, entry) for path, entry in got.files.items() if wanted(path) and path not in own
            }
            downloads.append(got.downloaded)
        for pattern in part.files:
            takes = path_matcher([pattern])
            if not any(takes(path) for path in own):
                examples = ", ".join(sorted(path for got in collected for path in got.files)[:3]) or "nothing else"
                raise MissingDataError(f"{describe(part)}: expected files that match '{pattern}', found {examples}")
        found = own | found
        known = [got.downloaded.revision for got in collected if got.downloaded.revision]
        stood_in = part.revision if collector.access.stand_in else None
        revisions.append(stood_in or plan.revision or (known[0] if known else None))
    return found, downloads, revisions[0]


def _copy(dataset: DataSet, source: Source, destination: Path, access: Access, check: bool) -> Receipt:
    """Take the user's own folder; unchanged files that were copied before are not read again."""
    origin = Path(source.where)
    if not access.stand_in and (origin / RECEIPT).is_file() and read_record(origin / RECEIPT, Receipt).made_up:
        raise InfrastructureError(
            f"{origin} holds made-up data, as its {RECEIPT} says; expected your own copy of '{dataset.name}'.\n"
            f"Change datasets.{dataset.name}.path, or remove it."
        )
    names = select(origin, source.files, destination)
    # A fixture's folder is made anew each time.
    stamps = None if access.stand_in else [[name, *stamp(origin / name)] for name in names]
    identity = hash_json(["path", str(origin.resolve()), stamps])
    known = current(destination, identity, check=check) if stamps is not None else None
    if known is not None:
        return known
    with _writing(destination), open_downloads(destination) as place:
        (folder := place / NEW).mkdir()
        entries = copy_files(origin, names, folder)
        receipt = _receipt(dataset, source, None, entries, [], access)
        return put(folder, receipt, identity, destination)


def _receipt(
    dataset: DataSet,
    source: Source,
    revision: str | None,
    files: dict[str, FileEntry],
    downloads: list[Downloaded],
    access: Access,
    passed_over: Sequence[str] = (),
) -> Receipt:
    described = " + ".join(describe(part) for part in (source, *source.also))
    if access.stand_in:
        described = FIXTURE_OF + ("path" if source.kind == "path" else described)
    return Receipt(
        dataset=dataset.name,
        source=described,
        revision=revision,
        licence=dataset.licence,
        attribution=dataset.attribution,
        fetched_at=now(),
        files=files,
        downloads=downloads,
        passed_over=list(passed_over),
    )


@contextlib.contextmanager
def _writing(destination: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unwritable(destination, error) from error
