"""Samples of the statistics: scored runs as plain numbers, and as cells (task × tier); results made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Measure = Literal["overall", "agentic", "task"]
Pooling = Literal["tasks", "runs"]
Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

MEASURES: tuple[Measure, ...] = ("overall", "agentic", "task")
SHARES: dict[Measure, tuple[float, float]] = {"overall": (0.5, 0.5), "agentic": (1.0, 0.0), "task": (0.0, 1.0)}
"""Share of the agentic and of the task half in a measure (docs/specification.md, 6)."""


@dataclass(frozen=True)
class StatisticsMethod:
    """Method of pooling, level of confidence, and number of resamples."""

    pooling: Pooling = "tasks"
    confidence: float = 0.95
    resamples: int = 2000
    seed: int = 0


USUAL = StatisticsMethod()


@dataclass(frozen=True)
class Sample:
    """One scored run; a disqualified one with zeros. All scores in [0, 1].

    ``cases``: what each case adds to the task score, so that their mean is the task score; the same cases in the same
    order for all runs of a task. None where the task score is no mean over cases. ``judged``: judge of a panel → the
    agentic score that it alone would give.
    """

    task: str
    tier: str
    repeat: int
    agentic: float
    task_score: float
    cases: NDArray[Any] | None = None
    judged: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Interval:
    """A confidence interval of a pooled score; low and high are None where the data do not suffice."""

    low: float | None
    high: float | None
    sufficient: bool
    estimate: float | None = None
    standard_error: float | None = None


@dataclass(frozen=True)
class PairedComparison:
    """Agent ``a`` minus agent ``b`` over the cells (task × tier) that both have; None: not to be had.

    On these tasks: ``low`` and ``high`` are simultaneous for all pairs of the table, ``p`` is two-sided and corrected
    for them, ``sdd`` is the smallest difference that is found with 80 % power. On tasks like these: ``p_like``, also
    corrected, from six common tasks on. ``generalises``: different on these tasks and on tasks like these.
    """

    a: str
    b: str
    n_cells: int = 0
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    different: bool = False
    sufficient: bool = False
    sdd: float | None = None
    n_tasks: int = 0
    p_like: float | None = None
    generalises: bool = False


@dataclass(frozen=True)
class Agreement:
    """An agreement coefficient with an interval over units; value None where it is undefined (nothing varies)."""

    value: float | None
    low: float | None
    high: float | None
    n_units: int


Place = tuple[str, str]


@dataclass(frozen=True)
class RunCell:
    """The runs of one agent on one task and tier, by repeat."""

    runs: tuple[Sample, ...]

    @property
    def n(self) -> int:
        """Number of repeats."""
        return len(self.runs)

    def values(self, measure: Measure) -> Floats:
        """Scores of the runs on a measure, (n,)."""
        agentic, task = SHARES[measure]
        found: Floats = agentic * self._halves[0] + task * self._halves[1]
        return found

    @cached_property
    def _halves(self) -> Floats:
        return np.array([[run.agentic for run in self.runs], [run.task_score for run in self.runs]], float)

    @cached_property
    def judged(self) -> dict[str, list[float]]:
        """Each judge that judged all runs → the agentic scores that it alone would give."""
        shared = set.intersection(*(set(run.judged) for run in self.runs))
        return {name: [run.judged[name] for run in self.runs] for name in shared}

    @cached_property
    def cases(self) -> Floats | None:
        """Contribution of each case to each run's task score, (n, cases); None where unknown.

        A run that scored 0 without a list of cases (it was disqualified) has zeros: contributions are never negative.
        """
        known = [run.cases for run in self.runs if run.cases is not None]
        if not known or len({len(cases) for cases in known}) > 1 or len(known[0]) < 2:
            return None
        if any(run.cases is None and run.task_score > 0 for run in self.runs):
            return None
        nothing = np.zeros(len(known[0]))
        return np.array([nothing if run.cases is None else run.cases for run in self.runs], float)


def interaction(matrix: Floats) -> float:
    """Variance in (repeats, columns) that neither repeats nor columns explain (two-way layout); 0 for one repeat."""
    rest = matrix - matrix.mean(axis=0) - matrix.mean(axis=1, keepdims=True) + matrix.mean()
    degrees = (matrix.shape[0] - 1) * (matrix.shape[1] - 1)
    return float((rest * rest).sum() / degrees) if degrees else 0.0


def group_cells(samples: Iterable[Sample]) -> dict[Place, RunCell]:
    """Cells by (task, tier), runs by repeat: no result depends on the order in which runs were read."""
    ordered = sorted(samples, key=lambda sample: (sample.task, sample.tier, sample.repeat))
    groups = groupby(ordered, key=lambda sample: (sample.task, sample.tier))
    return {place: RunCell(tuple(runs)) for place, runs in groups}


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


def means(cells: Mapping[Place, RunCell], places: Sequence[Place], measure: Measure) -> Floats:
    """Mean of each cell on a measure, (cells,)."""
    return np.array([cells[place].values(measure).mean() for place in places])


def per_task(values: Floats, index: Indices) -> Floats:
    """Sum of cell values within each task, (tasks,)."""
    sums: Floats = np.bincount(index, weights=values).astype(float)
    return sums
