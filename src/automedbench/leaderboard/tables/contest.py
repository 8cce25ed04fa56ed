"""Agents against each other in one place: which differences are real, which ranks are possible, who is tied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from automedbench.leaderboard.entries import Method
from automedbench.leaderboard.tables.cells import Cell
from automedbench.statistics import (
    Interval,
    Measure,
    PairedComparison,
    RankRange,
    compare_pairs,
    intervals,
    rank_distribution,
    tie_groups,
)


@dataclass(frozen=True)
class Contest:
    """All agents of one place (everything, a track, a task, a cell) by name; those without a score take no part.

    No ties where no pair could be tested: letters would say that a test was made.
    """

    intervals: Mapping[str, Mapping[Measure, Interval]]
    pairs: Sequence[PairedComparison]
    ranks: Mapping[str, RankRange]
    ties: Mapping[str, str]


def hold_contest(agents: Mapping[str, Sequence[Cell]], ranking: Sequence[str], method: Method) -> Contest:
    """Intervals of every agent, and all of them against each other; ``ranking``: names, best first."""
    found = {name: [sample for cell in cells for sample in cell.samples] for name, cells in sorted(agents.items())}
    samples = {name: group for name, group in found.items() if group}
    options = method.resampling
    spans = {name: intervals(group, pooling=method.pooling, **options) for name, group in samples.items()}
    if len(samples) < 2:
        return Contest(spans, [], {}, {})
    pairs = compare_pairs(samples, "overall", method.pooling, **options)
    ranks = rank_distribution(samples, "overall", method.pooling, **options)
    tested = any(pair.sufficient for pair in pairs)
    ties = tie_groups([name for name in ranking if name in samples], pairs) if tested else {}
    return Contest(spans, pairs, ranks, ties)
