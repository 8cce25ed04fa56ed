"""Degradation of CT volumes along z: what a through-plane super-resolution task's input lost.

A linear resize to a fraction of the slices and back to all of them, both with half-pixel centres and without a blur
before, as a frozen definition: other phases give inputs of another quality. In-plane nothing changes, and the result
lies on the grid of the original. The same volume gives the same bytes everywhere (float32, no library).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from automedbench.base.records import Model

Volume = NDArray[np.float32]


class ZLinear(Model):
    """``staging.degradation`` of a card: fewer slices by ``factor``, then interpolated back."""

    kind: Literal["z_linear"]
    description: str = ""
    factor: int = Field(4, ge=2, le=16)


def degrade_z(volume: NDArray[Any], factor: int) -> Volume:
    """The volume (x, y, z) as if it had been scanned with 1/``factor`` of its slices, on its own grid, in float32.

    ``max(1, round(D / factor))`` slices are made of D (ties to even), then D again.
    """
    n_slices = volume.shape[2]
    low = resize_z(np.asarray(volume, dtype=np.float32), max(1, round(n_slices / factor)))
    return resize_z(low, n_slices)


def resize_z(volume: Volume, n_slices: int) -> Volume:
    """Linear interpolation along the third axis; slice k lies at (k + ½)·D/n − ½, kept within the first and the last.

    One slice at a time, so that little more than the result is held in memory.
    """
    depth = volume.shape[2]
    result = np.empty((*volume.shape[:2], n_slices), dtype=np.float32, order="F")
    for target in range(n_slices):
        position = min(max((target + 0.5) * depth / n_slices - 0.5, 0.0), depth - 1.0)
        below = int(position)
        above = min(below + 1, depth - 1)
        first = volume[:, :, below]
        result[:, :, target] = first + (volume[:, :, above] - first) * np.float32(position - below)
    return result
