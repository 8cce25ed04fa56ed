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
from automedbench.commands._machine.examine import Host, ProbeResult, ProbeResults, fail, ok, warn
from automedbench.commands._machine.first.models import TRUST_FIX, check_clock
from automedbench.commands._machine.host import run_program
from automedbench.commands.tasks import list_downloads, way_to_data
from automedbench.datasets.download.access import Access, describe
from automedbench.datasets.download.collecting import Collector, DownloadItem
from automedbench.datasets.download.transfer import ContentMismatch, Request, SourceUnreachable, look_up
from automedbench.datasets.fetchers import PLANNERS
from automedbench.datasets.fetchers.web import expand_numbers

WHOLE_BYTES = 5_000_000
"""A file up to this size is downloaded, and its checksum compared; of larger ones the size is."""
GIT_S = 30.0


def hosts(host: Host) -> ProbeResults:
    """Every data set that is to be downloaded can be had: a file of each place, by its first source that works."""
    campaign = host.campaign
    if campaign is None or campaign.config.fixtures or campaign.config.fetch.offline:
        return
    cards = {campaign.cards[task].dataset.name: campaign.cards[task] for task in campaign.tasks}
    sets = [card.dataset for card in cards.values() if way_to_data(campaign, card) == "download"]
    access = Access(campaign.config.fetch.mirrors)
    with tempfile.TemporaryDirectory(prefix="first-run-") as folder, ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda dataset: list(_try(dataset, Collector(Path(folder), access))), sets):
            yield from found
    if not sets:
        yield ok("hosts", "no data set of this campaign has to be downloaded")


def _try(dataset: DataSet, collector: Collector) -> Iterator[ProbeResult]:
    """The first source that works, and what is wrong with those before it."""
    failures: list[ProbeResult] = []
    for source in list_downloads(dataset):
        place = f"{dataset.name}: {describe(source)}"
        try:
            parts = [_try_part(part, collector) for part in (source, *source.also)]
        except (InfrastructureError, ConfigError) as error:
            text = " ".join(str(error).partition("\n")[0].split())
            failures.append(fail("hosts", f"{dataset.name}: {text}", _remedy(error, dataset, source)))
            continue
        yield from (warn("hosts", each.message, f"{each.fix} Another source of it works.") for each in failures)
        for _, date in parts:
            yield from (fail("hosts", f"{place} {text}", fix) for _, text, fix in check_clock(date, "it"))
        yield ok("hosts", f"{place}: {', '.join(text for text, _ in parts)}; licence {dataset.licence}")
        yield from _try_licence(dataset, collector)
        return
    yield from failures


def _try_part(source: Source, collector: Collector) -> tuple[str, str]:
    """What was tried of one place, and the ``Date`` of its host; raises why it cannot be had."""
    if source.kind == "git":
        url = collector.access.url(source.where)
        status, text = run_program(["env", "GIT_TERMINAL_PROMPT=0", "git", "ls-remote", url, "HEAD"], GIT_S)
        if status:
            raise SourceUnreachable(f"{describe(source)}: {text.splitlines()[-1] if text else f'status {status}'}")
        return "the repository answers", ""
    item = _smallest(source, collector)
    assert item.request is not None
    size, headers = look_up(replace(item.request, size=item.bytes), collector.watch)
    date, name = headers.get("Date", ""), item.name.rpartition("/")[2]
    if size is None or size > WHOLE_BYTES:
        return f"{name} ({'size not told' if size is None else f'{size / 1e6:.0f} MB'})", date
    collector.one(item)
    return f"{name} ({size} bytes, {'checksum' if item.checksum else 'size'} compared)", date


def _smallest(source: Source, collector: Collector) -> DownloadItem:
    """The smallest file that a source names, as the fetcher of its kind would get it."""
    named = [_as_file(each) for each in source.downloads]
    spec = min(named, key=lambda each: each.bytes or math.inf, default=None)
    one = source.model_copy(update={"downloads": [*expand_numbers([spec])][:1]}) if spec else source
    items = PLANNERS[source.kind](one, collector).items
    return min((item for item in items if item.request), key=lambda item: item.bytes or math.inf)


def _as_file(told: Download) -> Download:
    """A download itself; the table of one that has a file for each row."""
    return told if told.rows is None else Download(name=told.rows.table, unpack=False)


def _remedy(error: Exception, dataset: DataSet, source: Source) -> str:
    """What to do about a source that does not give its file."""
    text, page = str(error), next(iter(dataset.homepages), source.where)
    own = f"or name a copy of your own: datasets: {{{dataset.name}: {{path: FOLDER}}}}"
    if isinstance(error, ContentMismatch):
        return f"The data set was changed: look at {page}; a newer version may know it, {own}."
    if "certificate" in text:
        return TRUST_FIX
    if "web page" in text or "gated" in text or "401" in text:
        login = f" and set {' and '.join(source.credentials)}" if source.credentials else ""
        return f"Log in at {page}, accept the terms{login}, {own}."
    if re.search(r"HTTP (404|410)", text):
        return f"The file was moved: look at {page} and report it, {own}."
    if "HTTP 403" in text:
        return f"Try {page} in a browser: your address may be blocked. Set fetch.mirrors, {own}."
    if "HTTP 429" in text:
        return "Wait an hour: this address has asked too often."
    return f"Check the network and HTTPS_PROXY; fetch.mirrors names another place, {own}."


def _try_licence(dataset: DataSet, collector: Collector) -> Iterator[ProbeResult]:
    """The page with the licence is there; a page that only refuses programs is."""
    page = next(iter(dataset.homepages), "")
    try:
        if page:
            look_up(Request(collector.access.url(page), f"{page}/.html"), collector.watch, tries=1)
    except MissingDataError as error:
        if re.search(r"HTTP (404|410)", str(error)):
            fix = "Look whether its terms still hold, and report it."
            yield warn("hosts", f"{dataset.name}: the page of its licence is gone: {page}", fix)
