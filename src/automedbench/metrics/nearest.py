"""Nearest neighbours by a k-d tree (SciPy) whose work can be estimated before it is done.

How long a query takes depends on where the points lie: one in the middle of a sphere of points has to look at most of
them. SciPy bounds the distance of a search, never its work, so the work of a few queries is counted here instead.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["QUERY_WORK", "Neighbours"]

Distances = NDArray[np.float64]

QUERY_WORK: Final = 3
"""What a query costs beside the leaves that it looks into, in leaves."""
_LEAF_POINTS = 32
_FEWEST_SAMPLES, _MOST_SAMPLES = 16, 512
# A bound this far below the limit need not be replaced by an estimate.
_NEGLIGIBLE = 1 / 500


class Neighbours:
    """Points (n × 3, n ≥ 1), ready to be asked for the nearest one."""

    def __init__(self, points: Distances) -> None:
        from scipy.spatial import cKDTree

        tree_class: Any = cKDTree
        self._tree = tree_class(points, leafsize=_LEAF_POINTS)

    def distances(self, start: Distances, reach: float = math.inf) -> Distances:
        """Distance from each row of ``start`` to the nearest point, infinite where there is none within ``reach``."""
        found: Distances = self._tree.query(start, distance_upper_bound=reach)[0]
        return found

    def work(self, start: Distances, reach: float = math.inf, *, limit: float) -> float:
        """About how many leaves (of up to 32 points) ``distances`` will look into, 0.2 to 0.5 µs each.

        An upper bound where that is far below ``limit``; else an estimate from random queries, always the same ones.
        It is cut short as soon as it is clearly above ``limit``.
        """
        if not len(start):
            return 0.0
        # Nodes of a tree by median hold at least half a leaf's points.
        most: float = len(start) * (QUERY_WORK + max(1.0, 2 * self._tree.n / _LEAF_POINTS))
        if most <= limit * _NEGLIGIBLE:
            return most
        # Enough to notice a share of expensive queries that would use up the limit.
        n_samples = (
            int(min(max(3 * most / limit, 2 * _FEWEST_SAMPLES), _MOST_SAMPLES)) if limit > 0 else _FEWEST_SAMPLES
        )
        sample = start[np.random.default_rng(0).integers(len(start), size=n_samples)]
        first = self._visited(sample[:_FEWEST_SAMPLES], reach)
        if first.mean() * len(start) > 4 * limit:
            return float(first.mean()) * len(start)
        return float(np.append(first, self._visited(sample[_FEWEST_SAMPLES:], reach)).mean()) * len(start)

    def _visited(self, start: Distances, reach: float) -> Distances:
        """Work of each query: a best-first search opens the cells that are nearer than its result."""
        radius = np.minimum(self.distances(start, reach), reach)
        lower, upper = self._cells
        visited = np.empty(len(start))
        for number, point in enumerate(start):
            gap = np.maximum(np.maximum(lower - point, point - upper), 0)
            visited[number] = QUERY_WORK + np.count_nonzero(np.einsum("ij,ij->i", gap, gap) <= radius[number] ** 2)
        return visited

    @cached_property
    def _cells(self) -> tuple[Distances, Distances]:
        """Lower and upper corners of the leaves' cells: boxes between splits, which is all that SciPy prunes by."""
        tree = self._tree
        lower: list[tuple[float, ...]] = []
        upper: list[tuple[float, ...]] = []
        pending: list[tuple[Any, tuple[float, ...], tuple[float, ...]]] = [
            (tree.tree, tuple(tree.mins), tuple(tree.maxes))
        ]
        while pending:
            node, low, high = pending.pop()
            axis = node.split_dim
            if axis < 0:
                lower.append(low)
                upper.append(high)
                continue
            pending.append((node.lesser, low, (*high[:axis], node.split, *high[axis + 1 :])))
            pending.append((node.greater, (*low[:axis], node.split, *low[axis + 1 :]), high))
        return np.array(lower), np.array(upper)
