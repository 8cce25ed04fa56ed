"""Which differences between agents are real: intervals, comparisons, ranks and agreement (docs/statistics.md).

Plain numbers in, frozen records out. Imports nothing of the project outside of this package.
"""

from __future__ import annotations

from automedbench.statistics.agreement import krippendorff_alpha, weighted_kappa
from automedbench.statistics.intervals import interval, intervals
from automedbench.statistics.pairs import compare_pairs, holm, smallest_detectable_difference
from automedbench.statistics.ranks import rank_distribution
from automedbench.statistics.repeats import over_cells, pass_hat_k, worst_of_k
from automedbench.statistics.results import Agreement, Interval, OverCells, PairedComparison, RankRange
from automedbench.statistics.samples import MEASURES, Level, Measure, Pooling, Sample
from automedbench.statistics.ties import tie_groups

__all__ = [
    "MEASURES",
    "Agreement",
    "Interval",
    "Level",
    "Measure",
    "OverCells",
    "PairedComparison",
    "Pooling",
    "RankRange",
    "Sample",
    "compare_pairs",
    "holm",
    "interval",
    "intervals",
    "krippendorff_alpha",
    "over_cells",
    "pass_hat_k",
    "rank_distribution",
    "smallest_detectable_difference",
    "tie_groups",
    "weighted_kappa",
    "worst_of_k",
]
