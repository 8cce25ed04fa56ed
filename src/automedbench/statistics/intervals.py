"""Intervals of confidence of pooled scores: Student's t on the variance of the hierarchical bootstrap.

Tasks count as a sample from ``MIN_TASKS`` on; below, the interval is about these very tasks. There the limits also
allow for an outcome that no repeat showed yet. Its weights are rescaled so that the variance is
unbiased in small samples (Rao and Wu 1988; Davison and Hinkley 1997, section 3.8), with infinitely many
resamples: no chance is left in it. docs/statistics.md gives reasons, literature and simulated coverage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from automedbench.statistics.draws import student_draws, student_quantile, unseen_shares
from automedbench.statistics.samples import (
    MEASURES,
    SHARES,
    USUAL,
    Cell,
    Floats,
    Interval,
    Measure,
    Method,
    Place,
    Sample,
    cell_weights,
    cells_of,
    means,
    per_task,
    task_index,
)

MIN_REPEATS = 3
"""Below this number of repeats in any cell nothing is inferred."""
MIN_TASKS = 5
"""From this number on tasks are treated as a sample of tasks."""
UNSEEN_AGENTIC = 0.5
"""Share of the agentic half that an unseen failure costs; of the task half it costs all (disqualified: all of both)."""


@dataclass(frozen=True)
class Limits:
    """An estimate with its limits before they are clipped to what a score can be."""

    estimate: float
    low: float
    high: float
    spread: Spread


def intervals(
    samples: Sequence[Sample],
    method: Method = USUAL,
    measures: Sequence[Measure] = MEASURES,
) -> dict[Measure, Interval]:
    """Confidence intervals of one agent's pooled score on each measure, in [0, 1].

    Raises ValueError for a run that comes twice.
    """
    cells = cells_of(samples)
    places = list(cells)
    sampled = len({task for task, _ in places}) >= MIN_TASKS
    fewest = min((cell.n for cell in cells.values()), default=0)
    if not cells:
        return dict.fromkeys(measures, Interval(None, None, False))
    weights = cell_weights(places, [cell.n for cell in cells.values()], method.pooling)
    found: dict[Measure, Interval] = {}
    for measure in measures:
        if fewest < MIN_REPEATS:
            estimate = float(weights @ means(cells, places, measure))
            found[measure] = Interval(None, None, False, estimate)
            continue
        limits = contrast_limits([Side(cells)], places, weights, measure, sampled, method)
        found[measure] = Interval(
            low=min(max(limits.low, 0.0), 1.0),
            high=max(min(limits.high, 1.0), 0.0),
            sufficient=True,
            estimate=limits.estimate,
            standard_error=limits.spread.standard_error,
        )
    return found


def contrast_limits(
    sides: Sequence[Side],
    places: Sequence[Place],
    weights: Floats,
    measure: Measure,
    sampled: bool,
    method: Method,
) -> Limits:
    """Limits of the weighted score of one side, or of the difference of two; ``sampled``: tasks are a sample."""
    gaps = sum((side.sign * means(side.cells, places, measure) for side in sides), np.zeros(len(places)))
    estimate = float(weights @ gaps)
    tail = (1 - method.confidence) / 2
    if sampled:
        spread = spread_over_tasks(places, weights, gaps)
        reach = student_quantile(1 - tail, spread.degrees) * spread.standard_error
        return Limits(estimate, estimate - reach, estimate + reach, spread)
    spread = spread_within(sides, places, weights, measure)
    below, above = _unseen(sides, places, weights, measure, method)
    low = _reach(spread, below, tail, method)
    high = _reach(spread, above, tail, method)
    return Limits(estimate, estimate - low, estimate + high, spread)


def _reach(spread: Spread, unseen: Floats | None, tail: float, method: Method) -> float:
    """Distance from estimate to limit: a quantile of t times the standard error, plus unseen outcomes."""
    plain = student_quantile(1 - tail, spread.degrees) * spread.standard_error
    if unseen is None:
        return plain
    draws = student_draws(_rounded_down(spread.degrees), method.resamples, method.seed)
    return max(plain, float(np.quantile(draws * spread.standard_error + unseen, 1 - tail)))


def _rounded_down(degrees: float) -> float:
    """Two significant digits at most, so that few tables of quantiles are needed; 200 is as good as infinite."""
    if degrees >= 200:
        return 200.0
    step = 0.1 if degrees < 10 else 1.0
    return max(1.0, float(np.floor(degrees / step) * step))


def _unseen(
    sides: Sequence[Side], places: Sequence[Place], weights: Floats, measure: Measure, method: Method
) -> tuple[Floats | None, Floats | None]:
    """What outcomes that no repeat showed yet could take from the estimate, and add to it, (resamples,) each."""
    below, above = np.zeros(method.resamples), np.zeros(method.resamples)
    per_task = Counter(task for task, _ in places)
    tiers = tuple(per_task[task] for task, _ in places)
    for number, side in enumerate(sides):
        cells = [side.cells[place] for place in places]
        shares = unseen_shares(tuple(cell.n for cell in cells), tiers, method.resamples, method.seed, number)
        losses = shares @ (weights * np.array([_loss(cell, measure) for cell in cells]))
        gains = shares @ (weights * np.array([_gain(cell, measure) for cell in cells]))
        below += losses if side.sign > 0 else gains
        above += gains if side.sign > 0 else losses
    return (below if below.any() else None), (above if above.any() else None)


def _loss(cell: Cell, measure: Measure) -> float:
    """What a failed run would cost against the mean of the cell."""
    agentic, task = SHARES[measure]
    return float(agentic * UNSEEN_AGENTIC * cell.agentic.mean() + task * cell.task_scores.mean())


def _gain(cell: Cell, measure: Measure) -> float:
    """What a success would add in a cell whose runs all failed; 0 in others."""
    if cell.task_scores.any():
        return 0.0
    agentic, task = SHARES[measure]
    return float(agentic * UNSEEN_AGENTIC * (1 - cell.agentic.mean()) + task)


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


def spread_over_tasks(places: Sequence[Place], weights: Floats, means: Floats) -> Spread:
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
    return Spread(float(np.sqrt(variance)), degrees)


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
    for own in case_rows(sides, places, weights, measure).values():
        parts.append(max(0.0, float(own.rows.var(ddof=1)) - own.from_repeats) / len(own.rows))
        degrees.append(len(own.rows) - 1)
    return Spread(float(np.sqrt(sum(parts))), satterthwaite(parts, degrees))


def satterthwaite(parts: Sequence[float], degrees: Sequence[float]) -> float:
    """Degrees of freedom of a sum of independent variance estimates (Satterthwaite 1946); infinite for a sum of 0."""
    total = sum(parts)
    if total <= 0:
        return float("inf")
    return max(1.0, 1 / sum((part / total) ** 2 / degree for part, degree in zip(parts, degrees, strict=True)))


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
