"""pass^k and worst-of-k: by hand, and against trying every draw."""

from __future__ import annotations

import math
from itertools import combinations

import pytest

from automedbench.statistics.repeats import pass_hat_k, worst_of_k


@pytest.mark.parametrize(
    ("n", "successes", "k", "expected"),
    [
        (0, 0, 1, None),
        (2, 2, 3, None),
        (3, 3, 3, 1.0),
        (3, 2, 3, 0.0),
        (3, 0, 1, 0.0),
        (4, 3, 2, 0.5),  # 3 of 6 pairs
        (5, 4, 3, 0.4),  # 4 of 10 triples
        (10, 7, 1, 0.7),
    ],
)
def test_pass_hat_k(n: int, successes: int, k: int, expected: float | None) -> None:
    assert pass_hat_k(n, successes, k) == (None if expected is None else pytest.approx(expected))


def test_pass_hat_k_is_unbiased() -> None:
    """Mean over all outcomes of 5 runs that succeed with probability 0.7: 0.7³."""
    chances = [math.comb(5, s) * 0.7**s * 0.3 ** (5 - s) for s in range(6)]
    mean = sum(chance * (pass_hat_k(5, s, 3) or 0.0) for s, chance in enumerate(chances))
    assert mean == pytest.approx(0.343)


@pytest.mark.parametrize(
    ("values", "k", "expected"),
    [
        ([], 1, None),
        ([0.5, 0.6], 3, None),
        ([0.5, 0.6, 0.1], 3, 0.1),
        ([0.2, 0.4, 0.9], 1, 0.5),
        ([0.9, 0.1, 0.5], 2, (0.1 + 0.1 + 0.5) / 3),  # pairs: 0.9 0.1, 0.9 0.5, 0.1 0.5
        ([0.3, 0.3, 0.3], 2, 0.3),
    ],
)
def test_worst_of_k(values: list[float], k: int, expected: float | None) -> None:
    assert worst_of_k(values, k) == (None if expected is None else pytest.approx(expected))


def test_worst_of_k_is_the_mean_over_all_draws() -> None:
    values = [0.31, 0.07, 0.9, 0.55, 0.12, 0.12, 0.78]
    draws = [min(draw) for draw in combinations(values, 3)]
    assert worst_of_k(values, 3) == pytest.approx(sum(draws) / len(draws))
