"""Permutation tests of a difference: signs of task differences, or runs that change agents within cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import comb, prod

import numpy as np

from automedbench.statistics.draws import random_groups, random_signs
from automedbench.statistics.samples import Floats

MIN_FLIPPED = 6
"""Fewest tasks whose signs are flipped: five could not give a p below 0.05 (2 of 32)."""
MAX_EXACT_UNITS = 12
"""Up to this number all sign patterns are tried."""
MAX_EXACT_EXCHANGES = 10_000
"""Up to this number all exchanges of runs are tried."""
_ROUNDING = 1e-12


@dataclass(frozen=True)
class TestResult:
    """Two-sided p, the smallest p that the design can give, and how many units were permuted."""

    __test__ = False  # not a test of pytest's

    p: float
    p_min: float
    n_units: int


def sign_flip_test(terms: Floats, resamples: int, seed: int) -> TestResult:
    """P of |sum| under random signs (Fisher's randomisation test); ``terms``: weighted differences, (units,).

    Valid when a unit's difference is as likely to be of either sign. All patterns up to ``MAX_EXACT_UNITS`` units;
    beyond, p = (k + 1) / (resamples + 1), which is never 0 (Phipson and Smyth 2010).
    """
    n = len(terms)
    if n <= MAX_EXACT_UNITS:
        signs = np.array(list(product((1.0, -1.0), repeat=n)))
        return TestResult(_share(signs @ terms, float(terms.sum())), 2 / len(signs), n)
    signs = random_signs(n, resamples, seed)
    return TestResult(_share(signs @ terms, float(terms.sum()), observed_too=True), 1 / (resamples + 1), n)


def exchange_test(groups: Sequence[tuple[Floats, Floats]], weights: Floats, resamples: int, seed: int) -> TestResult:
    """P of the weighted difference of means when the runs of each cell change agents at random.

    ``groups``: per cell the scores of both agents. Valid when both agents' runs of a cell come from one distribution.
    All exchanges where they are at most ``MAX_EXACT_EXCHANGES``; else at random as in ``sign_flip_test``.
    """
    n_units = sum(len(first) + len(second) for first, second in groups)
    sizes = [comb(len(first) + len(second), len(first)) for first, second in groups]
    seen = float(
        sum(weight * (first.mean() - second.mean()) for weight, (first, second) in zip(weights, groups, strict=True))
    )
    turned = weights * _signs(groups)
    if (total := prod(sizes)) <= MAX_EXACT_EXCHANGES:
        sums = np.zeros(1)
        for weight, (first, second) in zip(turned, groups, strict=True):
            parts = weight * _all_exchanges(first, second)
            sums = (sums[:, None] + parts[None, :]).ravel()
        even = all(len(first) == len(second) for first, second in groups)
        return TestResult(_share(sums, seen), (2 if even else 1) / total, n_units)
    sums = np.zeros(resamples)
    for stream, (weight, (first, second)) in enumerate(zip(turned, groups, strict=True)):
        sums += weight * _random_exchanges(first, second, resamples, seed, stream)
    return TestResult(_share(sums, seen, observed_too=True), 1 / (resamples + 1), n_units)


def _signs(groups: Sequence[tuple[Floats, Floats]]) -> Floats:
    """+1, or -1 where another agent has fewer runs than in the first cell with unequal numbers.

    Exchanges of a cell are counted as smaller less larger group. Over several cells all of them must be the same agent
    less the other; which one does not matter for the distance from 0, nor does it in cells with equal numbers.
    """
    fewer = [np.sign(len(second) - len(first)) for first, second in groups]
    lead = next((sign for sign in fewer if sign), 1)
    return np.array([sign * lead or 1 for sign in fewer], float)


def _share(sums: Floats, seen: float, *, observed_too: bool = False) -> float:
    """Share of permuted sums that are at least as far from 0 as the one seen."""
    hits = int(np.count_nonzero(np.abs(sums) >= abs(seen) - _ROUNDING))
    return (hits + observed_too) / (len(sums) + observed_too)


def _all_exchanges(first: Floats, second: Floats) -> Floats:
    """Difference of means for every way to deal the runs to two agents, (ways,)."""
    pooled, small = _pooled(first, second)
    chosen = np.array(list(combinations(range(len(pooled)), small)))
    return _differences(pooled[chosen].sum(axis=1), pooled, small)


def _random_exchanges(first: Floats, second: Floats, resamples: int, seed: int, stream: int) -> Floats:
    pooled, small = _pooled(first, second)
    return _differences(random_groups(len(pooled), small, resamples, seed, stream) @ pooled, pooled, small)


def _pooled(first: Floats, second: Floats) -> tuple[Floats, int]:
    """All runs sorted and the size of the smaller group, so that it does not matter which agent is named first."""
    return np.sort(np.concatenate([first, second])), min(len(first), len(second))


def _differences(sums: Floats, pooled: Floats, small: int) -> Floats:
    rest = float(pooled.sum()) - sums
    differences: Floats = sums / small - rest / (len(pooled) - small)
    return differences
