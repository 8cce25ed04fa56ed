"""Intervals of confidence of pooled scores.

Tasks count as a sample from ``MIN_TASKS`` on: Student's t on the variance between them. Below, the interval is about
these very tasks, and few runs are all there is. Its limits are those of Gaffke (2005) for the mean of a bounded score:
Bayesian bootstrap of the runs, to which one run with the worst score there is (for the upper limit: the best) is added,
here with half of the weight (mid-P), because the added run alone would cover more than it says. They assume nothing
about how runs fail. docs/statistics.md gives reasons and literature, docs/coverage.md simulated coverage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from automedbench.statistics.draws import bounded_weights, student_draws, student_quantile
from automedbench.statistics.samples import (
    MEASURES,
    SHARES,
    USUAL,
    Floats,
    Interval,
    Measure,
    Place,
    RunCell,
    Sample,
    StatisticsMethod,
    cell_weights,
    group_cells,
    interaction,
    means,
    per_task,
    task_index,
)

MIN_REPEATS = 3
"""Below this number of repeats in any cell nothing is inferred."""
MIN_TASKS = 5
"""From this number on tasks are treated as a sample of tasks."""


def method_text(method: StatisticsMethod) -> str:
    """Method of ``intervals`` in one sentence for readers."""
    return (
        f"{100 * method.confidence:g} % intervals: from {MIN_TASKS} tasks on Student's t over tasks; below, limits for "
        f"the mean of a score between 0 and 100 (Gaffke, mid-P, {method.resamples} resamples of the runs), which allow "
        "for failures that no run showed yet, so that they are wide for few runs."
    )


@dataclass(frozen=True)
class ConfidenceLimits:
    """An estimate with its limits before they are clipped to what a score can be."""

    estimate: float
    low: float
    high: float
    spread: Spread


def intervals(
    samples: Sequence[Sample],
    method: StatisticsMethod = USUAL,
    measures: Sequence[Measure] = MEASURES,
) -> dict[Measure, Interval]:
    """Confidence intervals of one agent's pooled score on each measure, in [0, 1]."""
    cells = group_cells(samples)
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
        if sampled:
            limits = contrast_limits([Side(cells)], places, weights, measure, sampled, method)
        else:
            limits = bounded_limits(Side(cells), places, weights, measure, method)
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
    method: StatisticsMethod,
    *,
    same_cases: bool = True,
) -> ConfidenceLimits:
    """Student's limits of the weighted score of one side, or of the difference of two.

    ``sampled``: tasks are a sample. ``same_cases``: both sides had them, so that what a hard one costs cancels.
    """
    gaps = sum((side.sign * means(side.cells, places, measure) for side in sides), np.zeros(len(places)))
    estimate = float(weights @ gaps)
    if sampled:
        between, judges = spread_over_tasks(places, weights, gaps), judge_rows(sides, places, weights, measure)
        spread = _combine([(between.standard_error**2, between.degrees), *(own.part for own in judges)])
    else:
        spread = spread_within(sides, places, weights, measure, same_cases=same_cases)
    reach = student_quantile((1 + method.confidence) / 2, spread.degrees) * spread.standard_error
    return ConfidenceLimits(estimate, estimate - reach, estimate + reach, spread)


def bounded_limits(
    side: Side, places: Sequence[Place], weights: Floats, measure: Measure, method: StatisticsMethod
) -> ConfidenceLimits:
    """Gaffke's limits of the weighted score of one side on these very tasks, mid-P.

    Runs of all cells are resampled together around the mean of their own cell. Of a single cell these are its scores
    as they are; of several, deviations are stretched to the unbiased variance of each, relative to that of all. A run
    with 0, for the upper limit with 1, is added. Cases and judges, which runs share, add Student's deviations.
    """
    cells = [side.cells[place] for place in places]
    counts = np.array([cell.n for cell in cells])
    n = int(counts.sum())
    stretch = n * weights / counts * np.sqrt(counts / (counts - 1) * (n - 1) / n)
    values = [cell.values(measure) for cell in cells]
    centres = [own.mean() for own in values]
    deviations = np.concatenate([f * (own - centre) for f, own, centre in zip(stretch, values, centres, strict=True)])
    mean = float(weights @ centres)
    shares, added = bounded_weights(n, method.resamples, method.seed)
    worst = (1 - added) * mean + shares @ deviations
    parts = _shared_parts([side], places, weights, measure)
    shared = _combine(parts)
    worst += shared.standard_error * student_draws(_round_down(shared.degrees), method.resamples, method.seed)
    tail = (1 - method.confidence) / 2
    spread = _combine([*_run_parts([side], places, weights, measure), *parts])
    reach = student_quantile(1 - tail / 2, spread.degrees) * spread.standard_error
    high = _quantile(worst + added, 1 - tail / 2)
    if all(own.any() for own in values):
        high = min(high, mean + reach)
    return ConfidenceLimits(mean, _quantile(worst, tail), high, spread)


def _quantile(values: Floats, probability: float) -> float:
    """Quantile between neighbours, as ``np.quantile``, which takes four times as long; ``probability`` below 1."""
    place = probability * (len(values) - 1)
    below = int(place)
    low, high = np.partition(values, (below, below + 1))[below : below + 2]
    return float(low + (high - low) * (place - below))


def _round_down(degrees: float) -> float:
    """Two significant digits at most, so that few tables of quantiles are needed; 200 is as good as infinite."""
    if degrees >= 200:
        return 200.0
    step = 0.1 if degrees < 10 else 1.0
    return max(1.0, float(np.floor(degrees / step) * step))


@dataclass(frozen=True)
class Side:
    """One agent of a contrast: its cells, and +1 or -1."""

    cells: Mapping[Place, RunCell]
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


def spread_within(
    sides: Sequence[Side], places: Sequence[Place], weights: Floats, measure: Measure, *, same_cases: bool = True
) -> Spread:
    """These very tasks: variance of repeats within cells, and of cases and judges, which runs share."""
    shared = _shared_parts(sides, places, weights, measure, same_cases=same_cases)
    return _combine([*_run_parts(sides, places, weights, measure), *shared])


Part = tuple[float, float]
"""A variance of an estimate, and its degrees of freedom."""


def _run_parts(sides: Sequence[Side], places: Sequence[Place], weights: Floats, measure: Measure) -> list[Part]:
    """Repeats of each cell."""
    return [
        (weight**2 * float(cell.values(measure).var(ddof=1)) / cell.n, cell.n - 1.0)
        for side in sides
        for place, weight in zip(places, weights, strict=True)
        for cell in [side.cells[place]]
    ]


def _combine(parts: Sequence[Part]) -> Spread:
    """The sum of independent variances."""
    variances, degrees = [part for part, _ in parts], [degree for _, degree in parts]
    return Spread(float(np.sqrt(sum(variances))), satterthwaite(variances, degrees))


def _shared_parts(
    sides: Sequence[Side], places: Sequence[Place], weights: Floats, measure: Measure, *, same_cases: bool = True
) -> list[Part]:
    """Rows that repeats, tiers and agents share: cases of each task, judges of all."""
    groups = [sides] if same_cases else [[side] for side in sides]
    cases = [own for group in groups for own in case_rows(group, places, weights, measure).values()]
    return [own.part for own in (*cases, *judge_rows(sides, places, weights, measure))]


def satterthwaite(parts: Sequence[float], degrees: Sequence[float]) -> float:
    """Degrees of freedom of a sum of independent variance estimates (Satterthwaite 1946); infinite for a sum of 0."""
    total = sum(parts)
    if total <= 0:
        return float("inf")
    return max(1.0, 1 / sum((part / total) ** 2 / degree for part, degree in zip(parts, degrees, strict=True)))


@dataclass(frozen=True)
class SharedRows:
    """Contribution of each case of a task, or each judge, to an estimate, and its variance from repeats."""

    rows: Floats
    from_repeats: float

    @property
    def part(self) -> Part:
        """Variance of the estimate by the choice of cases or judges.

        That of ``rows`` less the part that comes from repeats (two-way layout with interaction; a plain bootstrap over
        both ways would count that part three times, McCullagh 2000, Owen 2007).
        """
        n = len(self.rows)
        return max(0.0, float(self.rows.var(ddof=1)) - self.from_repeats) / n, n - 1.0


Term = tuple[float, Floats]
"""Factor of a cell in an estimate, and a matrix of its runs, (repeats, cases or judges)."""


def _shared_rows(terms: Sequence[Term]) -> SharedRows:
    rows = sum((factor * matrix.mean(axis=0) for factor, matrix in terms), np.zeros(terms[0][1].shape[1]))
    return SharedRows(rows, sum(factor**2 * interaction(matrix) / len(matrix) for factor, matrix in terms))


def case_rows(
    sides: Sequence[Side], places: Sequence[Place], weights: Floats, measure: Measure
) -> dict[str, SharedRows]:
    """Per task whose runs all have the same cases: signed and weighted case means, summed over tiers and sides."""
    share = SHARES[measure][1]
    if share == 0:
        return {}
    tasks, index = task_index(places)
    found = {}
    for number, task in enumerate(tasks):
        own = [position for position in range(len(places)) if index[position] == number]
        terms = [(side.sign * weights[k] * share, side.cells[places[k]].cases) for side in sides for k in own]
        known = [(factor, cases) for factor, cases in terms if cases is not None]
        if len(known) == len(terms) and len({cases.shape[1] for _, cases in known}) == 1:
            found[task] = _shared_rows(known)
    return found


def judge_rows(sides: Sequence[Side], places: Sequence[Place], weights: Floats, measure: Measure) -> list[SharedRows]:
    """The estimate by each judge that judged all runs; nothing below two of them: noise of one cannot be seen."""
    share = SHARES[measure][0]
    if share == 0:
        return []
    cells = [
        (side.sign * weight * share, side.cells[place])
        for side in sides
        for place, weight in zip(places, weights, strict=True)
    ]
    judges = sorted(set.intersection(*(set(cell.judged) for _, cell in cells)))
    if len(judges) < 2:
        return []
    terms = [
        (factor, np.array(list(zip(*(cell.judged[name] for name in judges), strict=True)))) for factor, cell in cells
    ]
    return [_shared_rows(terms)]
