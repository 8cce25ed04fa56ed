"""Files of Synapse, by their ids; the REST interface redirects to where the content lies."""

from __future__ import annotations

from automedbench.base.cards import Download, Source
from automedbench.datasets.download.access import SYNAPSE
from automedbench.datasets.download.collecting import Collector
from automedbench.datasets.fetchers import Plan
from automedbench.datasets.fetchers._web import file_item, numbered


def plan(source: Source, collector: Collector) -> Plan:
    """One item per id. Ids tell no file name: ``to`` says where a file goes, ``unpack: true`` that it is an archive."""
    items = []
    for told in numbered(source.downloads or [Download(name=source.where)]):
        url = f"https://{SYNAPSE}/repo/v1/entity/{told.name}/file"
        items.append(file_item(source, collector, url, told.name, told, archive=False, name=f"synapse {told.name}"))
    return Plan(items, source.revision)
