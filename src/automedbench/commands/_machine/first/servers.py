"""Try of the hosts of data: one file of each source that this campaign has still to fetch, and its licence's page."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from automedbench.base.cards import DataSet, Download, Source
from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.commands._machine.examine import Host, ProbeResult, ProbeResults, fail, next_step, ok, warn
from automedbench.commands._machine.first.models import TRUST_FIX, check_clock
from automedbench.commands.tasks import list_downloads, way_to_data
from automedbench.datasets.download.access import Access, describe
from automedbench.datasets.download.collecting import Collector
from automedbench.datasets.download.transfer import ContentMismatch, Request, look_up
from automedbench.datasets.fetchers import PLANNERS
from automedbench.datasets.fetchers.git import look_up_commit
from automedbench.datasets.fetchers.web import expand_numbers

WHOLE_BYTES = 5_000_000
"""A file up to this size is downloaded, and its checksum compared; of larger ones the size is."""


def hosts(host: Host) -> ProbeResults:
    """Every data set that is to be downloaded can be had: a file of each place, by its first source that works."""
    campaign = host.campaign
    if campaign is None or campaign.config.fixtures or campaign.config.fetch.offline:
        return
    cards = {campaign.cards[task].dataset.name: campaign.cards[task] for task in campaign.tasks}
    sets = [card.dataset for card in cards.values() if way_to_data(campaign, card) == "download"]
    access = Access(campaign.config.fetch.mirrors)
    with tempfile.TemporaryDirectory(prefix="first-run-") as folder, ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda dataset: list(_try(dataset, Collector(Path(folder, dataset.name), access))), sets):
            yield from found
    if not sets:
        yield ok("hosts", "no data set of this campaign has to be downloaded")


def _try(dataset: DataSet, collector: Collector) -> Iterator[ProbeResult]:
    """The first source that works, and what is wrong with those before it."""
    failures: list[ProbeResult] = []
    page = next(iter(dataset.homepages), "")
    for source in list_downloads(dataset):
        place = f"{dataset.name}: {describe(source)}"
        try:
            parts = [look_at(part, _smallest(part), collector) for part in (source, *source.also)]
        except (InfrastructureError, ConfigError) as error:
            text = " ".join(str(error).partition("\n")[0].split())
            own = f"datasets: {{{dataset.name}: {{path: FOLDER}}}}"
            fix = f"{find_remedy(error, page or source.where, source)} A copy of your own: {own}."
            failures.append(fail("hosts", f"{dataset.name}: {text}", fix))
            continue
        yield from (warn("hosts", each.message, f"{each.fix} Another source of it works.") for each in failures)
        for _, date in parts:
            yield from (fail("hosts", f"{place} {text}", fix) for _, text, fix in check_clock(date, "it"))
        yield ok("hosts", f"{place}: {', '.join(text for text, _ in parts)}; licence {dataset.licence}")
        if page and _is_gone(page, collector):
            fix = "Look whether its terms still hold, and report it."
            yield warn("hosts", f"{dataset.name}: the page of its licence is gone: {page}", fix)
        return
    yield from failures


def list_entries(source: Source) -> list[Download]:
    """Files that a source names, one for each entry: of numbered ones first and last, of rows their table."""
    tables = [each if each.rows is None else Download(name=each.rows.table, unpack=False) for each in source.downloads]
    spread = [each.model_copy(update={"numbers": (n, n)}) for each in tables for n in dict.fromkeys(each.numbers or ())]
    return [*(each for each in tables if each.numbers is None), *expand_numbers(spread)]


def _smallest(source: Source) -> Download | None:
    return min(list_entries(source), key=lambda each: each.bytes or math.inf, default=None)


def look_at(
    source: Source, entry: Download | None, collector: Collector, whole_bytes: int = WHOLE_BYTES
) -> tuple[str, str]:
    """What there is of an entry (None: of the whole source), and the ``Date`` of its host; raises why it is not there.

    A file of at most ``whole_bytes`` is downloaded, and its checksum compared.
    """
    if source.kind == "git":
        return f"{look_up_commit(source, collector)[:12]} is there", ""
    if source.kind == "manual" and "://" in source.where:
        return "its page answers", look_up(_page(source.where, collector), collector.watch)[1].get("Date", "")
    one = source.model_copy(update={"downloads": [entry] if entry else []})
    items = [item for item in PLANNERS[source.kind](one, collector).items if item.request]
    item = min(items, key=lambda each: each.bytes or math.inf)
    assert item.request is not None
    size, headers = look_up(replace(item.request, size=item.bytes), collector.watch)
    text = item.name.rpartition("/")[2] + (", size not told" if size is None else f", {size:,} bytes")
    if size is not None and size <= whole_bytes:
        collector.one(item)
        text += f", {'checksum' if item.checksum else 'size'} compared"
    return text, headers.get("Date", "")


def _page(url: str, collector: Collector) -> Request:
    return Request(collector.access.url(url), f"{url}#.html")


def _is_gone(page: str, collector: Collector) -> bool:
    """Check whether a page is there no more; one that only refuses programs is."""
    try:
        look_up(_page(page, collector), collector.watch, tries=1)
    except MissingDataError as error:
        return re.search(r"HTTP (404|410)", str(error)) is not None
    return False


def find_remedy(error: Exception, page: str, source: Source) -> str:
    """What to do about a source that does not give its file; ``page``: where people read about it."""
    if isinstance(error, ContentMismatch):
        return f"It was changed: look at {page}; a newer version of the card may know it."
    login = f" and set {' and '.join(source.credentials)}" if source.credentials else ""
    fixes = {
        "certificate": TRUST_FIX,
        "web page|gated|HTTP 401|not set in the environment": f"Log in at {page}, accept the terms{login}.",
        "HTTP (404|410)": f"It was moved: look at {page} and report it.",
        "HTTP 403": f"Try {page} in a browser: your address may be blocked; fetch.mirrors names another place.",
        "HTTP 429": "Wait an hour: this address has asked too often.",
    }
    return next_step(str(error), fixes, "Check the network and HTTPS_PROXY; fetch.mirrors names another place.")
