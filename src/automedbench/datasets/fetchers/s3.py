"""Public objects of a store with the S3 interface, asked for over plain HTTPS."""

from __future__ import annotations

from urllib.parse import quote

from automedbench.base.cards import Source
from automedbench.base.errors import ConfigError
from automedbench.datasets.download.collecting import Collector
from automedbench.datasets.fetchers import Plan
from automedbench.datasets.fetchers._web import file_item, numbered
from automedbench.datasets.patterns import is_pattern


def plan(source: Source, collector: Collector) -> Plan:
    """One item per key; ``where`` is the bucket, or ``s3://bucket/prefix`` that the keys are below."""
    bucket, _, prefix = source.where.removeprefix("s3://").partition("/")
    vague = [told.name for told in source.downloads if is_pattern(told.name)]
    if vague or not source.downloads:
        raise ConfigError([f"dataset.sources: s3 {source.where}: downloads must name keys, without patterns: {vague}"])
    items = []
    for told in numbered(source.downloads):
        key = f"{prefix.strip('/')}/{told.name}".lstrip("/")
        items.append(file_item(source, collector, f"https://{bucket}.s3.amazonaws.com/{quote(key)}", told.name, told))
    return Plan(items, source.revision)
