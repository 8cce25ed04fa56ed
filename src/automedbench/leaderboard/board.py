"""Everything that pages, charts and files of a leaderboard show, computed once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd

from automedbench.base.cards import TaskCard
from automedbench.base.records import HEADLINE_TIERS, TIERS
from automedbench.judge.rubric import Rubric
from automedbench.leaderboard.conditions import RecordedConditions, find_differences, signature
from automedbench.leaderboard.entries import BoardEntry
from automedbench.leaderboard.plan import Plan
from automedbench.leaderboard.reliability import FaultVerdict
from automedbench.leaderboard.tables.cells import ledger_rows, select_scored, tabulate_runs
from automedbench.leaderboard.tables.error_codes import error_tables
from automedbench.leaderboard.tables.ranking import NO_RANKING, Ranking, build_ranking
from automedbench.leaderboard.tables.reliability import build_faults, build_reliability
from automedbench.leaderboard.tables.stages import build_agreement, build_stages
from automedbench.leaderboard.tables.table import BoardTable
from automedbench.leaderboard.tables.tiers import build_tiers
from automedbench.leaderboard.tables.treatments import SkillUse, build_skills, build_treatments
from automedbench.statistics.samples import StatisticsMethod

HEADLINE = "headline"
ALL_TRACKS = "all"
"""Names of the choices that are no tier and no track; ids of tracks are never these."""


@dataclass(frozen=True)
class Board:
    """A campaign with its scores. ``unreadable``: scores that count as missing (path → why).

    ``faults``: runs under faults, which are no ``entries``; ``confidences``: of ``read_confidences``.
    """

    plan: Plan
    entries: Sequence[BoardEntry]
    cards: dict[str, TaskCard]
    rubrics: dict[str, Rubric]
    method: StatisticsMethod
    unreadable: dict[str, str] = field(default_factory=dict)
    skill_use: SkillUse = field(default_factory=dict)
    faults: Sequence[FaultVerdict] = ()
    confidences: Mapping[str, float] = field(default_factory=dict)

    @property
    def outdated(self) -> dict[str, tuple[str, ...]]:
        """Runs that were not made or scored as the campaign asks now: path → conditions."""
        every = [*self.entries, *(verdict.run.entry for verdict in self.faults)]
        return {entry.run.path: entry.outdated for entry in every if entry.outdated}

    @property
    def tracks(self) -> list[str]:
        """Tracks of the planned tasks, sorted."""
        return sorted({entry.track for entry in self.entries})

    @cached_property
    def runs(self) -> pd.DataFrame:
        """Planned runs, as ``tabulate_runs`` makes them."""
        return tabulate_runs(self.entries)

    @property
    def headline(self) -> pd.DataFrame:
        """Those of the tiers of the headline."""
        return self.runs[self.runs.tier.isin(HEADLINE_TIERS)]

    @cached_property
    def differs(self) -> list[str]:
        """Conditions that are not the same for all runs of the headline; without one, for all runs."""
        return find_differences(self._recorded_conditions)

    @cached_property
    def signature(self) -> str:
        """Signature of the same runs, all agents together."""
        return signature(self._recorded_conditions)

    @property
    def _recorded_conditions(self) -> Iterable[RecordedConditions]:
        return list(select_scored(self.headline).conditions) or list(select_scored(self.runs).conditions)

    @cached_property
    def rankings(self) -> dict[str, tuple[Ranking, Ranking]]:
        """Tier choice → ranking of all tracks together, and of each."""
        parts = {choice: self.runs[self.runs.tier.isin(tiers)] for choice, tiers in tier_choices(self.entries).items()}
        return {
            choice: (build_ranking(part, "overall", self.method), build_ranking(part, "track", self.method))
            for choice, part in parts.items()
        }

    @cached_property
    def views(self) -> dict[str, dict[str, BoardTable]]:
        """Tier choice → all tracks, then each track by its id → ranking."""
        return {
            choice: {ALL_TRACKS: overall.rows}
            | {track: BoardTable("cells", rows) for track, rows in tracks.rows.frame.groupby("track")}
            for choice, (overall, tracks) in self.rankings.items()
        }

    @cached_property
    def tables(self) -> dict[str, BoardTable]:
        """Every table by its name, rows in the order in which they are shown; pro is in ``runs`` and ``cells`` only."""
        overall, tracks = self.rankings.get(HEADLINE, (NO_RANKING, NO_RANKING))
        found = [
            BoardTable("runs", ledger_rows(self.entries)),
            BoardTable("overall", overall.rows.frame),
            BoardTable("tracks", tracks.rows.frame),
            BoardTable("tasks", build_ranking(self.headline, "task", self.method).rows.frame),
            build_ranking(self.runs, "cell", self.method).rows,
            build_stages(self.headline, self.method),
            build_tiers(self.headline, self.method.pooling),
            BoardTable("comparisons", [*overall.comparisons, *tracks.comparisons]),
            build_agreement(self.headline, self.method),
        ]
        treatments = build_treatments(self.headline, self.skill_use, self.method)
        reliability = build_reliability(self.headline, self.faults, self.confidences, self.method)
        occasional = treatments, build_skills(self.runs, self.skill_use), build_faults(self.faults), reliability
        found += [table for table in occasional if len(table)]
        headline = [entry for entry in self.entries if entry.run.tier in HEADLINE_TIERS]
        return {table.name: table for table in found} | error_tables(headline, self.method.confidence)


def tier_choices(entries: Iterable[BoardEntry]) -> dict[str, tuple[str, ...]]:
    """Choices of the tier picker → tiers: the headline first, then single tiers where that says something else."""
    found = {entry.run.tier for entry in entries}
    planned = [tier for tier in TIERS if tier in found]
    headline = tuple(tier for tier in planned if tier in HEADLINE_TIERS)
    choices: dict[str, tuple[str, ...]] = {HEADLINE: headline} if headline else {}
    return choices | {tier: (tier,) for tier in planned if headline != (tier,)}
