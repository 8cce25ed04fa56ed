"""Everything that pages, charts and files of a leaderboard show, computed once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pandas as pd

from automedbench.base.cards import TaskCard
from automedbench.base.records import HEADLINE_TIERS, TIERS
from automedbench.judge.rubric import Rubric
from automedbench.leaderboard.entries import Entry, Method, Pooling, in_tiers, scored
from automedbench.leaderboard.plan import Plan
from automedbench.leaderboard.tables.cells import ledger_row, runs_of
from automedbench.leaderboard.tables.error_codes import ErrorAtlas, error_atlas
from automedbench.leaderboard.tables.ranking import NO_RANKING, Ranking, build_ranking
from automedbench.leaderboard.tables.stages import build_agreement, build_stages
from automedbench.leaderboard.tables.table import Table

HEADLINE = "headline"
ALL_TRACKS = "all"
"""Names of the choices that are no tier and no track; ids of tracks are never these."""


@dataclass(frozen=True)
class Tables:
    """Every table, rows in the order in which they are shown. ``views``: tier choice → track or "all" → ranking."""

    runs: Table
    views: dict[str, dict[str, Table]]
    overall: Table
    tracks: Table
    tasks: Table
    cells: Table
    stages: Table
    comparisons: Table
    ranks: Table
    agreement: Table
    atlas: ErrorAtlas

    def exported(self) -> list[Table]:
        """Those that are written as files."""
        atlas = self.atlas
        own = [self.runs, self.overall, self.tracks, self.tasks, self.cells, self.stages, self.comparisons, self.ranks]
        errors = [atlas.rows, atlas.pairs, atlas.costs, atlas.counts, atlas.summaries, atlas.detectors]
        return [*own, self.agreement, *errors]


@dataclass(frozen=True)
class Board:
    """A campaign with its scores and tables. ``unreadable``: scores that count as missing (path → why)."""

    plan: Plan
    entries: Sequence[Entry]
    cards: dict[str, TaskCard]
    rubrics: dict[str, Rubric]
    method: Method
    tables: Tables
    unreadable: dict[str, str] = field(default_factory=dict)

    @property
    def pooling(self) -> Pooling:
        """How scores are pooled."""
        return self.method.pooling

    @property
    def confidence(self) -> float:
        """Of intervals and ties."""
        return self.method.confidence

    @property
    def resamples(self) -> int:
        """Of intervals and tests."""
        return self.method.resamples

    @property
    def tasks(self) -> list[str]:
        """Planned tasks, sorted."""
        return sorted({entry.run.task for entry in self.entries})

    @property
    def tracks(self) -> list[str]:
        """Their tracks, sorted."""
        return sorted({entry.track for entry in self.entries})


def tier_choices(entries: Iterable[Entry]) -> dict[str, tuple[str, ...]]:
    """Choices of the tier picker → tiers: the headline first, then single tiers where that says something else."""
    found = {entry.run.tier for entry in entries}
    planned = [tier for tier in TIERS if tier in found]
    headline = tuple(tier for tier in planned if tier in HEADLINE_TIERS)
    choices: dict[str, tuple[str, ...]] = {HEADLINE: headline} if headline else {}
    return choices | {tier: (tier,) for tier in planned if headline != (tier,)}


def build_tables(entries: Sequence[Entry], method: Method) -> Tables:
    """All tables; pro is in ``runs``, ``cells`` and views of its own only."""
    runs = runs_of(entries)
    headline = runs[runs.tier.isin(HEADLINE_TIERS)]
    views = {choice: _rankings(runs, tiers, method) for choice, tiers in tier_choices(entries).items()}
    overall, tracks = views.get(HEADLINE, (NO_RANKING, NO_RANKING))
    contests = [(None, contest) for contest in overall.contests.values()] + list(tracks.contests.items())
    return Tables(
        runs=Table("runs", map(ledger_row, scored(entries))),
        views={choice: _by_track(*rankings) for choice, rankings in views.items()},
        overall=Table("overall", overall.rows.frame),
        tracks=Table("tracks", tracks.rows.frame),
        tasks=Table("tasks", build_ranking(headline, "task", method).rows.frame),
        cells=build_ranking(runs, "cell", method).rows,
        stages=build_stages(headline, method),
        comparisons=Table("comparisons", [row for track, one in contests for row in one.comparison_rows(track)]),
        ranks=Table("ranks", [row for track, one in contests for row in one.rank_rows(track)]),
        agreement=build_agreement(headline, method),
        atlas=error_atlas(in_tiers(entries, HEADLINE_TIERS), method.confidence),
    )


def _rankings(runs: pd.DataFrame, tiers: Sequence[str], method: Method) -> tuple[Ranking, Ranking]:
    """Of all tracks together, and of each."""
    kept = runs[runs.tier.isin(tiers)]
    return build_ranking(kept, "overall", method), build_ranking(kept, "track", method)


def _by_track(overall: Ranking, tracks: Ranking) -> dict[str, Table]:
    """All tracks, then each track by its id."""
    return {ALL_TRACKS: overall.rows} | {
        track: Table("cells", rows) for track, rows in tracks.rows.frame.groupby("track")
    }
