"""Projects of PhysioNet, file by file, checked against the project's SHA256SUMS.txt."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path
from urllib.parse import quote

from automedbench.base.cards import Download, Source
from automedbench.base.errors import MissingDataError
from automedbench.datasets.download.access import PHYSIONET, describe
from automedbench.datasets.download.collecting import Collector, Item
from automedbench.datasets.download.transfer import Watch, download
from automedbench.datasets.fetchers import Plan
from automedbench.datasets.fetchers._rows import filled
from automedbench.datasets.fetchers._web import asked, client, file_item
from automedbench.datasets.patterns import is_pattern, taker

_SUMS = "SHA256SUMS.txt"


def plan(source: Source, collector: Collector) -> Plan:
    """Files below ``where`` (project/version): those that a download names or whose path its pattern takes.

    Without downloads it is what the source's ``files`` take. Raises MissingDataError when a pattern takes nothing;
    ``filled`` tells what rows of a table may raise.
    """
    base = f"https://{PHYSIONET}/files/{source.where.strip('/')}"
    sums = _sums(source, collector, f"{base}/{_SUMS}")

    def item(told: Download) -> Item:
        checksum = f"sha256:{sums[told.name]}" if told.name in sums else None
        return file_item(source, collector, f"{base}/{quote(told.name)}", told.name, told, checksum=checksum)

    chosen: dict[str, Download] = {}
    for told in filled(source, collector, source.downloads, item):
        if told.rows or not is_pattern(told.name):
            chosen.setdefault(told.name, told)
            continue
        names = [name for name in sums if fnmatch.fnmatchcase(name, told.name)]
        if not names:
            raise MissingDataError(f"{describe(source)}: {_SUMS} names nothing that matches '{told.name}'")
        for name in names:
            to = f"{told.to}/{name}" if told.to else None
            chosen.setdefault(name, told.model_copy(update={"name": name, "to": to}))
    if not source.downloads:
        wanted = taker(source.files)
        chosen = {name: Download(name=name) for name in sums if wanted(name)}
    items = [item(told) for _, told in sorted(chosen.items())]
    return Plan(items, source.revision or source.where.strip("/").rpartition("/")[2])


def _sums(source: Source, collector: Collector, url: str) -> dict[str, str]:
    """Path → SHA-256 of everything in the project."""
    request = asked(source, collector, url)

    def get(target: Path, watch: Watch) -> bool:
        return download(request, target, watch)

    text = collector.remembered(request.name, ["physionet", url, collector.access.stand_in], get, client())
    lines = re.findall(r"^([0-9a-f]{64}) +\*?(?:\./)?(.+?)\r?$", text.decode("utf-8", "replace"), re.MULTILINE)
    if not lines:
        raise MissingDataError(f"{request.name}: expected a list of checksums, found none")
    return {name: digest for digest, name in lines}
