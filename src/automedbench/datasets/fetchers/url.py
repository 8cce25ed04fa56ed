"""Files with a URL: Zenodo, figshare, Mendeley, institutes' pages."""

from __future__ import annotations

from automedbench.base.cards import Download, Source
from automedbench.datasets.download.collecting import Collector, Item
from automedbench.datasets.fetchers import Plan
from automedbench.datasets.fetchers._rows import filled
from automedbench.datasets.fetchers._web import file_item, own_name


def plan(source: Source, collector: Collector) -> Plan:
    """One item per download, whose name is a URL, whole or below ``where``; without downloads ``where`` is the file."""

    def item(told: Download) -> Item:
        url = told.name if "://" in told.name else f"{source.where.rstrip('/')}/{told.name.lstrip('/')}"
        return file_item(source, collector, url, own_name(url), told)

    downloads = filled(source, collector, source.downloads or [Download(name=source.where)], item)
    return Plan([item(told) for told in downloads], source.revision)
