"""Segmentation's outputs and answers for the effect of the case: each target's share of every cell of a coarse grid."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from automedbench.tracks import EffectEvidence, ScoringInputs
from automedbench.tracks.segmentation.check import Numbers
from automedbench.tracks.segmentation.compare import MaskPair, is_comparable
from automedbench.tracks.segmentation.settings import label_files

FINE, ROUGH = 16, 8
"""Cells along each axis, up to ``MANY`` targets and beyond."""
MANY = 16
SAME = 0.98
"""Overlap from which two sets of masks are one."""
Occupancy = NDArray[np.float32]


def read_effect(inputs: ScoringInputs) -> EffectEvidence:
    """Masks of every completed case on its grid, and its truth."""
    files = label_files(inputs.card)
    side = FINE if len(inputs.card.targets) <= MANY else ROUGH
    outputs, answers = [], []
    for case in (case for case, verdict in inputs.pairs if is_comparable(verdict)):
        pairs = [(MaskPair(inputs, case, file, with_prediction=True), len(file.targets)) for file in files]
        plane = pairs[0][0].plane_voxels
        occupied = functools.partial(occupancy, shape=tuple(case.geometry["shape"]), side=side)
        outputs.append(np.concatenate([occupied(pair.predicted_numbers(plane), n_targets=n) for pair, n in pairs]))
        answers.append(np.concatenate([occupied(pair.truth_numbers(plane), n_targets=n) for pair, n in pairs]))
    return EffectEvidence(outputs, answers, quality=overlap, same=lambda first, second: overlap(first, second) >= SAME)


def occupancy(planes: Iterator[Numbers], *, shape: tuple[int, ...], side: int, n_targets: int) -> Occupancy:
    """Share of each cell's voxels that each target has, (targets, cells), from planes of target numbers.

    Cells divide every axis evenly, so that volumes of any size have the same; axes beyond the third count as planes.
    """
    x, y = (*shape, 1)[:2]
    depth = int(np.prod(shape)) // (x * y)
    columns, rows, layers = (np.arange(length) * side // length for length in (x, y, depth))
    cells = (rows[:, None] * side + columns).ravel().astype(np.intp)
    counts = np.zeros((n_targets + 1, side, side * side))
    for layer, numbers in zip(layers, planes, strict=True):
        places = np.flatnonzero(numbers != 0)  # of booleans it is five times as fast
        found = np.minimum(numbers[places], n_targets + 1).astype(np.intp) - 1
        counts[:, layer] += np.bincount(found * side**2 + cells[places], minlength=(n_targets + 1) * side**2).reshape(
            n_targets + 1, side**2
        )
    per_layer = np.bincount(layers, minlength=side)[:, None] * np.bincount(cells, minlength=side**2)
    return np.asarray(counts[:-1] / np.maximum(per_layer, 1), dtype=np.float32).reshape(n_targets, -1)


def overlap(first: Sequence[Occupancy], second: Sequence[Occupancy]) -> NDArray[np.float64]:
    """Mean over targets of 2 · a·b / (a·a + b·b) of their cells, (m, k); 1 for a target that neither has."""
    tables = zip(np.stack(first, axis=1), np.stack(second, axis=1), strict=True)
    return np.asarray(np.mean([_overlap(*pair) for pair in tables], axis=0))


def _overlap(left: Occupancy, right: Occupancy) -> NDArray[np.float64]:
    """The same of one target, (m, cells) and (k, cells)."""
    total = np.add.outer(*((cells**2).sum(axis=1, dtype=np.float64) for cells in (left, right)))
    return np.asarray(np.where(total > 0, 2 * (left @ right.T) / np.where(total > 0, total, 1), 1.0))
