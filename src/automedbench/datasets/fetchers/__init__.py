"""Fetchers by kind of source: functions ``(source, collector) -> FetchPlan`` that say what is to be got and how.

The collector gets it. A plan may ask the host for a listing through the collector; nothing else is downloaded while
planning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from automedbench.base.cards import Source
from automedbench.base.errors import ConfigError
from automedbench.datasets.download.collecting import Collector
from automedbench.datasets.fetchers import catalogues, git, web
from automedbench.datasets.fetchers.web import FetchPlan

__all__ = ["PLANNERS", "FetchPlan", "Planner", "get_planner"]

Planner = Callable[[Source, Collector], FetchPlan]

PLANNERS: Final[dict[str, Planner]] = {
    "box": web.plan_box,
    "git": git.plan_git,
    "huggingface": catalogues.plan_huggingface,
    "huggingface_model": catalogues.plan_huggingface,
    "kaggle": web.plan_kaggle,
    "manual": web.plan_manual,
    "physionet": catalogues.plan_physionet,
    "synapse": web.plan_synapse,
    "tcia": catalogues.plan_tcia,
    "url": web.plan_url,
}
"""Every kind of source that can be fetched."""


def get_planner(kind: str) -> Planner:
    """The fetcher of a kind of source; raises ConfigError for a kind that has none."""
    if kind not in PLANNERS:
        raise ConfigError([f"dataset.sources.kind: '{kind}' has no fetcher"])
    return PLANNERS[kind]
