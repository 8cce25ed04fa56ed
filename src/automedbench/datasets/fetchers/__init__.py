"""Fetchers by kind of source: functions ``(source, collector) -> FetchPlan`` that say what is to be got and how.

The collector gets it. A plan may ask the host for a listing through the collector; nothing else is downloaded while
planning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from automedbench.base.cards import Source
from automedbench.datasets.download.collecting import Collector
from automedbench.datasets.fetchers import catalogues, git, web
from automedbench.datasets.fetchers.web import FetchPlan

PLANNERS: Final[dict[str, Callable[[Source, Collector], FetchPlan]]] = {
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
