"""Geometry of a synthesis case: grid and affine that a volume must have, and probes that tell a copy of the input."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench.base.records import Model

N_PROBES = 2048
_STEP, _SPAN = 0x9E3779B97F4A7C15, 2**64  # multiples of the golden ratio fill the volume evenly, on no row's period


class Geometry(Model):
    """``CaseEntry.geometry``: the grid of the case, and values of the public input at fixed places.

    The probes tell a copy of the input without the input: a prediction that nowhere differs from them is one.
    """

    shape: tuple[int, int, int]
    spacing: tuple[float, float, float]
    affine: tuple[tuple[float, ...], ...]
    probes: str

    @property
    def n_voxels(self) -> int:
        """Voxels of the volume."""
        return math.prod(self.shape)


def probe_places(n_voxels: int) -> NDArray[np.int64]:
    """Places of the probes in file order, ascending, each once."""
    places = {(number * _STEP % _SPAN) * n_voxels // _SPAN for number in range(1, N_PROBES + 1)}
    return np.array(sorted(places), dtype=np.int64)


def pack_probes(values: NDArray[Any]) -> str:
    """Values as text: base64 of little-endian float32."""
    return base64.b64encode(values.astype("<f4").tobytes()).decode("ascii")


def unpack_probes(text: str) -> NDArray[np.float32]:
    """The values behind :func:`pack_probes`."""
    return np.frombuffer(base64.b64decode(text), dtype="<f4").astype(np.float32)
