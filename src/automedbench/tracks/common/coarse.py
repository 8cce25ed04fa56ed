"""Coarse pictures: any grid brought to a small one of fixed size, and how alike two of them are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SAME = 0.999
"""Correlation from which two pictures are one."""
ROUNDING = 1e-6
"""Deviations of this share of the largest value are rounding of single precision."""


def coarse_plane(plane: NDArray[np.generic], side: int) -> Floats:
    """Mean of a plane's pixels in each cell of a ``side`` × ``side`` grid, regardless of the plane's own size."""
    rows, columns = (area_weights(length, side) for length in plane.shape)
    return np.asarray(rows @ plane.astype(np.float64) @ columns.T)


def area_weights(length: int, side: int) -> Floats:
    """Share of each of ``length`` pixels in each of ``side`` equal cells, (side, length); rows add up to 1."""
    edges = np.arange(length + 1) * (side / length)
    cells = np.arange(side)[:, None]
    return np.asarray(np.clip(edges[1:], cells, cells + 1) - np.clip(edges[:-1], cells, cells + 1))


def correlation(first: Sequence[Floats], second: Sequence[Floats]) -> Floats:
    """Pearson's correlation of pictures of one size, (m, k), negative ones as 0; 1 for two of one value each."""
    (left, left_flat), (right, right_flat) = _standardised(first), _standardised(second)
    both_flat = np.logical_and.outer(left_flat, right_flat)
    return np.where(both_flat, 1.0, np.clip(left @ right.T, 0.0, 1.0))


def same_picture(first: Sequence[Floats], second: Sequence[Floats]) -> NDArray[np.bool_]:
    """Whether pictures are one but for contrast and brightness, (m, k)."""
    return np.asarray(correlation(first, second) >= SAME)


def _standardised(pictures: Sequence[Floats]) -> tuple[Floats, NDArray[np.bool_]]:
    """Pictures as rows of mean 0 and length 1, and which of them have one value only (their row is 0)."""
    table = np.stack([np.ravel(picture) for picture in pictures]).astype(np.float64)
    scale = np.abs(table).max(axis=1)
    table -= table.mean(axis=1, keepdims=True)
    length = np.sqrt((table**2).sum(axis=1))
    flat = length <= ROUNDING * np.sqrt(table.shape[1]) * scale
    return table * (~flat / np.where(flat, 1.0, length))[:, None], flat
