"""Krippendorff's alpha and weighted kappa: published examples, by hand, and against scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from automedbench.statistics.agreement import krippendorff_alpha, weighted_kappa
from automedbench.statistics.samples import StatisticsMethod

N = math.nan
FOUR_OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, N, N, N],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, N, 3],
    [N, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, N],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, N],
]
"""Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", section C: four observers, twelve units."""


def test_the_published_example() -> None:
    found = krippendorff_alpha(FOUR_OBSERVERS)
    assert found.value == pytest.approx(0.849, abs=0.0005)
    assert found.n_units == 11  # the twelfth unit has one rating
    assert found.low is not None and found.high is not None and found.low < 0.849 < found.high <= 1


@pytest.mark.parametrize(
    ("ratings", "expected"),
    [
        # Two raters, three units: 1 1, 1 2, 2 2. Coincidences: 1-1 2, 2-2 2, 1-2 and 2-1 one each; six values.
        # Observed 2/6, expected 2 · 3 · 3 / (6 · 5) = 0.6; alpha = 1 - (1/3) / 0.6 = 4/9.
        ([[1, 1, 2], [1, 2, 2]], 4 / 9),
        ([[1, 2, 1], [1, 2, 1]], 1.0),
        # Always the other: observed 1, expected 0.6 (nine of fifteen pairs); alpha = 1 - 1/0.6.
        ([[1, 2, 1], [2, 1, 2]], 1 - 1 / 0.6),
    ],
    ids=["one disagreement", "perfect", "always the other"],
)
def test_two_categories_by_hand(ratings: list[list[float]], expected: float) -> None:
    assert krippendorff_alpha(ratings).value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("ratings", "n_units"),
    [(np.empty((2, 0)), 0), ([[N, 1.0], [2.0, N]], 0), ([[0.5, 0.5], [0.5, 0.5]], 2)],
    ids=["no unit", "no unit with two ratings", "nothing varies"],
)
def test_where_it_is_undefined(ratings: object, n_units: int) -> None:
    found = krippendorff_alpha(np.asarray(ratings))
    assert (found.value, found.low, found.high, found.n_units) == (None, None, None, n_units)


def test_few_units_have_no_interval() -> None:
    found = krippendorff_alpha([[1, 2, 3, 4, 5], [1, 2, 3, 4, 4]])
    assert found.value is not None and found.low is None and found.high is None


def ratings(seed: int, raters: int = 4, units: int = 40) -> np.ndarray:
    """Ratings 0, ½, 1 that mostly agree, some missing."""
    chance = np.random.default_rng(seed)
    truth = chance.integers(0, 3, units)
    table = np.clip(truth + chance.integers(-1, 2, (raters, units)) * (chance.random((raters, units)) < 0.3), 0, 2) / 2
    return np.where(chance.random(table.shape) < 0.1, N, table)


def test_order_of_raters_and_units_does_not_matter() -> None:
    table = ratings(1)
    chance = np.random.default_rng(2)
    other = table[chance.permutation(4)][:, chance.permutation(40)]
    assert krippendorff_alpha(other) == krippendorff_alpha(table)


def test_scale_and_origin_do_not_matter() -> None:
    table = ratings(3)
    moved = krippendorff_alpha(7 - 3 * table)
    assert moved.value == pytest.approx(krippendorff_alpha(table).value)


def test_agreement_by_chance_is_near_zero() -> None:
    table = np.random.default_rng(4).integers(0, 3, (3, 400)).astype(float)
    found = krippendorff_alpha(table)
    assert found.low is not None and found.high is not None
    assert found.low < 0.03 and found.high > -0.03 and abs(found.value or 0.0) < 0.08


def test_the_interval_covers() -> None:
    """True alpha 0.5: two raters with equal variances and correlation 0.5. 200 × 95 % within 4 standard errors."""
    chance, hits = np.random.default_rng(5), 0
    for _ in range(200):
        common = chance.standard_normal(60)
        found = krippendorff_alpha(common + chance.standard_normal((2, 60)), StatisticsMethod(resamples=400))
        hits += found.low is not None and found.high is not None and found.low <= 0.5 <= found.high
    assert 0.87 <= hits / 200 <= 1.0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kappa_against_scikit_learn(seed: int) -> None:
    chance = np.random.default_rng(seed)
    first = chance.integers(0, 5, 60)
    second = np.clip(first + chance.integers(-2, 3, 60), 0, 4)
    expected = cohen_kappa_score(first, second, weights="quadratic")
    found = weighted_kappa(first.tolist(), second.tolist())
    assert found.value == pytest.approx(expected)
    assert found.low is not None and found.high is not None and found.low < expected < found.high


def test_kappa_by_hand() -> None:
    """Of two categories. 1 1, 1 2, 2 2, 2 2: agreed 3/4; by chance ½ · ¼ + ½ · ¾ = ½; kappa ½."""
    assert weighted_kappa([1, 1, 2, 2], [1, 2, 2, 2]).value == pytest.approx(0.5)


def test_unused_categories_keep_their_distance() -> None:
    """Category 2 is never used: 1 and 3 are two steps apart only when it is named."""
    first, second = np.random.default_rng(6).choice([0, 1, 3], (2, 40), p=[0.2, 0.3, 0.5]).tolist()
    named = weighted_kappa(first, second, categories=[0, 1, 2, 3]).value
    assert named == pytest.approx(cohen_kappa_score(first, second, weights="quadratic", labels=[0, 1, 2, 3]))
    found = weighted_kappa(first, second).value
    assert found == pytest.approx(cohen_kappa_score(first, second, weights="quadratic"))
    assert found != pytest.approx(named)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([], [], (None, 0)),
        ([None, 1], [1, N], (None, 0)),
        ([1, 1], [1, 1], (None, 2)),
        ([1, 2, N], [1, 2, 2], (1.0, 2)),
    ],
    ids=["nothing", "nothing in common", "one category", "one missing"],
)
def test_kappa_with_gaps(first: list[object], second: list[object], expected: tuple[float | None, int]) -> None:
    found = weighted_kappa(first, second)
    assert (found.value, found.n_units) == expected
