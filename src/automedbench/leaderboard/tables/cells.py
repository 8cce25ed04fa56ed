"""Cells: the runs of one agent on one task in one tier. Every row of every table is made of whole cells.

What a cell says is computed once, however many rows it is part of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from statistics import fmean
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from automedbench.base.records import ScoreRecord
from automedbench.leaderboard.entries import Entry, Pooling, group_by, has_failed, has_medal, samples_of, value_of
from automedbench.leaderboard.tables.conditions import CONDITIONS, Condition
from automedbench.statistics import Sample

NumberT = TypeVar("NumberT", int, float, Decimal)

SCORES = ("overall", "agentic", "task", "s1", "s2", "s3", "s4", "s5")


@dataclass(frozen=True)
class Cell:
    """The planned runs of an agent × task × tier, at least one; those that are scored make its numbers."""

    agent: str
    track: str
    task: str
    tier: str
    entries: list[Entry]

    @cached_property
    def scores(self) -> list[ScoreRecord]:
        """The scores that exist."""
        return [entry.score for entry in self.entries if entry.score is not None]

    @cached_property
    def samples(self) -> list[Sample]:
        """The scored runs for the statistics."""
        return samples_of(self.entries)

    @cached_property
    def values(self) -> dict[str, NDArray[np.float64]]:
        """Score → its value in every scored run, 0 in disqualified ones."""
        rows = [[value_of(score, name) for name in SCORES] for score in self.scores]
        return dict(zip(SCORES, np.array(rows, float).reshape(-1, len(SCORES)).T, strict=True))

    @cached_property
    def means(self) -> dict[str, float]:
        """Score → its mean over repeats; empty without a scored run."""
        return {name: fmean(values.tolist()) for name, values in self.values.items()} if self.scores else {}

    @cached_property
    def by_repeat(self) -> dict[int, float]:
        """Repeat → overall score."""
        return dict(zip((score.run.repeat for score in self.scores), self.values["overall"].tolist(), strict=True))

    @cached_property
    def n_failed(self) -> int:
        """Runs without a complete final submission."""
        return sum(map(has_failed, self.scores))

    @cached_property
    def n_medals(self) -> int:
        """Runs with a medal."""
        return sum(map(has_medal, self.scores))

    @cached_property
    def n_disqualified(self) -> int:
        """Disqualified runs."""
        return sum(score.disqualified for score in self.scores)

    @cached_property
    def used(self) -> tuple[float, float, float]:
        """Turns, seconds and tokens of all scored runs together."""
        totals = [score.totals for score in self.scores]
        return (
            float(sum(total.turns for total in totals)),
            sum(total.wall_s for total in totals),
            float(sum(total.tokens.total for total in totals)),
        )

    @cached_property
    def costs(self) -> list[Decimal]:
        """Known costs of runs in USD."""
        return [Decimal(score.totals.cost_usd) for score in self.scores if score.totals.cost_usd is not None]

    @cached_property
    def judge_costs(self) -> list[Decimal]:
        """Known costs of judging them in USD."""
        return [Decimal(score.judge_cost_usd) for score in self.scores if score.judge_cost_usd is not None]

    @cached_property
    def conditions(self) -> dict[Condition, frozenset[object]]:
        """Condition → all that it was in these runs."""
        return {name: frozenset(map(of_score, self.scores)) for name, of_score in CONDITIONS.items()}


def cells_of(entries: Iterable[Entry]) -> list[Cell]:
    """Entries as cells, in order of first appearance."""
    groups = group_by(entries, lambda entry: (entry.run.agent, entry.track, entry.run.task, entry.run.tier))
    return [Cell(*where, group) for where, group in groups.items()]


def by_task(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Cells with a score, by task."""
    return list(group_by((cell for cell in cells if cell.scores), lambda cell: cell.task).values())


def pool(cells: Sequence[Cell], pooling: Pooling, value: Callable[[Cell], float]) -> float | None:
    """Mean over tasks of the mean over tiers of a cell's value, or over cells weighted by their scored runs.

    None when no cell has a score.
    """
    if not (tasks := by_task(cells)):
        return None
    if pooling == "tasks":
        return fmean([fmean([value(cell) for cell in task]) for task in tasks])
    every = [cell for task in tasks for cell in task]
    return fmean([value(cell) for cell in every], [len(cell.scores) for cell in every])


def pooled_score(cells: Sequence[Cell], name: str, pooling: Pooling) -> float | None:
    """A score pooled over cells; None when there is none."""
    return pool(cells, pooling, lambda cell: cell.means[name])
