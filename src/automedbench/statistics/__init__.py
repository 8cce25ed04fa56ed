"""Statistics of differences between agents: intervals, comparisons, ranks and agreement (docs/statistics.md).

Plain numbers in, frozen records out. Imports nothing of the project outside of this package.
"""

from __future__ import annotations

from automedbench.statistics.agreement import krippendorff_alpha, weighted_kappa
from automedbench.statistics.intervals import MIN_REPEATS, interval, intervals
from automedbench.statistics.pairs import compare_pairs, holm, smallest_detectable_difference, tie_groups
from automedbench.statistics.ranks import pass_hat_k, rank_distribution, worst_of_k
from automedbench.statistics.samples import (
    MEASURES,
    Agreement,
    Interval,
    Measure,
    PairedComparison,
    Pooling,
    RankRange,
    Sample,
)

__all__ = [
    "MEASURES",
    "MIN_REPEATS",
    "Agreement",
    "Interval",
    "Measure",
    "PairedComparison",
    "Pooling",
    "RankRange",
    "Sample",
    "compare_pairs",
    "holm",
    "interval",
    "intervals",
    "krippendorff_alpha",
    "pass_hat_k",
    "rank_distribution",
    "smallest_detectable_difference",
    "tie_groups",
    "weighted_kappa",
    "worst_of_k",
]
