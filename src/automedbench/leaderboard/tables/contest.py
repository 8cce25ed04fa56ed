"""Agents against each other in one place: which differences are real, which ranks are possible, who is tied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from automedbench.leaderboard.entries import Method
from automedbench.statistics import (
    MEASURES,
    Interval,
    Measure,
    PairedComparison,
    RankRange,
    Sample,
    compare_pairs,
    intervals,
    rank_distribution,
    tie_groups,
)

_NO_INTERVAL = Interval(low=None, high=None, n_tasks=0, min_repeats=0, sufficient=False)


@dataclass(frozen=True)
class Contest:
    """All agents of one place (everything, a track, a task, a cell) by name; those without a score take no part.

    No ties where no pair could be tested: letters would say that a test was made.
    """

    ranking: Sequence[str]
    intervals: Mapping[str, Mapping[Measure, Interval]]
    pairs: Sequence[PairedComparison]
    ranks: Mapping[str, RankRange]
    ties: Mapping[str, str]

    def row(self, agent: str) -> dict[str, Any]:
        """What a row of the ranking says of an agent: ends of its intervals, possible ranks, letters."""
        spans, possible = self.intervals.get(agent, {}), self.ranks.get(agent)
        found = {name: spans.get(name, _NO_INTERVAL) for name in MEASURES}
        return {
            **{f"{name}_low": span.low for name, span in found.items()},
            **{f"{name}_high": span.high for name, span in found.items()},
            "sufficient": found["overall"].sufficient,
            "rank_best": possible.best if possible and possible.sufficient else None,
            "rank_worst": possible.worst if possible and possible.sufficient else None,
            "tie": self.ties.get(agent) or None,
        }

    def comparison_rows(self, track: str | None) -> Iterator[dict[str, Any]]:
        """Every pair of agents."""
        return ({"track": track} | vars(pair) for pair in self.pairs)

    def rank_rows(self, track: str | None) -> Iterator[dict[str, Any]]:
        """Every rank of every agent in the order of the ranking; none where the data do not suffice."""
        for agent in self.ranking:
            for rank, share in enumerate(self.ranks[agent].shares if agent in self.ranks else (), 1):
                yield {"track": track, "agent": agent, "rank": rank, "share": share}


def hold_contest(agents: Mapping[str, Sequence[Sample]], ranking: Sequence[str], method: Method) -> Contest:
    """Intervals of every agent, and all of them against each other; ``ranking``: names, best first."""
    samples = {name: group for name, group in sorted(agents.items()) if group}
    options = method.resampling
    spans = {name: intervals(group, pooling=method.pooling, **options) for name, group in samples.items()}
    if len(samples) < 2:
        return Contest(ranking, spans, [], {}, {})
    pairs = compare_pairs(samples, "overall", method.pooling, **options)
    ranks = rank_distribution(samples, "overall", method.pooling, **options)
    tested = any(pair.sufficient for pair in pairs)
    ties = tie_groups([name for name in ranking if name in samples], pairs) if tested else {}
    return Contest(ranking, spans, pairs, ranks, ties)
