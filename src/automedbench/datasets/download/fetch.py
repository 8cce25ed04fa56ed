"""Fetching raw data: from the user's own folder or a card's sources, never half, with a receipt of every file."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from automedbench.base.cards import DataSet, Source, TaskCard
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.files import digest_of, read_record
from automedbench.base.records import FIXTURE_OF, Downloaded, FileEntry, Receipt, now
from automedbench.datasets.download.access import Access, commit_of, describe, shown
from automedbench.datasets.download.collecting import Collector
from automedbench.datasets.download.install import (
    MARKER,
    RECEIPT,
    check_patterns,
    check_pointers,
    copy_in,
    current,
    downloads_of,
    link_in,
    put,
    refuse_specials,
    scratch,
    select,
    stamp,
)
from automedbench.datasets.download.transfer import OtherContent, Unreachable, check_space
from automedbench.datasets.fetchers import get_planner
from automedbench.datasets.patterns import taker

__all__ = ["MARKER", "RECEIPT", "describe", "fetch_dataset"]

_UNPINNED = "not asked, because the card knows neither commit nor checksum to hold it against"


def fetch_dataset(
    card: TaskCard,
    override: Path | None,
    destination: Path,
    *,
    mirrors: Mapping[str, str] | None = None,
    stand_in: bool = False,
    offline: bool = False,
    workers: int = 4,
    check: bool = False,
    patience_s: float = 1.0,
) -> Receipt:
    """Fill ``destination`` with the card's raw data and a receipt; fetching the same again changes nothing.

    ``override`` is the user's own copy, in the layout of the card's first source; without it the card's sources are
    tried in order; one that gives other content than the card knows is warned of and passed over.
    ``mirrors``: host → base URL that is asked instead, without credentials; with ``stand_in`` they offer made-up data,
    to which published checksums, sizes and commits do not apply. ``offline``: nothing is asked for. ``workers``:
    downloads at a time. ``check``: read all files that are there instead of believing their size and time.
    ``patience_s``: first pause before another attempt.

    What was downloaded before an error or a kill is kept beside the destination, for the next call. Raises
    MissingDataError with the reason of every source and the way to get the data when none works, OtherContent when one
    of them gave something wrong, InfrastructureError when the disk is full or the destination holds files of someone
    else.
    """
    destination = Path(destination)
    access = Access(mirrors or {}, stand_in, offline, workers, patience_s)
    sources = [_own_copy(card.dataset, override)] if override is not None else card.dataset.sources
    for source in sources:
        known = current(destination, _identity(source, access), check=check) if source.kind != "path" else None
        if known is not None:
            return known
    failures: list[InfrastructureError] = []
    passed_over: list[str] = []
    for source, following in zip(sources, [*sources[1:], None], strict=True):
        if passed_over and not _is_pinned(source):
            failures.append(MissingDataError(_UNPINNED))
            continue
        try:
            return _fetch(card.dataset, source, destination, access, check, passed_over)
        except (MissingDataError, OtherContent) as error:
            failures.append(error)
            told = _told(source, error)
            passed_over += [told] if isinstance(error, OtherContent) else []
            if following is not None:
                warning = "Warning: not taken from" if isinstance(error, OtherContent) else "Not had from"
                print(f"{warning} {told}. Next: {describe(following)}", flush=True)
        except InfrastructureError as error:
            raise type(error)(f"{card.id}: {error}") from error
    raise _nothing(card, sources, failures) from failures[0]


def _is_pinned(source: Source) -> bool:
    """Whether the card knows what the source must give: a commit, or checksums."""
    return all(
        commit_of(part) is not None
        or bool(part.sha256)
        or bool(part.downloads and all(each.checksum for each in part.downloads))
        for part in (source, *source.also)
    )


def _nothing(card: TaskCard, sources: list[Source], failures: list[InfrastructureError]) -> InfrastructureError:
    """The error when no source worked: each one's reason on a line of its own, then what a person can do."""
    wrong = [error for error in failures if isinstance(error, OtherContent)]
    if wrong and len(failures) == 1:
        return OtherContent(f"{card.id}: {wrong[0]}")
    name = card.dataset.name
    how = f"How to get it: {' '.join(card.dataset.how_to_get.split())}"
    if f"{name}: {{path" not in how:
        how += f" Your own copy is named by `datasets: {{{name}: {{path: <folder>}}}}`."
    if any(
        isinstance(error, Unreachable)
        and error.asked_as in (None, "anonymous")
        and not any(part.credentials for part in (source, *source.also))
        for source, error in zip(sources, failures, strict=True)
    ):
        how += " Another place with the host's files is named by `fetch: {mirrors: {<host>: <URL>}}`."
    if len(failures) == 1:
        head = f"No raw data for '{name}': {_flat(failures[0])}."
    else:
        told = [f"- {_told(source, error)}" for source, error in zip(sources, failures, strict=True)]
        head = "\n".join([f"No raw data for '{name}': none of its {len(sources)} sources worked.", *told])
    return (OtherContent if wrong else MissingDataError)(f"{head}\n{how} (card: {card.id})")


def _told(source: Source, error: Exception) -> str:
    """Source and reason on one line; of other content what was found, as the next source may be right."""
    reason = _flat(str(error).partition("\n")[0] if isinstance(error, OtherContent) else error)
    return reason if shown(source.where) in reason else f"{describe(source)}: {reason}"


def _flat(error: Exception | str) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _own_copy(dataset: DataSet, override: Path) -> Source:
    first = dataset.sources[0]
    parts = (first, *first.also)
    # A part without patterns may hold anything.
    files = [pattern for part in parts for pattern in part.files] if all(part.files for part in parts) else []
    sums = {name: value for part in parts for name, value in part.sha256.items()}
    return Source(kind="path", where=str(override), files=files, sha256=sums)


def _identity(source: Source, access: Access) -> str:
    """What a finished fetch is known by."""
    parts = (source, *source.also)
    # Without what has its default: a field that cards gain later must not fetch everything again.
    told = [part.model_dump(mode="json", exclude={"credentials", "also"}, exclude_defaults=True) for part in parts]
    return digest_of([told, access.stand_in])


def _fetch(
    dataset: DataSet, source: Source, destination: Path, access: Access, check: bool, passed_over: list[str]
) -> Receipt:
    if source.kind == "path":
        return _copy(dataset, source, destination, access, check)
    for part in (source, *source.also):
        check_patterns(part.files)
    with downloads_of(destination) as folder:
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
        if not access.stand_in:
            _check_sums([source, *source.also], receipt, lambda name: collector.forget_file(found[name][0]))
        with _writing(destination), scratch(destination) as ready:
            link_in({name: path for name, (path, _) in found.items()}, ready)
            put(ready, receipt, _identity(source, access), destination)
        shutil.rmtree(folder, ignore_errors=True)
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
            plan = get_planner(part.kind)(part, collector)
        collected = collector.all(plan.items)
        own: dict[str, tuple[Path, FileEntry]] = {}
        wanted = taker(part.files)
        for item, got in zip(plan.items, collected, strict=True):
            ready = collector.place_of(item) / "ready"
            if item.tree:
                refuse_specials(ready)
                check_pointers(ready, sorted(got.files), part.files)
            own |= {
                path: (ready / path, entry) for path, entry in got.files.items() if wanted(path) and path not in own
            }
            downloads.append(got.downloaded)
        for pattern in part.files:
            takes = taker([pattern])
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
    identity = digest_of(["path", str(origin.resolve()), source.sha256, stamps])
    known = current(destination, identity, check=check) if stamps is not None else None
    if known is not None:
        return known
    with _writing(destination), downloads_of(destination), scratch(destination) as folder:
        entries = copy_in(origin, names, folder)
        receipt = _receipt(dataset, source, None, entries, [], access)
        if not access.stand_in:
            _check_sums([source], receipt, lambda name: None)
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
    told = " + ".join(describe(part) for part in (source, *source.also))
    if access.stand_in:
        told = FIXTURE_OF + ("path" if source.kind == "path" else told)
    return Receipt(
        dataset=dataset.name,
        source=told,
        revision=revision,
        licence=dataset.licence,
        attribution=dataset.attribution,
        fetched_at=now(),
        files=files,
        downloads=downloads,
        passed_over=list(passed_over),
    )


def _check_sums(sources: list[Source], receipt: Receipt, forget: Callable[[str], None]) -> None:
    """Raise OtherContent for a file that differs from the card's SHA-256; what it came with is had anew next time."""
    for name, expected in ((name, value) for source in sources for name, value in source.sha256.items()):
        found = receipt.files.get(name)
        if found is not None and found.sha256 != expected:
            forget(name)
            raise OtherContent(
                f"{name} from {receipt.source} has SHA-256 {found.sha256}, the card says {expected}.\n"
                "The source changed or the download is damaged; nothing was installed."
            )


@contextlib.contextmanager
def _writing(destination: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InfrastructureError(
            f"Cannot copy raw data to {destination}: {error.strerror or error}.\n"
            "Free space or fix the permissions, then run the same command again."
        ) from error
