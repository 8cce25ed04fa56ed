"""Files with a URL: Zenodo, figshare, Mendeley, institutes' pages."""

from __future__ import annotations

from automedbench.cards import Download, Source
from automedbench.datasets.collecting import Collector
from automedbench.datasets.fetchers import Plan
from automedbench.datasets.fetchers._web import file_item, numbered, own_name


def plan(source: Source, collector: Collector) -> Plan:
    """One item per download, whose name is a URL, whole or below ``where``; without downloads ``where`` is the file."""
    items = []
    for told in numbered(source.downloads or [Download(name=source.where)]):
        url = told.name if "://" in told.name else f"{source.where.rstrip('/')}/{told.name.lstrip('/')}"
        items.append(file_item(source, collector, url, own_name(url), told))
    return Plan(items, source.revision)
