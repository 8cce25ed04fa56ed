"""Affines of volumes that should lie on one grid: how far apart they place a voxel."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from automedbench.base.records import Problem

TOLERANCE_VOXELS = 1e-3
"""Distance up to which two affines are one: float32 and quaternions round to less, a shift that is meant is more."""
EXACT_VOXELS = 1e-5


def affine_offset(affine: Any, expected: Any, shape: Sequence[int]) -> float:
    """The largest distance between two affines' (4 × 4) places of a corner of the volume, in its smallest voxel side.

    Infinite where an affine is not finite.
    """
    given, wanted = np.asarray(affine, np.float64), np.asarray(expected, np.float64)
    corners = np.array([(*corner, 1) for corner in itertools.product(*((0, size - 1) for size in shape[:3]))]).T
    with np.errstate(all="ignore"):
        distance = float(np.linalg.norm(((given - wanted) @ corners)[:3], axis=0).max())
        offset = distance / float(np.linalg.norm(wanted[:3, :3], axis=0).min())
    return offset if math.isfinite(offset) else math.inf


def rounding_remark(offset: float) -> list[Problem]:
    """A remark on an affine that differs, but within the tolerance."""
    if offset <= EXACT_VOXELS:
        return []
    message = f"has an affine that is {offset:.2g} of a voxel off; within {TOLERANCE_VOXELS:g} it is the case's"
    return [Problem(code="affine_rounding", message=message)]
