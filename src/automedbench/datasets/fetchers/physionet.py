"""Projects of PhysioNet, file by file, checked against the project's SHA256SUMS.txt."""

from __future__ import annotations

import re
from urllib.parse import quote

from automedbench.base.cards import Download, Source
from automedbench.base.errors import MissingDataError
from automedbench.datasets.download.access import PHYSIONET
from automedbench.datasets.download.collecting import Collector, Item
from automedbench.datasets.fetchers import Plan
from automedbench.datasets.fetchers._rows import filled
from automedbench.datasets.fetchers._web import chosen, file_item, listing

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

    downloads = filled(source, collector, source.downloads, item)
    items = [item(told) for told in chosen(source, sums, downloads)]
    return Plan(items, source.revision or source.where.strip("/").rpartition("/")[2])


def _sums(source: Source, collector: Collector, url: str) -> dict[str, str]:
    """Path → SHA-256 of everything in the project."""
    text = listing(source, collector, url).decode("utf-8", "replace")
    lines = re.findall(r"^([0-9a-f]{64}) +\*?(?:\./)?(.+?)\r?$", text, re.MULTILINE)
    if not lines:
        raise MissingDataError(f"{url}: expected a list of checksums, found none")
    return {name: digest for digest, name in lines}
