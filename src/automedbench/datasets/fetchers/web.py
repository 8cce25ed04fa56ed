"""Web: sources whose files have a URL each (Zenodo, figshare, institutes' pages, Box, Kaggle, Synapse).

Items, names, places, numbered downloads, and downloads that a table lists: one file for each of its rows.
"""

from __future__ import annotations

import fnmatch
import functools
import importlib.metadata
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import NoReturn
from urllib.parse import quote, unquote, urlsplit

from automedbench.base.cards import Download, Rows, Source
from automedbench.base.errors import ConfigError, InvalidSubmission, MissingDataError
from automedbench.base.untrusted import read_bounded
from automedbench.base.untrusted import shown as excerpt
from automedbench.base.untrusted.table import Table, read_table
from automedbench.datasets.download.access import KAGGLE, SYNAPSE, describe, mask_url
from automedbench.datasets.download.archives import is_archive_name, safe_path
from automedbench.datasets.download.collecting import Collector, DownloadItem
from automedbench.datasets.download.transfer import ContentMismatch, DownloadProgress, Request, download
from automedbench.datasets.forms.tables import BOUNDS, MAX_BYTES, decompress
from automedbench.datasets.patterns import is_pattern, path_matcher


@dataclass(frozen=True)
class FetchPlan:
    """Items that make up a source, and its revision."""

    items: Sequence[DownloadItem]
    revision: str | None = None
    """What the source is at, where the host tells; a clone tells afterwards."""


def expand_numbers(downloads: list[Download]) -> Iterator[Download]:
    """Downloads with their numbers filled in."""
    for each in downloads:
        if each.numbers is None:
            yield each
            continue
        first, last = each.numbers
        for n in range(first, last + 1):
            changes = {"name": each.name.format(n=n), "to": each.to and each.to.format(n=n), "numbers": None}
            yield each.model_copy(update=changes)


@functools.cache
def client() -> str:
    """The program that downloads, as the receipt names it."""
    return f"requests {importlib.metadata.version('requests')}"


def fetch_listing(source: Source, collector: Collector, url: str) -> bytes:
    """Response of a host to a request for its list of files, cached per fetch."""
    request = make_request(source, collector, url)
    item = DownloadItem(
        name=request.name,
        identity=["listing", source.kind, source.revision, url, collector.access.stand_in],
        get=functools.partial(download, request),
        client=client(),
        place="listing",
    )
    return collector.planned_by(item).read_bytes()


def choose_files(source: Source, names: Iterable[str], downloads: Iterable[Download]) -> list[Download]:
    """The files that downloads name, each once, in order: as they are, or of the host's list those that patterns take.

    Without downloads it is what the source's ``files`` take. Raises MissingDataError when a pattern takes nothing.
    """
    names, found = dict.fromkeys(names), dict[str, Download]()
    for spec in downloads:
        if spec.name in names or spec.rows or not is_pattern(spec.name):
            found.setdefault(spec.name, spec)
            continue
        taken = [name for name in names if fnmatch.fnmatchcase(name, spec.name)]
        if not taken:
            raise MissingDataError(f"{describe(source)}: no file matches '{spec.name}'")
        for name in taken:
            below = spec.to and not (is_archive_name(name) if spec.unpack is None else spec.unpack)
            found.setdefault(
                name, spec.model_copy(update={"name": name} | ({"to": f"{spec.to}/{name}"} if below else {}))
            )
    wanted = path_matcher(source.files)
    every = {} if source.downloads else {name: Download(name=name) for name in names if wanted(name)}
    return [spec for _, spec in sorted((found | every).items())]


def url_file_name(url: str) -> str:
    """The file name that a URL tells: its last part, or the one before it where that is a word for the bytes."""
    parts = [part for part in urlsplit(url).path.split("/") if part]
    while len(parts) > 1 and parts[-1] in ("content", "download", "file_downloaded"):
        parts.pop()
    return unquote(parts[-1]) if parts else "download"


def make_request(source: Source, collector: Collector, url: str) -> Request:
    """The request for a URL of this source, with the login that its host may see."""
    access = collector.access
    host = urlsplit(url).netloc
    login = access.authorization(source, host)
    return Request(access.url(url), mask_url(url), login, mirrored=access.mirror(host) is not None)


def file_item(
    source: Source,
    collector: Collector,
    url: str,
    own: str,
    spec: Download,
    *,
    checksum: str | None = None,
    name: str | None = None,
) -> DownloadItem:
    """An item for one URL.

    ``own``: path of the file when the card gives none; ``spec``: the card's entry for it; ``checksum``: as the host
    publishes it.
    """
    request = make_request(source, collector, url)
    stand_in = collector.access.stand_in
    size = None if stand_in else spec.bytes

    def get(target: Path, watch: DownloadProgress) -> bool:
        return download(replace(request, size=size), target, watch)

    return place_item(
        source,
        spec,
        own,
        DownloadItem(
            name=name or request.name,
            identity=[source.kind, source.where, source.revision, url, stand_in],
            get=get,
            client=client(),
            checksum=(None if stand_in else spec.checksum) or checksum,
            bytes=size,
            request=request,
        ),
    )


def place_item(source: Source, spec: Download, own: str, item: DownloadItem) -> DownloadItem:
    """The item with its place below the data set's folder; raises ConfigError when that leads out of it."""
    unpack = is_archive_name(own) if spec.unpack is None else spec.unpack
    inner = re.sub(r"\.gz$", "", own)
    if unpack:
        place = spec.to or ""
        single = inner if spec.to is None else f"{spec.to}/{PurePosixPath(inner).name}"
        if spec.to is not None and PurePosixPath(spec.to).suffix == PurePosixPath(inner).suffix != "":
            single = spec.to
    else:
        place, single = spec.to or own, ""
    if safe_path(single or place) != (single or place):
        raise ConfigError([f"dataset.sources.downloads: '{spec.name}' has no file name that can be used; give `to`"])
    identity = [item.identity, place, single, unpack, item.checksum, source.files]
    return replace(
        item, identity=identity, place=place, single=single, unpack=unpack, wanted=path_matcher(source.files)
    )


ItemOf = Callable[[Download], DownloadItem]


def fill_rows(source: Source, collector: Collector, downloads: list[Download], item_of: ItemOf) -> Iterator[Download]:
    """Downloads with numbers and the cells of their tables filled in; ``item_of`` makes the item of a single file.

    What a row became keeps its ``rows``: its name is a name, with any characters. Tables are fetched for it,
    once per fetch. Raises MissingDataError for a table that cannot be read, lacks a column or a cell, or has no such
    row, ContentMismatch for cells that lead elsewhere, ConfigError for two files at one place.
    """
    for spec in expand_numbers(downloads):
        if spec.rows is None:
            yield spec
            continue
        places: dict[str, str] = {}
        for each in _by_rows(source, collector, spec, spec.rows, item_of):
            item = item_of(each)
            other = each.name if item.unpack else places.setdefault(item.place, each.name)
            if other != each.name:
                two = f"{excerpt(other, 60)} and {excerpt(each.name, 60)}"
                raise ConfigError([f"dataset.sources.downloads: {two} would be one file; give `to` a column"])
            yield each


def _by_rows(source: Source, collector: Collector, spec: Download, rows: Rows, item_of: ItemOf) -> Iterator[Download]:
    """A download for each name that the rows give, in the order of the table."""
    call = f"{describe(source)}: {rows.table}"
    table = _table(source, collector, rows, item_of, call)
    own = spec.columns()
    columns = list(dict.fromkeys([*own, *rows.where]))
    try:
        cells = table.select(*(column.strip().lower() for column in columns))
    except InvalidSubmission as error:
        raise MissingDataError(f"{call}: expected the columns {', '.join(columns)}; the table {error}") from error
    taken = [
        row
        for row in (dict(zip(columns, cell, strict=True)) for cell in cells)
        if all(row[column] in texts for column, texts in rows.where.items())
    ]
    if not taken:
        raise MissingDataError(f"{call}: expected rows where {rows.where}, found none among {len(cells)} rows")
    seen: set[str] = set()
    for row in taken:
        empty = next((column for column in own if not row[column]), None)
        if empty is not None:
            raise MissingDataError(f"{call}: expected a text in column {empty} of every row, found an empty cell")
        name, to = spec.name.format_map(row), spec.to and spec.to.format_map(row)
        if name not in seen:
            seen.add(name)
            _require_below(call, name, spec.name, to)
            yield spec.model_copy(update={"name": name, "to": to})


def _table(source: Source, collector: Collector, rows: Rows, item_of: ItemOf, call: str) -> Table:
    """The table of a source; it is downloaded as the card's own download of it, where there is one."""
    known = [each for each in source.downloads if each.name == rows.table and not each.rows and not each.numbers]
    item = item_of((known or [Download(name=rows.table)])[0].model_copy(update={"unpack": False}))
    try:
        data = read_bounded(collector.planned_by(item), MAX_BYTES) or b""
        return read_table(decompress(data) if data[:2] == b"\x1f\x8b" else data, BOUNDS)
    except InvalidSubmission as error:
        raise MissingDataError(f"{call}: expected a table, .csv or .csv.gz; what was found {error}") from error


def _require_below(call: str, name: str, pattern: str, to: str | None) -> None:
    """Raise ContentMismatch when cells lead to another host or out of the folder."""
    elsewhere = _host(name) != _host(pattern) or safe_path(unquote(name)) is None
    if elsewhere or (to is not None and safe_path(to) != to) or not f"{name}{to}".isprintable():
        raise ContentMismatch(
            f"{call}: expected names below the source and the data set's folder, found {excerpt(name, 80)}.\n"
            "The source changed or is damaged; nothing was installed."
        )


def _host(name: str) -> str:
    """Scheme and host of a URL, empty for a path."""
    found = re.match(r"[a-z][a-z0-9+.-]*:/*[^/?#]*", name, re.IGNORECASE)
    return found[0] if found else ""


def plan_url(source: Source, collector: Collector) -> FetchPlan:
    """One item per download, whose name is a URL, whole or below ``where``; without downloads ``where`` is the file."""

    def item(spec: Download) -> DownloadItem:
        url = spec.name if "://" in spec.name else f"{source.where.rstrip('/')}/{spec.name.lstrip('/')}"
        return file_item(source, collector, url, url_file_name(url), spec)

    downloads = fill_rows(source, collector, source.downloads or [Download(name=source.where)], item)
    return FetchPlan([item(spec) for spec in downloads], source.revision)


def plan_box(source: Source, collector: Collector) -> FetchPlan:
    """As for plain URLs; a shared folder without static links can only be fetched by hand."""
    if not source.downloads:
        raise MissingDataError(f"{describe(source)} must be fetched by hand: the card knows no static links")
    return plan_url(source, collector)


_API = f"https://{KAGGLE}/api/v1/datasets/download"


def plan_kaggle(source: Source, collector: Collector) -> FetchPlan:
    """One archive of all, or single files; ``where`` is owner/name, the revision a version's number."""
    query = f"?datasetVersionNumber={source.revision}" if source.revision else ""
    whole = f"{source.where.rpartition('/')[2]}.zip"
    items = []
    for spec in expand_numbers(source.downloads or [Download(name="")]):
        below = f"/{quote(spec.name)}" if spec.name else ""
        items.append(file_item(source, collector, f"{_API}/{source.where}{below}{query}", spec.name or whole, spec))
    return FetchPlan(items, source.revision)


def plan_synapse(source: Source, collector: Collector) -> FetchPlan:
    """One item per id. Ids tell no file name: ``to`` says where a file goes, ``unpack: true`` that it is an archive."""
    items = []
    for spec in expand_numbers(source.downloads or [Download(name=source.where)]):
        url = f"https://{SYNAPSE}/repo/v1/entity/{spec.name}/file"
        items.append(file_item(source, collector, url, spec.name, spec, name=f"synapse {spec.name}"))
    return FetchPlan(items, source.revision)


def plan_manual(source: Source, collector: Collector) -> NoReturn:
    """Always raises MissingDataError."""
    raise MissingDataError(f"{describe(source)} must be fetched by hand")
