"""Static links of Box, which need no account: names are whole URLs."""

from __future__ import annotations

from automedbench.base.cards import Source
from automedbench.base.errors import MissingDataError
from automedbench.datasets.download.access import describe
from automedbench.datasets.download.collecting import Collector
from automedbench.datasets.fetchers import Plan, url


def plan(source: Source, collector: Collector) -> Plan:
    """As for plain URLs; a shared folder without static links can only be fetched by hand."""
    if not source.downloads:
        raise MissingDataError(f"{describe(source)} must be fetched by hand: the card knows no static links")
    return url.plan(source, collector)
