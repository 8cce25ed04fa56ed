"""Lite against standard: the same tasks with the method named in the brief, and without (the paper's table 5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from automedbench.base.records import HEADLINE_TIERS
from automedbench.leaderboard.tables.cells import pool_scores, split_by_track, tabulate_cells
from automedbench.leaderboard.tables.table import BoardTable
from automedbench.statistics.samples import Pooling

_MEASURES = {"agentic": "agentic", "task": "task_score", "overall": "overall"}


def build_tiers(runs: pd.DataFrame, pooling: Pooling) -> BoardTable:
    """One row per track (first all of them) and agent, over the tasks that it has scored runs of in both tiers.

    ``runs``: of ``tabulate_runs``, those of the headline. An agent without such a task has no row.
    """
    return BoardTable("tiers", [row for track, part in split_by_track(runs) for row in _rows(track, part, pooling)])


def _rows(track: str | None, runs: pd.DataFrame, pooling: Pooling) -> Iterator[dict[str, Any]]:
    cells = tabulate_cells(runs)
    both = cells[cells.groupby(["agent", "task"]).tier.transform("nunique") == len(HEADLINE_TIERS)]
    means = pool_scores(both, ["agent", "tier"], pooling, list(_MEASURES.values())).to_dict("index")
    for agent, own in both.groupby("agent"):
        found = {
            f"{name}_{tier}": means[agent, tier][column]
            for name, column in _MEASURES.items()
            for tier in HEADLINE_TIERS
        }
        lite, standard = found["agentic_lite"], found["agentic_standard"]
        yield {
            "track": track,
            "agent": agent,
            "n_tasks": own.task.nunique(),
            "n_lite": own.n_scored[own.tier == "lite"].sum(),
            "n_standard": own.n_scored[own.tier == "standard"].sum(),
            **found,
            "agentic_change": lite / standard - 1 if standard else None,
        }
