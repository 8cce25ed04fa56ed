"""Reliability over repeats: how likely k runs all succeed, and how bad the worst of k is."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np

REPEAT_COUNTS = (1, 3, 5)
"""k of pass^k and worst of k; worst of 1 is the mean."""


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
