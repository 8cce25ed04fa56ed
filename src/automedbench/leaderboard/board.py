"""Everything that pages, charts and files of a leaderboard show, computed once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from automedbench.base.cards import TaskCard
from automedbench.base.records import HEADLINE_TIERS, TIERS
from automedbench.judge.rubric import Rubric
from automedbench.leaderboard.entries import Entry, Method, Pooling, in_tiers, scored
from automedbench.leaderboard.plan import Plan
from automedbench.leaderboard.tables.agreement import AgreementRow, build_agreement
from automedbench.leaderboard.tables.cells import Cell, cells_of
from automedbench.leaderboard.tables.error_codes import ErrorAtlas, error_atlas
from automedbench.leaderboard.tables.ledger import RunRow, ledger_row
from automedbench.leaderboard.tables.pairs import ComparisonRow, RankRow, comparison_rows, rank_rows
from automedbench.leaderboard.tables.ranking import Place, Row, build_places
from automedbench.leaderboard.tables.stages import StageRow, build_stages

HEADLINE = "headline"
ALL_TRACKS = "all"
"""Names of the choices that are no tier and no track; ids of tracks are never these."""


@dataclass(frozen=True)
class Tables:
    """Rows of every table, in the order in which they are shown. ``views``: tier choice → track or "all" → ranking."""

    runs: list[RunRow]
    views: dict[str, dict[str, list[Row]]]
    tasks: list[Row]
    cells: list[Row]
    stages: list[StageRow]
    comparisons: list[ComparisonRow]
    ranks: list[RankRow]
    agreement: list[AgreementRow]
    atlas: ErrorAtlas

    @property
    def overall(self) -> list[Row]:
        """The headline ranking."""
        return self.views.get(HEADLINE, {}).get(ALL_TRACKS, [])

    @property
    def tracks(self) -> list[Row]:
        """The headline rankings of all tracks, one after the other."""
        views = self.views.get(HEADLINE, {})
        return [row for track in views if track != ALL_TRACKS for row in views[track]]


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
    cells = cells_of(entries)
    headline = [cell for cell in cells if cell.tier in HEADLINE_TIERS]
    places = {
        choice: _places([cell for cell in cells if cell.tier in tiers], method)
        for choice, tiers in tier_choices(entries).items()
    }
    ranked = places.get(HEADLINE, {}).values()
    return Tables(
        runs=[ledger_row(score) for score in scored(entries)],
        views={choice: {name: place.rows for name, place in found.items()} for choice, found in places.items()},
        tasks=_rows(build_places(headline, "task", method)),
        cells=_rows(build_places(cells, "cell", method)),
        stages=build_stages(headline, method),
        comparisons=comparison_rows(ranked),
        ranks=rank_rows(ranked),
        agreement=build_agreement(headline, method),
        atlas=error_atlas(in_tiers(entries, HEADLINE_TIERS), method.confidence),
    )


def _places(cells: Sequence[Cell], method: Method) -> Mapping[str, Place]:
    """All tracks, then each track by its id."""
    places = [*build_places(cells, "overall", method), *build_places(cells, "track", method)]
    return {place.track or ALL_TRACKS: place for place in places}


def _rows(places: Iterable[Place]) -> list[Row]:
    return [row for place in places for row in place.rows]
