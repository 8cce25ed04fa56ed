"""Differences between two agents that a design can find: closed forms for planning, without SciPy (docs/statistics.md).

All pairs of a campaign's agents are tested together (``pairs``), so that the family-wise error is 5 %. A dry run prints
these; importing SciPy would take longer than all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import exp, inf, log, sqrt
from statistics import NormalDist, fmean

from automedbench.statistics.pairs import MIN_FLIPPED, POWER

USUAL_SCORE = 0.6
"""About the mean of the public benchmark's leaderboard (0.58)."""
_NORMAL = NormalDist()


def error_variance(cells: Iterable[tuple[float, int]], run_variance: float) -> float:
    """Variance that runs add to the difference of two agents; ``cells``: weight and repeats of each cell of both."""
    return 2 * run_variance * sum(weight * weight / repeats for weight, repeats in cells)


def smallest_difference(cells: Sequence[tuple[float, int]], run_variance: float, agents: int) -> float:
    """Smallest true difference on these very tasks that the test of all pairs finds with 80 % power.

    ``cells``: weight and repeats (at least two) of each. Degrees of freedom are those expected of estimated variances,
    fewer than the design has (Satterthwaite 1946); the power is that of the noncentral t, by its normal approximation.
    With few runs the test assumes failures that none of them showed, here at a score of ``USUAL_SCORE``.
    """
    parts = [(error_variance([cell], run_variance), cell[1] - 1) for cell in cells]
    variance = sum(part for part, _ in parts)
    unseen = 2 * (USUAL_SCORE / (2 / error_variance(cells, 1.0) + 1)) ** 2
    if variance <= unseen:
        degrees, variance = inf, unseen
    else:
        squares = [(part * part / own, own) for part, own in parts]
        expected = variance * variance + sum(square for square, _ in squares)
        degrees = 2 * expected / sum(square * (1 + 2 / own) for square, own in squares)
    critical = tukey_critical_value(agents, degrees)
    return (critical + _NORMAL.inv_cdf(POWER) * sqrt(1 + critical * critical / (2 * degrees))) * sqrt(variance)


def population_factor(tasks: int, agents: int) -> float:
    """Smallest true difference on tasks like these that is found with 80 % power, in standard errors of it.

    For joint sign flips of ``tasks`` differences, at least ``MIN_FLIPPED``, with the maximum over all pairs. The limit
    for many tasks is exact; the rest is fitted to simulations of 2 to 20 agents and 6 to 48 tasks, within 7 %.
    """
    coarse = 0.4 if tasks == MIN_FLIPPED else 0.0  # 32 sign patterns, of which only one may be as extreme
    return tukey_critical_value(agents, inf) + _NORMAL.inv_cdf(POWER) + 2 / (tasks - 4) + coarse


@lru_cache(maxsize=256)
def tukey_critical_value(agents: int, degrees: float, confidence: float = 0.95) -> float:
    """Critical value of |t| for all pairs of ``agents`` means at once: quantile of the studentised range over √2.

    To four digits from four degrees of freedom on.
    """
    scales = _scales(degrees)
    low, high = 0.0, 200.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        covered = sum(weight * _range_probability(middle * scale, agents) for scale, weight in scales)
        low, high = (middle, high) if covered < confidence else (low, middle)
    return low / sqrt(2)


def _scales(degrees: float) -> list[tuple[float, float]]:
    """Values of a standard deviation that is estimated with so many degrees of freedom, and their probabilities."""
    if degrees > 5000:
        return [(1.0, 1.0)]
    spread = 1 / sqrt(2 * degrees)
    low, high = max(1e-3, 1 - 7 * spread), 1 + 9 * spread
    values = [low + (high - low) * (step + 0.5) / 40 for step in range(40)]
    logs = [(degrees - 1) * log(value) - degrees * value * value / 2 for value in values]
    weights = [exp(each - max(logs)) for each in logs]
    return [(value, weight / sum(weights)) for value, weight in zip(values, weights, strict=True)]


def _range_probability(width: float, agents: int) -> float:
    """Probability that independent standard normal values lie within ``width`` of each other."""
    return agents * sum(mass * (below - _NORMAL.cdf(z - width)) ** (agents - 1) for z, mass, below in _GRID)


_GRID = [(z, _NORMAL.pdf(z) / 4, _NORMAL.cdf(z)) for z in (-8 + (step + 0.5) / 4 for step in range(64))]


def pooled_variance(groups: Iterable[Sequence[float]]) -> tuple[float, int]:
    """Variance within groups, and its degrees of freedom; 0 and 0 where no group has two values."""
    known = [group for group in groups if len(group) > 1]
    degrees = sum(len(group) - 1 for group in known)
    squares = sum((value - fmean(group)) ** 2 for group in known for value in group)
    return (squares / degrees if degrees else 0.0), degrees


def interaction_variance(rows: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Variance of (agents, tasks) that neither explains (two-way layout), and its degrees of freedom."""
    by_task = [fmean(column) for column in zip(*rows, strict=True)]
    middle = fmean(by_task)
    rest = [value - fmean(row) - task + middle for row in rows for value, task in zip(row, by_task, strict=True)]
    degrees = (len(rows) - 1) * (len(by_task) - 1)
    return (sum(value * value for value in rest) / degrees if degrees else 0.0), degrees
