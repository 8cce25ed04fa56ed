"""Results of the statistics: frozen records, with what each number rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from automedbench.statistics.samples import Level

Unit = Literal["tasks", "runs"]


@dataclass(frozen=True)
class Interval:
    """A confidence interval of a pooled score; low and high are None where the data do not suffice.

    ``levels`` names what was treated as a sample: without "tasks" the interval is about these very tasks.
    """

    low: float | None
    high: float | None
    n_tasks: int
    min_repeats: int
    sufficient: bool
    estimate: float | None = None
    standard_error: float | None = None
    levels: tuple[Level, ...] = ()


@dataclass(frozen=True)
class RankRange:
    """Ranks that an agent takes in joint resamples: best and worst at the confidence, and how often it is first.

    ``shares``: share of resamples in each rank from the first on (equal scores share the better rank). Where the data
    do not suffice every rank is possible, ``first_share`` is None and ``shares`` is empty.
    """

    best: int
    worst: int
    first_share: float | None
    sufficient: bool = True
    shares: tuple[float, ...] = ()


@dataclass(frozen=True)
class PairedComparison:
    """Agent ``a`` minus agent ``b`` over the cells (task × tier) that both have; None: not to be had.

    ``p`` is two-sided; ``p_holm`` is corrected for all pairs of the table. ``unit`` is what was permuted, ``n_units``
    how many of them there are, ``p_min`` the smallest p that this design can give. ``sdd`` is the smallest difference
    that the design finds with 80 % power.
    """

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
    unit: Unit = "tasks"
    n_units: int = 0
    p_min: float | None = None


@dataclass(frozen=True)
class Agreement:
    """An agreement coefficient with an interval over units; value None where it is undefined (nothing varies)."""

    value: float | None
    low: float | None
    high: float | None
    n_units: int
    n_ratings: int
