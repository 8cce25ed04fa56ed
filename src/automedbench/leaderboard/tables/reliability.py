"""Reliability of a single run: all of k repeats win a medal, and the worst of k repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from automedbench.leaderboard.entries import Pooling
from automedbench.leaderboard.tables.cells import Cell, pool
from automedbench.statistics import pass_hat_k, worst_of_k


@dataclass(frozen=True)
class Reliability:
    """``k`` is the smallest number of scored repeats of any cell, so that every cell counts; null without a score."""

    k: int | None
    pass_k: float | None
    worst_k: float | None


def reliability(cells: Sequence[Cell], pooling: Pooling) -> Reliability:
    """How likely k repeats of a cell, drawn from those scored, all win a medal, and their expected lowest score."""
    k = min((len(cell.scores) for cell in cells if cell.scores), default=None)
    if k is None:
        return Reliability(None, None, None)
    return Reliability(
        k,
        pool(cells, pooling, lambda cell: pass_hat_k(len(cell.scores), cell.n_medals, k) or 0.0),
        pool(cells, pooling, lambda cell: worst_of_k(cell.values["overall"].tolist(), k) or 0.0),
    )
