"""Common parts of fetchers of files with a URL: items, names, places, numbered downloads."""

from __future__ import annotations

import fnmatch
import functools
import importlib.metadata
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from automedbench.base.cards import Download, Source
from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.datasets.download.access import describe, shown
from automedbench.datasets.download.archives import is_archive_name, safe_path
from automedbench.datasets.download.collecting import Collector, Item
from automedbench.datasets.download.transfer import Request, Watch, download
from automedbench.datasets.patterns import is_pattern, taker


def numbered(downloads: list[Download]) -> Iterator[Download]:
    """Downloads with their numbers filled in."""
    for each in downloads:
        if each.numbers is None:
            yield each
            continue
        first, last = each.numbers
        for n in range(first, last + 1):
            filled = {"name": each.name.format(n=n), "to": each.to and each.to.format(n=n), "numbers": None}
            yield each.model_copy(update=filled)


@functools.cache
def client() -> str:
    """The program that downloads, as the receipt names it."""
    return f"requests {importlib.metadata.version('requests')}"


def listing(source: Source, collector: Collector, url: str) -> bytes:
    """What a host answers when it is asked for its files; asked for once per fetch."""
    request = asked(source, collector, url)
    identity = [source.kind, source.revision, url, collector.access.stand_in]
    return collector.remembered(request.name, identity, functools.partial(download, request), client())


def chosen(source: Source, names: Iterable[str], downloads: Iterable[Download]) -> list[Download]:
    """The files that downloads name, each once, in order: as they are, or of the host's list those that patterns take.

    Without downloads it is what the source's ``files`` take. Raises MissingDataError when a pattern takes nothing.
    """
    names, found = dict.fromkeys(names), dict[str, Download]()
    for told in downloads:
        if told.name in names or told.rows or not is_pattern(told.name):
            found.setdefault(told.name, told)
            continue
        taken = [name for name in names if fnmatch.fnmatchcase(name, told.name)]
        if not taken:
            raise MissingDataError(f"{describe(source)}: no file matches '{told.name}'")
        for name in taken:
            below = told.to and not (is_archive_name(name) if told.unpack is None else told.unpack)
            found.setdefault(
                name, told.model_copy(update={"name": name} | ({"to": f"{told.to}/{name}"} if below else {}))
            )
    wanted = taker(source.files)
    every = {} if source.downloads else {name: Download(name=name) for name in names if wanted(name)}
    return [told for _, told in sorted((found | every).items())]


def own_name(url: str) -> str:
    """The file name that a URL tells: its last part, or the one before it where that is a word for the bytes."""
    parts = [part for part in urlsplit(url).path.split("/") if part]
    while len(parts) > 1 and parts[-1] in ("content", "download", "file_downloaded"):
        parts.pop()
    return unquote(parts[-1]) if parts else "download"


def asked(source: Source, collector: Collector, url: str) -> Request:
    """The request for a URL of this source, with the login that its host may see."""
    access = collector.access
    host = urlsplit(url).netloc
    login = access.authorization(source, host)
    return Request(access.url(url), shown(url), login, mirrored=access.mirror(host) is not None)


def file_item(
    source: Source,
    collector: Collector,
    url: str,
    own: str,
    told: Download,
    *,
    checksum: str | None = None,
    archive: bool | None = None,
    place: str | None = None,
    name: str | None = None,
) -> Item:
    """An item for one URL.

    ``own``: path of the file when the card gives none; ``told``: what the card says of it; ``checksum``: as the host
    publishes it; ``archive``: whether it is one when the card does not say, by default by its name; ``place``: folder
    for what it holds when the card gives none.
    """
    request = asked(source, collector, url)
    stand_in = collector.access.stand_in
    size = None if stand_in else told.bytes

    def get(target: Path, watch: Watch) -> bool:
        return download(replace(request, size=size), target, watch)

    by_default = is_archive_name(own) if archive is None else archive
    return placed(
        source,
        told,
        own,
        by_default,
        Item(
            name=name or request.name,
            identity=[source.kind, source.where, source.revision, url, stand_in],
            get=get,
            client=client(),
            checksum=(None if stand_in else told.checksum) or checksum,
            bytes=size,
        ),
        place,
    )


def placed(source: Source, told: Download, own: str, archive: bool, item: Item, folder: str | None = None) -> Item:
    """The item with its place below the data set's folder; raises ConfigError when that leads out of it."""
    unpack = archive if told.unpack is None else told.unpack
    inner = re.sub(r"\.gz$", "", own)
    if unpack:
        place = told.to if told.to is not None else folder or ""
        single = inner if told.to is None else f"{told.to}/{PurePosixPath(inner).name}"
        if told.to is not None and PurePosixPath(told.to).suffix == PurePosixPath(inner).suffix != "":
            single = told.to
    else:
        place, single = told.to or own, ""
    if safe_path(single or place) != (single or place):
        raise ConfigError([f"dataset.sources.downloads: '{told.name}' has no file name that can be used; give `to`"])
    identity = [item.identity, place, single, unpack, item.checksum, source.files]
    return replace(item, identity=identity, place=place, single=single, unpack=unpack, wanted=taker(source.files))
