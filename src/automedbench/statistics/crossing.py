"""Crossing: does a row fit its own column better than others' columns? Mean difference, interval, permutation test.

Rows and columns belong to the same cases in the same order, so that the diagonal holds what is each case's own. Several
square matrices are blocks of one sample: nothing is compared across blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from automedbench.statistics.draws import generator, student_quantile
from automedbench.statistics.pairs import flip_signs
from automedbench.statistics.samples import Floats, Indices

SEED = 20260101
CONFIDENCE = 0.95
BLOCK = 64
"""Cases of a block at most: more hardly add power, and pairs grow with the square."""
RESAMPLES = 9_999
MAX_EXACT_CASES = 7
"""Up to this number of cases in one block all permutations are tried."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Crossed:
    """Means of the diagonal and off it, per-case differences (n,) and one-sided p of the permutation test.

    ``terms`` are doubly centred (row and column means off the diagonal taken out): their mean is own - other.
    ``p`` is that of a diagonal at least as high, ``p_below`` of one at most as high, under permuted columns.
    """

    own: float
    other: float
    terms: Floats
    p: float
    p_below: float

    @property
    def value(self) -> float:
        """Own minus other."""
        return self.own - self.other


@dataclass(frozen=True)
class MeanDifference:
    """Mean of differences with its t-interval and the one-sided p of a mean above 0 under random signs."""

    mean: float
    low: float
    high: float
    p: float


def draw_blocks(groups: Sequence[str]) -> list[Indices]:
    """Case numbers of each block: of one group, in random order, ``BLOCK`` at most and nearly equally many."""
    random = generator(SEED, 10)
    blocks = []
    for group in sorted(set(groups)):
        rows = random.permutation([row for row, each in enumerate(groups) if each == group])
        blocks += np.array_split(rows, -(-len(rows) // BLOCK))
    return [np.sort(block) for block in blocks]


def cross(matrices: Sequence[Floats]) -> Crossed | None:
    """Comparison over square blocks (m, m); those of one case say nothing, and None is returned without others."""
    blocks = [np.asarray(matrix, float) for matrix in matrices if len(matrix) > 1]
    if not blocks:
        return None
    own, other = _own_and_other(blocks)
    sums = permuted_sums(blocks)
    seen = float(own.sum())
    exact = len(blocks) == 1 and len(own) <= MAX_EXACT_CASES
    return Crossed(
        own=float(own.mean()),
        other=float(other.mean()),
        terms=np.concatenate([centred_terms(block) for block in blocks]),
        p=_share(sums >= seen - _ROUNDING, exact),
        p_below=_share(sums <= seen + _ROUNDING, exact),
    )


def difference(matrices: Sequence[Floats]) -> float:
    """Own less other alone; 0 where nothing can be compared."""
    blocks = [np.asarray(matrix, float) for matrix in matrices if len(matrix) > 1]
    return float(np.subtract(*_own_and_other(blocks)).mean()) if blocks else 0.0


def _own_and_other(blocks: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Each row's value on the diagonal, and its mean off it; (n,) of all blocks."""
    return np.concatenate([np.diagonal(each) for each in blocks]), np.concatenate(
        [_off_diagonal_means(each) for each in blocks]
    )


def centred_terms(block: Floats) -> Floats:
    """Diagonal less the means of its row and its column off the diagonal, plus the grand mean off it; (m,)."""
    rows, columns = _off_diagonal_means(block), _off_diagonal_means(block.T)
    return np.asarray(np.diagonal(block) - rows - columns + rows.mean())


def permuted_sums(blocks: Sequence[Floats]) -> Floats:
    """Sums of the diagonal under whole permutations of the columns within blocks, (resamples,)."""
    random = generator(SEED, 11)
    if len(blocks) == 1 and len(blocks[0]) <= MAX_EXACT_CASES:
        return _sums(blocks[0], np.array(list(permutations(range(len(blocks[0]))))))
    total = np.zeros(RESAMPLES)
    for block in blocks:
        order = np.broadcast_to(np.arange(len(block)), (RESAMPLES, len(block)))
        total += _sums(block, random.permuted(order, axis=1))
    return total


def mean_interval(terms: Floats) -> tuple[float, float]:
    """Student's interval of the mean of at least two values."""
    mean, n = float(np.mean(terms)), len(terms)
    reach = student_quantile((1 + CONFIDENCE) / 2, n - 1) * float(np.std(terms, ddof=1)) / n**0.5
    return mean - reach, mean + reach


def mean_difference(terms: Floats) -> MeanDifference:
    """Mean of at least two paired differences, (n,)."""
    low, high = mean_interval(terms)
    mean, two_sided = float(np.mean(terms)), flip_signs(np.asarray(terms, float)[:, None], RESAMPLES, SEED)[0]
    return MeanDifference(mean, low, high, two_sided / 2 if mean > 0 else 1 - two_sided / 2)


def largest_share(blocks: Iterable[NDArray[np.bool_]]) -> float:
    """Share of cases that a block's most typical row is equal to; ``blocks`` are true for equal pairs, (m, m)."""
    counts = [(int(block.sum(axis=1).max()), len(block)) for block in blocks if len(block)]
    return sum(most for most, _ in counts) / sum(n for _, n in counts) if counts else 0.0


def _off_diagonal_means(block: Floats) -> Floats:
    """Mean of each row without its diagonal, (m,)."""
    return np.asarray((block.sum(axis=1) - np.diagonal(block)) / (len(block) - 1))


def _sums(block: Floats, orders: Indices) -> Floats:
    return np.asarray(block[np.arange(len(block)), orders].sum(axis=1))


def _share(hits: NDArray[np.bool_], exact: bool) -> float:
    """Share of permutations; of random ones the observed order counts as one more (Phipson and Smyth 2010)."""
    return float((np.count_nonzero(hits) + (not exact)) / (len(hits) + (not exact)))
