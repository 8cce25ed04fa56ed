"""Runs arranged as cells (task × tier), and the weight of each cell in a pooled score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np

from automedbench.statistics.samples import SHARES, Floats, Indices, Measure, Pooling, Sample, in_order

Place = tuple[str, str]


@dataclass(frozen=True)
class Cell:
    """The runs of one agent on one task and tier, by repeat."""

    runs: tuple[Sample, ...]

    @property
    def n(self) -> int:
        """Number of repeats."""
        return len(self.runs)

    @cached_property
    def agentic(self) -> Floats:
        """Agentic scores, (n,)."""
        return np.array([run.agentic for run in self.runs], float)

    @cached_property
    def task_scores(self) -> Floats:
        """Task scores, (n,)."""
        return np.array([run.task_score for run in self.runs], float)

    def values(self, measure: Measure) -> Floats:
        """Scores of the runs on a measure, (n,)."""
        agentic, task = SHARES[measure]
        return agentic * self.agentic + task * self.task_scores

    @cached_property
    def cases(self) -> Floats | None:
        """What each case adds to each run's task score, (n, cases); None where that is not known.

        A run that scored 0 without a list of cases (it was disqualified) has zeros: contributions are never negative.
        """
        known = [run.cases for run in self.runs if run.cases is not None]
        if not known or len({len(cases) for cases in known}) > 1 or len(known[0]) < 2:
            return None
        if any(run.cases is None and run.task_score > 0 for run in self.runs):
            return None
        nothing = np.zeros(len(known[0]))
        return np.array([nothing if run.cases is None else run.cases for run in self.runs], float)

    @cached_property
    def case_means(self) -> Floats | None:
        """Mean of each case over the repeats, (cases,)."""
        return None if self.cases is None else self.cases.mean(axis=0)

    @cached_property
    def interaction(self) -> float:
        """Variance of a case within a repeat that neither the case nor the repeat explains (two-way layout)."""
        if self.cases is None or self.n < 2:
            return 0.0
        matrix = self.cases
        rest = matrix - matrix.mean(axis=0) - matrix.mean(axis=1, keepdims=True) + matrix.mean()
        return float((rest * rest).sum() / ((self.n - 1) * (matrix.shape[1] - 1)))


def cells_of(samples: Iterable[Sample]) -> dict[Place, Cell]:
    """Cells by (task, tier), in order. Raises ValueError for what ``in_order`` refuses."""
    ordered = in_order(samples)
    groups = groupby(ordered, key=lambda sample: (sample.task, sample.tier))
    return {place: Cell(tuple(runs)) for place, runs in groups}


def cell_weights(places: Sequence[Place], counts: Sequence[int], pooling: Pooling) -> Floats:
    """Weight of each cell in the pooled score; they sum to 1.

    ``tasks``: mean over tasks of the mean over tiers of the mean over repeats. ``runs``: mean over all runs, so that a
    cell counts as often as it has runs (``counts``).
    """
    if pooling == "runs":
        return np.array(counts, float) / sum(counts)
    tiers = Counter(task for task, _ in places)
    return np.array([1 / (len(tiers) * tiers[task]) for task, _ in places])


def task_index(places: Sequence[Place]) -> tuple[list[str], Indices]:
    """Tasks in order, and the number of each cell's task."""
    tasks = sorted({task for task, _ in places})
    numbers = {task: number for number, task in enumerate(tasks)}
    return tasks, np.array([numbers[task] for task, _ in places], np.intp)


def means(cells: Mapping[Place, Cell], places: Sequence[Place], measure: Measure) -> Floats:
    """Mean of each cell on a measure, (cells,)."""
    return np.array([cells[place].values(measure).mean() for place in places])


def per_task(values: Floats, index: Indices) -> Floats:
    """Sum of cell values within each task, (tasks,)."""
    sums: Floats = np.bincount(index, weights=values).astype(float)
    return sums
