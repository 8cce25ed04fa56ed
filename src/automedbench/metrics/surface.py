"""Surface distances of label maps in millimetres: HD95 and normalised surface Dice (NSD).

The surface of a label are its voxels with a face neighbour of another label, or at the border of the volume: what
morphological erosion takes away. One pass over the volume finds the surfaces of all labels. Nearest distances come
from a k-d tree over surface voxels, whose cost follows the size of the surfaces: a distance transform over the box
around reference and prediction would pay for every stray voxel with the whole volume.

Values are those of MONAI's ``compute_hausdorff_distance(percentile=95)`` and ``compute_surface_dice`` without
subvoxels, up to MONAI's single precision. MONAI itself would bring torch into the scorer; ``surface-distance`` does not
run under NumPy 2.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

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


Labels = NDArray[Any]
Indices = NDArray[np.int64]
PERCENTILE = 95.0
# Products of voxel sizes are not exact: a distance that equals the tolerance must not fail by one last bit.
_ROUNDING_MM = 1e-6


@dataclass(frozen=True, eq=False)
class Surfaces:
    """Surface voxels of every label of one volume.

    ``voxels`` are indices in file order (x fastest), grouped by label and ascending within a label; ``labels`` are the
    label numbers that occur, ascending, and ``starts`` where each one's voxels begin (one more entry than labels).
    """

    voxels: Indices
    labels: tuple[int, ...]
    starts: tuple[int, ...]

    def of(self, label: int) -> Indices:
        """Surface voxels of one label, empty when it does not occur."""
        if label not in self.labels:
            return self.voxels[:0]
        number = self.labels.index(label)
        return self.voxels[self.starts[number] : self.starts[number + 1]]


def find_surfaces(planes: Iterable[Labels], *, max_voxels: int | None = None) -> Surfaces | None:
    """Surfaces of all labels but 0 of a volume that comes plane by plane (2-D arrays of equal shape, along z).

    Within a plane the last axis is the one that varies fastest in the file. None when there are more than
    ``max_voxels`` surface voxels: then the map is mostly noise and distances would take very long.
    """
    found: list[Indices] = []
    numbers: list[Labels] = []
    total = 0
    for position, (before, plane, after) in enumerate(_with_neighbours(planes)):
        edge = _edge(before, plane, after)
        inside = np.flatnonzero(edge)
        total += inside.size
        if max_voxels is not None and total > max_voxels:
            return None
        if inside.size:
            found.append(inside + position * plane.size)
            numbers.append(plane.reshape(-1)[inside])
    return _grouped(found, numbers)


def _with_neighbours(planes: Iterable[Labels]) -> Iterator[tuple[Labels | None, Labels, Labels | None]]:
    """Each plane with the one before and the one behind it."""
    pairs = itertools.pairwise(itertools.chain([None], planes, [None]))
    for (before, plane), (_, after) in itertools.pairwise(pairs):
        if plane is not None:
            yield before, plane, after


def _edge(before: Labels | None, plane: Labels, after: Labels | None) -> NDArray[np.bool_]:
    if not plane.any():
        return np.zeros(plane.shape, dtype=bool)
    outer = before is None or after is None
    edge: NDArray[np.bool_] = np.full(plane.shape, outer)
    if before is not None and after is not None:
        edge |= (plane != before) | (plane != after)
    for along in (edge, edge.T):
        along[[0, -1]] = True
    for along, values in ((edge, plane), (edge.T, plane.T)):
        change = values[1:] != values[:-1]
        along[1:] |= change
        along[:-1] |= change
    edge &= plane != 0
    return edge


def _grouped(found: list[Indices], numbers: list[Labels]) -> Surfaces:
    if not found:
        return Surfaces(np.zeros(0, dtype=np.int64), (), (0,))
    label = np.concatenate(numbers)
    order = np.argsort(label, kind="stable")
    labels, starts = np.unique(label[order], return_index=True)
    return Surfaces(np.concatenate(found)[order], tuple(labels.tolist()), (*starts.tolist(), label.size))


@dataclass(frozen=True, eq=False)
class SurfaceDistances:
    """Distance in mm from every surface voxel of one side to the nearest of the other; empty for an absent label.

    Infinite where the other side is absent, or where the search was given up (see :func:`surface_distances`).
    """

    from_reference: Distances
    from_prediction: Distances

    def hausdorff95(self) -> float | None:
        """Larger one of both sides' 95th percentile (linear interpolation), in mm; None when a side is absent."""
        sides = [_percentile(side, PERCENTILE) for side in (self.from_reference, self.from_prediction)]
        return max(sides) if all(math.isfinite(side) for side in sides) else None

    def surface_dice(self, tolerance_mm: float) -> float | None:
        """Share of surface voxels of both sides within ``tolerance_mm`` of the other side; None when both are absent.

        Definition: Nikolov et al. 2018 (arXiv:1809.04430), counted in voxels instead of areas.
        """
        total = self.from_reference.size + self.from_prediction.size
        if not total:
            return None
        limit = tolerance_mm + _ROUNDING_MM
        near = np.count_nonzero(self.from_reference <= limit) + np.count_nonzero(self.from_prediction <= limit)
        return int(near) / total


def surface_distances(
    reference: Indices,
    prediction: Indices,
    *,
    shape: Sequence[int],
    spacing_mm: Sequence[float],
    near_mm: float = math.inf,
    budget: SearchBudget | None = None,
) -> SurfaceDistances | None:
    """Distances between two sets of surface voxels of one label (``Surfaces.of``).

    ``shape`` (x, y, z) of the volume and ``spacing_mm`` along the same axes. With ``near_mm`` distances beyond it are
    looked up only if the 95th percentile depends on them. ``budget`` bounds the time that maps made to be slow can
    take (surfaces that surround each other have no nearest voxel to speak of): it is compared with an estimate before
    each step, in leaves of the k-d tree (:meth:`Neighbours.work`). When it does not suffice for what lies within
    ``near_mm`` the result is None; when it does not suffice beyond, such distances remain infinite, which leaves NSD
    up to ``near_mm`` exact and HD95 None.
    """
    if len(shape) != len(spacing_mm) or not all(size > 0 and math.isfinite(size) for size in spacing_mm):
        raise ValueError(f"spacing {tuple(spacing_mm)} does not fit shape {tuple(shape)}")
    points = _Points(tuple(shape), np.asarray(spacing_mm, dtype=np.float64))
    lookups = (_Lookup(reference, prediction, points), _Lookup(prediction, reference, points))
    budget = budget or SearchBudget(math.inf)
    if not budget.allows(lookups, near_mm):
        return None
    for lookup in lookups:
        lookup.look(near_mm)
    far = [lookup for lookup in lookups if not math.isfinite(_percentile(lookup.distances, PERCENTILE))]
    if reference.size and prediction.size and budget.allows(far, math.inf):
        for lookup in far:
            lookup.look(math.inf)
    return SurfaceDistances(lookups[0].distances, lookups[1].distances)


@dataclass(frozen=True, eq=False)
class _Points:
    """Turns voxels in file order into positions in mm."""

    shape: tuple[int, ...]
    spacing_mm: NDArray[np.float64]

    def of(self, voxels: Indices) -> Distances:
        return np.stack(np.unravel_index(voxels, self.shape, order="F"), axis=1) * self.spacing_mm


class _Lookup:
    """Distances from each voxel of one surface to the nearest of another, as far as they are known."""

    def __init__(self, start: Indices, goal: Indices, points: _Points) -> None:
        self.distances: Distances = np.full(start.size, np.inf)
        self._start, self._points = start, points
        self._neighbours: Neighbours | None = None
        if start.size and goal.size:
            # Most voxels of two good surfaces coincide; only the others are looked up.
            self.distances[np.isin(start, goal, assume_unique=True)] = 0.0
            if self._open.size:
                self._neighbours = Neighbours(points.of(goal))

    @property
    def _open(self) -> Indices:
        return np.flatnonzero(np.isinf(self.distances))

    def _waiting(self) -> Distances:
        return self._points.of(self._start[self._open])

    def work(self, reach: float, limit: float) -> float:
        """Cost of ``look``."""
        return self._neighbours.work(self._waiting(), reach, limit=limit) if self._neighbours else 0.0

    def look(self, reach: float) -> None:
        """Fill in the unknown distances within ``reach``."""
        if self._neighbours:
            self.distances[self._open] = self._neighbours.distances(self._waiting(), reach)


@dataclass
class SearchBudget:
    """Keeps the work of several searches within one limit, in leaves of the k-d tree."""

    limit: float
    spent: float = 0.0

    def allows(self, lookups: Sequence[_Lookup], reach: float) -> bool:
        """Take the work of these lookups from what is left, if there is enough for all of them."""
        if math.isinf(self.limit):
            return True
        total = self.spent
        for lookup in lookups:
            total += lookup.work(reach, self.limit - total)
            if total > self.limit:
                return False
        self.spent = total
        return True


def _percentile(values: Distances, percent: float) -> float:
    """Percentile with linear interpolation; infinite when it touches an infinite value or there is none."""
    if not values.size:
        return math.inf
    rank = percent / 100 * (values.size - 1)
    low = math.floor(rank)
    high = math.ceil(rank)
    ordered = np.partition(values, (low, high))
    lower, upper = float(ordered[low]), float(ordered[high])
    return lower if lower == upper else lower + (upper - lower) * (rank - low)
