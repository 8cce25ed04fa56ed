"""Data sets of Kaggle, through the address that its public API documents for downloads."""

from __future__ import annotations

from urllib.parse import quote

from automedbench.base.cards import Download, Source
from automedbench.datasets.download.access import KAGGLE
from automedbench.datasets.download.collecting import Collector
from automedbench.datasets.fetchers import Plan
from automedbench.datasets.fetchers._web import file_item, numbered

_API = f"https://{KAGGLE}/api/v1/datasets/download"


def plan(source: Source, collector: Collector) -> Plan:
    """One archive of all, or single files; ``where`` is owner/name, the revision a version's number."""
    query = f"?datasetVersionNumber={source.revision}" if source.revision else ""
    if not source.downloads:
        own = f"{source.where.rpartition('/')[2]}.zip"
        whole = file_item(source, collector, f"{_API}/{source.where}{query}", own, Download(name=own))
        return Plan([whole], source.revision)
    items = []
    for told in numbered(source.downloads):
        below = f"/{quote(told.name)}" if told.name else ""
        own = told.name or f"{source.where.rpartition('/')[2]}.zip"
        items.append(file_item(source, collector, f"{_API}/{source.where}{below}{query}", own, told))
    return Plan(items, source.revision)
