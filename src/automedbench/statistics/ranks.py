"""Ranks that are possible, from joint resamples of all agents (hierarchical bootstrap); reliability over repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb

import numpy as np

from automedbench.statistics.draws import case_multipliers, repeat_weights, student_quantile
from automedbench.statistics.intervals import (
    MIN_REPEATS,
    MIN_TASKS,
    Side,
    case_rows,
    spread_over_tasks,
    spread_within,
)
from automedbench.statistics.samples import (
    USUAL,
    Floats,
    Measure,
    Place,
    RankRange,
    RunCell,
    Sample,
    StatisticsMethod,
    cell_weights,
    group_cells,
    means,
    per_task,
    task_index,
)

_TASK_STREAM = 1_000_000
_ROUNDING = 1e-9
REPEAT_COUNTS = (1, 3, 5)
"""k of pass^k and worst of k; worst of 1 is the mean."""


def rank_distribution(
    agents: Mapping[str, Sequence[Sample]],
    method: StatisticsMethod = USUAL,
    measure: Measure = "overall",
) -> dict[str, RankRange]:
    """Best and worst rank of each agent at the confidence, and the share of resamples in each rank.

    Tasks (where they are a sample) and cases are resampled once for all agents, repeats for each. Equals take the
    better rank. An agent with too few repeats may have any, so that it widens the ranges of the others.
    """
    cells = {name: group_cells(agents[name]) for name in sorted(agents)}
    judged = {name: own for name, own in cells.items() if own and min(cell.n for cell in own.values()) >= MIN_REPEATS}
    unknown = len(cells) - len(judged)
    found = {name: RankRange(1, len(cells), False) for name in agents}
    if not judged:
        return found
    scores = resampled_scores(judged, measure, method)
    ranks = 1 + (scores[:, None, :] > scores[:, :, None] + _ROUNDING).sum(axis=2)
    tail = (1 - method.confidence) / 2
    best, worst = np.quantile(ranks, [tail, 1 - tail], axis=0, method="inverted_cdf")
    for number, name in enumerate(judged):
        counts = np.bincount(ranks[:, number], minlength=len(judged) + 1)[1:]
        found[name] = RankRange(
            best=int(best[number]),
            worst=int(worst[number]) + unknown,
            shares=tuple(float(count) for count in counts / method.resamples),
        )
    return found


def resampled_scores(
    agents: Mapping[str, Mapping[Place, RunCell]], measure: Measure, method: StatisticsMethod
) -> Floats:
    """Pooled scores of all agents in joint resamples, (resamples, agents).

    Deviations are stretched by the ratio of t to normal quantile at the confidence (expanded percentile interval,
    Hesterberg 2015), so that an agent's quantiles reach as far as its interval does without unseen outcomes.
    """
    common = set.intersection(*({task for task, _ in own} for own in agents.values()))
    every = sorted({task for own in agents.values() for task, _ in own})
    normal = student_quantile((1 + method.confidence) / 2, np.inf)
    columns = []
    for number, own in enumerate(agents.values()):
        places = list(own)
        weights = cell_weights(places, [cell.n for cell in own.values()], method.pooling)
        averages = means(own, places, measure)
        if len(common) >= MIN_TASKS:
            spread = spread_over_tasks(places, weights, averages)
            shifts = _task_shifts(every, places, weights, averages, method)
        else:
            spread = spread_within([Side(own)], places, weights, measure)
            shifts = _run_shifts(own, weights, measure, method, number)
            shifts += _case_shifts(own, weights, measure, every, method)
        stretch = student_quantile((1 + method.confidence) / 2, spread.degrees) / normal
        columns.append(float(weights @ averages) + stretch * shifts)
    return np.stack(columns, axis=1)


def _task_shifts(
    every: Sequence[str], places: Sequence[Place], weights: Floats, averages: Floats, method: StatisticsMethod
) -> Floats:
    """Change of a pooled score when tasks are resampled, (resamples,); tasks that the agent lacks change nothing."""
    tasks, index = task_index(places)
    shares = per_task(weights, index)
    within = per_task(weights * averages, index) / shares
    gaps = np.zeros(len(every))
    gaps[[every.index(task) for task in tasks]] = shares * (within - float(shares @ within))
    shifts: Floats = len(every) * (repeat_weights(len(every), method.resamples, method.seed, _TASK_STREAM) @ gaps)
    return shifts


def _run_shifts(
    own: Mapping[Place, RunCell], weights: Floats, measure: Measure, method: StatisticsMethod, number: int
) -> Floats:
    """Change of a pooled score when the repeats of its cells are resampled, (resamples,)."""
    shifts = np.zeros(method.resamples)
    for position, (weight, cell) in enumerate(zip(weights, own.values(), strict=True)):
        values = cell.values(measure)
        shifts += weight * (repeat_weights(cell.n, method.resamples, method.seed, 1000 * number + position) @ values)
    return shifts


def _case_shifts(
    own: Mapping[Place, RunCell], weights: Floats, measure: Measure, every: Sequence[str], method: StatisticsMethod
) -> Floats:
    """Change of a pooled score when cases are resampled, (resamples,): the same multipliers for all agents.

    Shrunk to the part of the variance between case means that does not come from repeats.
    """
    shifts = np.zeros(method.resamples)
    for task, case in case_rows([Side(own)], list(own), weights, measure).items():
        n, variance = len(case.rows), float(case.rows.var(ddof=1))
        if variance <= case.from_repeats:
            continue
        multipliers = case_multipliers(n, method.resamples, method.seed, every.index(task))
        scale = np.sqrt((1 - case.from_repeats / variance) / (n * (n - 1)))
        shifts += scale * (multipliers @ (case.rows - case.rows.mean()).astype(np.float32))
    return shifts


def pass_hat_k(n: int, successes: int, k: int) -> float | None:
    """Probability that k runs drawn without replacement from n all succeed: C(successes, k) / C(n, k).

    The unbiased estimator of pass^k of Yao and others (2024, tau-bench). None for fewer than k runs.
    """
    return comb(successes, k) / comb(n, k) if n >= k else None


def worst_of_k(values: Sequence[float], k: int) -> float | None:
    """Expected smallest of k values drawn without replacement; None for fewer than k values.

    The i-th smallest of n (from 1) is the smallest of C(n-i, k-1) of the C(n, k) draws.
    """
    ordered = np.sort(np.asarray(values, float))
    n = len(ordered)
    if n < k:
        return None
    shares = [comb(n - place, k - 1) / comb(n, k) for place in range(1, n + 1)]
    return float(np.dot(shares, ordered))
