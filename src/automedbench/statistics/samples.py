"""Samples that the statistics are computed from: scored runs as plain numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Measure = Literal["overall", "agentic", "task"]
Pooling = Literal["tasks", "runs"]
Level = Literal["tasks", "repeats", "cases"]
Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

MEASURES: tuple[Measure, ...] = ("overall", "agentic", "task")
SHARES: dict[Measure, tuple[float, float]] = {"overall": (0.5, 0.5), "agentic": (1.0, 0.0), "task": (0.0, 1.0)}
"""Share of the agentic and of the task half in a measure (docs/specification.md, 6)."""


@dataclass(frozen=True)
class Sample:
    """One scored run; a disqualified one with zeros. All scores in [0, 1].

    ``cases``: what each case adds to the task score, so that their mean is the task score; the same cases in the same
    order for all runs of a task. None where the task score is no mean over cases.
    """

    task: str
    tier: str
    repeat: int
    agentic: float
    task_score: float
    cases: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a score outside of [0, 1] and for a case that is not a finite number."""
        if not (0 <= self.agentic <= 1 and 0 <= self.task_score <= 1):
            raise ValueError(f"{self.name}: {self.agentic} and {self.task_score} are no scores in [0, 1]")
        if self.cases is not None and not np.isfinite(self.cases).all():
            raise ValueError(f"{self.name}: a case is not a finite number")

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.task}/{self.tier}/r{self.repeat}"


def in_order(samples: Iterable[Sample]) -> list[Sample]:
    """Samples by task, tier and repeat, so that no result depends on the order in which runs were read.

    Raises ValueError for a run that comes twice.
    """
    ordered = sorted(samples, key=_place)
    for first, second in pairwise(map(_place, ordered)):
        if first == second:
            raise ValueError(f"run {'/'.join(first[:2])}/r{first[2]} comes twice")
    return ordered


def _place(sample: Sample) -> tuple[str, str, int]:
    return sample.task, sample.tier, sample.repeat
