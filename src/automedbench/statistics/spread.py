"""Standard error and degrees of freedom of a pooled score, or of the difference of two.

The variance is that of the hierarchical bootstrap with weights rescaled so that it is unbiased in small samples (Rao
and Wu 1988; Davison and Hinkley 1997, section 3.8), with infinitely many resamples: no chance is left in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from automedbench.statistics.cells import Cell, Place, per_task, task_index
from automedbench.statistics.samples import SHARES, Floats, Measure


@dataclass(frozen=True)
class Side:
    """One agent of a contrast: its cells, and +1 or -1."""

    cells: Mapping[Place, Cell]
    sign: int = 1


@dataclass(frozen=True)
class Spread:
    """Standard error of an estimate and its degrees of freedom (1 at least; infinite where nothing varies)."""

    standard_error: float
    degrees: float
    has_cases: bool


def spread_over_tasks(places: Sequence[Place], weights: Floats, means: Floats, *, has_cases: bool) -> Spread:
    """Tasks as a sample: variance between tasks, which holds that of repeats and cases within them.

    ``means``: of each cell, (cells,). For unequal weights the linearised ratio estimator, and as many degrees of
    freedom as equally weighted tasks with the same sum of squared weights would have (Kish 1965).
    """
    _, index = task_index(places)
    shares = per_task(weights, index)
    within = per_task(weights * means, index) / shares
    n = len(shares)
    gaps = shares * (within - float(shares @ within))
    variance = n / (n - 1) * float(gaps @ gaps)
    degrees = max(1.0, 1 / float(shares @ shares) - 1)
    return Spread(float(np.sqrt(variance)), degrees, has_cases)


def spread_within(sides: Sequence[Side], places: Sequence[Place], weights: Floats, measure: Measure) -> Spread:
    """These very tasks: variance of repeats within cells, and of cases that repeats, tiers and agents share.

    Degrees of freedom after Satterthwaite (1946). The variance of cases is that of their means over repeats less the
    part of it that comes from repeats (two-way layout with interaction; a plain bootstrap over both ways would count
    that part three times, McCullagh 2000, Owen 2007).
    """
    parts: list[float] = []
    degrees: list[float] = []
    for side in sides:
        for place, weight in zip(places, weights, strict=True):
            cell = side.cells[place]
            parts.append(weight**2 * float(cell.values(measure).var(ddof=1)) / cell.n)
            degrees.append(cell.n - 1)
    cases = case_parts(sides, places, weights, measure)
    parts += [variance for variance, _ in cases.values()]
    degrees += [n - 1 for _, n in cases.values()]
    return Spread(float(np.sqrt(sum(parts))), satterthwaite(parts, degrees), bool(cases))


def satterthwaite(parts: Sequence[float], degrees: Sequence[float]) -> float:
    """Degrees of freedom of a sum of independent variance estimates (Satterthwaite 1946); infinite for a sum of 0."""
    total = sum(parts)
    if total <= 0:
        return float("inf")
    return max(1.0, 1 / sum((part / total) ** 2 / degree for part, degree in zip(parts, degrees, strict=True)))


def case_parts(
    sides: Sequence[Side], places: Sequence[Place], weights: Floats, measure: Measure
) -> dict[str, tuple[float, int]]:
    """Task → (variance of the estimate that comes from its sample of cases, number of cases)."""
    found = {}
    for task, own in case_rows(sides, places, weights, measure).items():
        n = len(own.rows)
        variance = max(0.0, float(own.rows.var(ddof=1)) - own.from_repeats) / n
        found[task] = (variance, n)
    return found


@dataclass(frozen=True)
class CaseRows:
    """What each case of a task adds to an estimate, (cases,), and the variance in it that comes from repeats."""

    rows: Floats
    from_repeats: float


def case_rows(sides: Sequence[Side], places: Sequence[Place], weights: Floats, measure: Measure) -> dict[str, CaseRows]:
    """Per task whose runs all have the same cases: signed and weighted case means, summed over tiers and sides."""
    share = SHARES[measure][1]
    if share == 0:
        return {}
    tasks, index = task_index(places)
    found = {}
    for number, task in enumerate(tasks):
        own = [position for position in range(len(places)) if index[position] == number]
        terms = [(side.sign * weights[k] * share, side.cells[places[k]]) for side in sides for k in own]
        lengths = {-1 if cell.case_means is None else len(cell.case_means) for _, cell in terms}
        if len(lengths) > 1 or -1 in lengths:
            continue
        rows = sum((factor * cell.case_means for factor, cell in terms), np.zeros(lengths.pop()))
        from_repeats = sum(factor**2 * cell.interaction / cell.n for factor, cell in terms)
        found[task] = CaseRows(rows, float(from_repeats))
    return found
