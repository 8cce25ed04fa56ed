"""Agreement between raters beyond chance: Krippendorff's alpha and weighted kappa, with intervals over units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from automedbench.statistics.draws import generator
from automedbench.statistics.samples import USUAL, Agreement, Floats, Indices, StatisticsMethod

MIN_UNITS = 10
"""Below this number of units there is a coefficient and no interval."""
_MAX_UNDEFINED = 0.05
_CHUNK = 4_000_000


def krippendorff_alpha(ratings: ArrayLike, method: StatisticsMethod = USUAL) -> Agreement:
    """Krippendorff's alpha of (raters, units) ratings, NaN where a rater gave none; 1 at most, 0 as by chance.

    1 - observed / expected disagreement over pairable values, by their squared differences (Krippendorff 2004, chapter
    11; Hayes and Krippendorff 2007). Units with one rating do not count. None where all ratings are equal (no
    disagreement could be expected) or no unit has two. The interval is a percentile bootstrap over units, from
    ``MIN_UNITS`` on.
    """
    table = np.asarray(ratings, float)
    table = table[:, (~np.isnan(table)).sum(axis=0) >= 2]
    if table.shape[1] == 0:
        return Agreement(None, None, None, 0)
    # Sorted: the order of raters and units must not matter. Equal units are counted, which makes resampling cheap.
    filled = np.where(np.isnan(table), np.inf, table)  # NaN equals nothing
    patterns, counts = np.unique(np.sort(filled, axis=0), axis=1, return_counts=True)
    patterns = np.where(np.isinf(patterns), np.nan, patterns)
    return _with_interval(_alpha_by_moments(patterns), counts, method)


def weighted_kappa(
    first: Sequence[Any],
    second: Sequence[Any],
    method: StatisticsMethod = USUAL,
    *,
    categories: Sequence[Any] | None = None,
) -> Agreement:
    """Cohen's weighted kappa (1968) of two raters over the units that both rated (None or NaN: not rated).

    Disagreement counts by the squared distance of categories in ``categories`` (default: all that occur, sorted). None
    where it is undefined (both raters used one and the same category). Interval as in ``krippendorff_alpha``.
    """
    both = [(a, b) for a, b in zip(first, second, strict=True) if not (_missing(a) or _missing(b))]
    known = sorted({rating for pair in both for rating in pair}) if categories is None else list(categories)
    place = {category: number for number, category in enumerate(known)}
    if not both:
        return Agreement(None, None, None, 0)
    codes, counts = np.unique([(place[a], place[b]) for a, b in both], axis=0, return_counts=True)
    size = len(known)
    cost = np.subtract.outer(np.arange(size), np.arange(size)).astype(float) ** 2
    one, two = np.eye(size)[codes[:, 0]], np.eye(size)[codes[:, 1]]
    paid = cost[codes[:, 0], codes[:, 1]]

    def kappa(counts: Floats) -> Floats:
        expected = ((counts @ one @ cost) * (counts @ two)).sum(axis=1) / counts.sum(axis=1)
        return _one_minus(counts @ paid, expected)

    return _with_interval(kappa, counts, method)


def _missing(rating: Any) -> bool:
    return rating is None or rating != rating


def _one_minus(observed: Floats, expected: Floats) -> Floats:
    """1 - observed / expected; NaN where nothing is expected."""
    positive = expected > 1e-12
    return np.where(positive, 1 - observed / np.where(positive, expected, 1.0), np.nan)


def _with_interval(coefficient: Callable[[Floats], Floats], counts: Indices, method: StatisticsMethod) -> Agreement:
    """The coefficient for the counts of each pattern of ratings, and its quantiles over resampled units."""
    n_units = int(counts.sum())
    value = float(coefficient(counts[None].astype(float))[0])
    if np.isnan(value):
        return Agreement(None, None, None, n_units)
    if n_units < MIN_UNITS:
        return Agreement(value, None, None, n_units)
    rows = max(1, _CHUNK // len(counts))
    random = generator(method.seed, 7)
    sizes = [min(rows, method.resamples - start) for start in range(0, method.resamples, rows)]
    found = [coefficient(random.multinomial(n_units, counts / n_units, size).astype(float)) for size in sizes]
    values = np.concatenate(found)
    if np.isnan(values).mean() > _MAX_UNDEFINED:
        return Agreement(value, None, None, n_units)
    tail = (1 - method.confidence) / 2
    low, high = np.nanquantile(values, [tail, 1 - tail])
    return Agreement(value, float(low), float(high), n_units)


def _alpha_by_moments(table: Floats) -> Callable[[Floats], Floats]:
    """Sums of squares within units and of all ratings stand for all pairs of values."""
    known = ~np.isnan(table)
    sizes = known.sum(axis=0).astype(float)
    centred = np.where(known, table - table[known].mean(), 0.0)
    sums, squares = centred.sum(axis=0), (centred**2).sum(axis=0)
    within = 2 * sizes / (sizes - 1) * (squares - sums**2 / sizes)

    def alpha(counts: Floats) -> Floats:
        n = counts @ sizes
        total = counts @ squares - (counts @ sums) ** 2 / n
        return _one_minus(counts @ within, 2 * n * total / (n - 1))

    return alpha
