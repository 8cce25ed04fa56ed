"""Confidence intervals of pooled scores: Student's t on the variance of the hierarchical bootstrap.

Tasks count as a sample from ``MIN_TASKS`` on; below, the interval is about these very tasks. There the limits also
allow for an outcome that no repeat showed yet. docs/statistics.md gives reasons, literature and simulated coverage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from automedbench.statistics.cells import Cell, Place, cell_weights, cells_of, means
from automedbench.statistics.draws import student_draws, student_quantile, unseen_shares
from automedbench.statistics.results import Interval
from automedbench.statistics.samples import MEASURES, SHARES, Floats, Level, Measure, Pooling, Sample
from automedbench.statistics.spread import Side, Spread, spread_over_tasks, spread_within

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


def interval(
    samples: Sequence[Sample],
    measure: Measure = "overall",
    pooling: Pooling = "tasks",
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Confidence interval of one agent's pooled score, in [0, 1].

    Raises ValueError for a run that comes twice and for a confidence outside of (0, 1).
    """
    return intervals(samples, (measure,), pooling, confidence=confidence, resamples=resamples, seed=seed)[measure]


def intervals(
    samples: Sequence[Sample],
    measures: Sequence[Measure] = MEASURES,
    pooling: Pooling = "tasks",
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[Measure, Interval]:
    """Intervals of several measures over the same runs; raises what ``interval`` raises."""
    check_confidence(confidence)
    cells = cells_of(samples)
    places = list(cells)
    n_tasks = len({task for task, _ in places})
    fewest = min((cell.n for cell in cells.values()), default=0)
    if not cells:
        return dict.fromkeys(measures, Interval(None, None, 0, 0, False))
    weights = cell_weights(places, [cell.n for cell in cells.values()], pooling)
    found: dict[Measure, Interval] = {}
    for measure in measures:
        if fewest < MIN_REPEATS:
            estimate = float(weights @ means(cells, places, measure))
            found[measure] = Interval(None, None, n_tasks, fewest, False, estimate)
            continue
        sampled = n_tasks >= MIN_TASKS
        limits = contrast_limits([Side(cells)], places, weights, measure, sampled, confidence, resamples, seed)
        found[measure] = Interval(
            low=min(max(limits.low, 0.0), 1.0),
            high=max(min(limits.high, 1.0), 0.0),
            n_tasks=n_tasks,
            min_repeats=fewest,
            sufficient=True,
            estimate=limits.estimate,
            standard_error=limits.spread.standard_error,
            levels=levels_of(limits.spread, sampled),
        )
    return found


def check_confidence(confidence: float) -> None:
    """Raises ValueError unless 0 < confidence < 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence of {confidence} is not between 0 and 1")


def levels_of(spread: Spread, sampled: bool) -> tuple[Level, ...]:
    """What was treated as a sample."""
    tasks: tuple[Level, ...] = ("tasks",) if sampled else ()
    cases: tuple[Level, ...] = ("cases",) if spread.has_cases else ()
    return (*tasks, "repeats", *cases)


def contrast_limits(
    sides: Sequence[Side],
    places: Sequence[Place],
    weights: Floats,
    measure: Measure,
    sampled: bool,
    confidence: float,
    resamples: int,
    seed: int,
) -> Limits:
    """Limits of the weighted score of one side, or of the difference of two; ``sampled``: tasks are a sample."""
    gaps = sum((side.sign * means(side.cells, places, measure) for side in sides), np.zeros(len(places)))
    estimate = float(weights @ gaps)
    tail = (1 - confidence) / 2
    if sampled:
        spread = spread_over_tasks(places, weights, gaps, has_cases=_any_cases(sides, measure))
        reach = student_quantile(1 - tail, spread.degrees) * spread.standard_error
        return Limits(estimate, estimate - reach, estimate + reach, spread)
    spread = spread_within(sides, places, weights, measure)
    below, above = _unseen(sides, places, weights, measure, resamples, seed)
    low = _reach(spread, below, tail, resamples, seed)
    high = _reach(spread, above, tail, resamples, seed)
    return Limits(estimate, estimate - low, estimate + high, spread)


def _any_cases(sides: Sequence[Side], measure: Measure) -> bool:
    """Some run has a list of cases that takes part in the measure."""
    runs = (run for side in sides for cell in side.cells.values() for run in cell.runs)
    return SHARES[measure][1] > 0 and any(run.cases is not None for run in runs)


def _reach(spread: Spread, unseen: Floats | None, tail: float, resamples: int, seed: int) -> float:
    """Distance from estimate to limit: a quantile of t times the standard error, plus unseen outcomes."""
    plain = student_quantile(1 - tail, spread.degrees) * spread.standard_error
    if unseen is None:
        return plain
    values = student_draws(_rounded_down(spread.degrees), resamples, seed) * spread.standard_error + unseen
    return max(plain, float(np.quantile(values, 1 - tail)))


def _rounded_down(degrees: float) -> float:
    """Two significant digits at most, so that few tables of quantiles are needed; 200 is as good as infinite."""
    if degrees >= 200:
        return 200.0
    step = 0.1 if degrees < 10 else 1.0
    return max(1.0, float(np.floor(degrees / step) * step))


def _unseen(
    sides: Sequence[Side], places: Sequence[Place], weights: Floats, measure: Measure, resamples: int, seed: int
) -> tuple[Floats | None, Floats | None]:
    """What outcomes that no repeat showed yet could take from the estimate, and add to it, (resamples,) each."""
    below, above = np.zeros(resamples), np.zeros(resamples)
    per_task = Counter(task for task, _ in places)
    tiers = tuple(per_task[task] for task, _ in places)
    for number, side in enumerate(sides):
        cells = [side.cells[place] for place in places]
        shares = unseen_shares(tuple(cell.n for cell in cells), tiers, resamples, seed, number)
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
