"""Fetchers by kind of source: one module per kind, with ``plan``.

``plan(source, collector) -> Plan`` says what is to be got and how; the collector gets it. A plan may ask the host for
a listing through the collector; nothing else is downloaded while planning.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from automedbench.base.cards import Source
from automedbench.base.errors import ConfigError
from automedbench.datasets.download.collecting import Collector, Item

__all__ = ["Plan", "Planner", "fetcher_kinds", "get_planner"]


@dataclass(frozen=True)
class Plan:
    """What makes up a source."""

    items: Sequence[Item]
    revision: str | None = None
    """What the source is at, where the host tells; a clone tells afterwards."""


Planner = Callable[[Source, Collector], Plan]


@functools.cache
def fetcher_kinds() -> tuple[str, ...]:
    """Every kind of source that can be fetched: the modules of this package without an underscore."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name[0] != "_"))


def get_planner(kind: str) -> Planner:
    """The fetcher of a kind of source; raises ConfigError for a kind that has none."""
    if kind not in fetcher_kinds():
        raise ConfigError([f"dataset.sources.kind: '{kind}' has no fetcher"])
    return cast(Planner, importlib.import_module(f"{__name__}.{kind}").plan)
