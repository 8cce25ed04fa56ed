"""Reliability over repeats of a cell: all of k runs succeed, the worst of k runs."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np


def pass_hat_k(n: int, successes: int, k: int) -> float | None:
    """Probability that k runs drawn without replacement from n all succeed: C(successes, k) / C(n, k).

    The unbiased estimator of pass^k of Yao and others (2024, tau-bench). None for fewer than k runs.
    Raises ValueError unless 0 ≤ successes ≤ n and k ≥ 1.
    """
    if k < 1 or not 0 <= successes <= n:
        raise ValueError(f"no {successes} successes of {n} runs, {k} at a time")
    return comb(successes, k) / comb(n, k) if n >= k else None


def worst_of_k(values: Sequence[float], k: int) -> float | None:
    """Expected smallest of k values drawn without replacement; None for fewer than k values.

    The i-th smallest of n (from 1) is the smallest of C(n-i, k-1) of the C(n, k) draws. Raises ValueError for k < 1 and
    for a value that is not finite.
    """
    ordered = np.sort(np.asarray(values, float))
    if k < 1 or not np.isfinite(ordered).all():
        raise ValueError(f"no worst of {k} among {len(ordered)} values, or a value is not a finite number")
    n = len(ordered)
    if n < k:
        return None
    shares = [comb(n - place, k - 1) / comb(n, k) for place in range(1, n + 1)]
    return float(np.dot(shares, ordered))
