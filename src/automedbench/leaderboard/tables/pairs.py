"""Tables of agents against each other: which differences are real, and which ranks are possible."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from automedbench.leaderboard.tables.ranking import Place


@dataclass(frozen=True)
class ComparisonRow:
    """Overall score of agent ``a`` minus that of ``b`` on the cells that both have; track null: all tracks."""

    track: str | None
    a: str
    b: str
    n_cells: int
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None
    different: bool
    sufficient: bool
    sdd: float | None
    unit: str
    n_units: int
    p_min: float | None


@dataclass(frozen=True)
class RankRow:
    """Share of joint resamples in which an agent takes a rank; track null: all tracks."""

    track: str | None
    agent: str
    rank: int
    share: float


def comparison_rows(places: Iterable[Place]) -> list[ComparisonRow]:
    """Every pair of agents of these places."""
    return [ComparisonRow(place.track, **vars(pair)) for place in places for pair in place.contest.pairs]


def rank_rows(places: Iterable[Place]) -> list[RankRow]:
    """Every rank of every agent in the order of the ranking; none where the data do not suffice."""
    return [
        RankRow(place.track, row.agent, rank, share)
        for place in places
        for row in place.rows
        if row.agent in place.contest.ranks
        for rank, share in enumerate(place.contest.ranks[row.agent].shares, 1)
    ]
