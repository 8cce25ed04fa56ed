"""Volumes for synthesis as readers return them: where a subject's volumes lie; and how one is loaded as a whole.

Volumes are loaded in their closest canonical orientation (RAS+: x to the right, y to the front, z upwards), by turning
and flipping axes, never by resampling. MetaImage and other ITK formats speak LPS; their affine is converted, and the
data follows from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench.datasets.forms.problems import unreadable
from automedbench.datasets.forms.volume_files import SourceReader, open_source


@dataclass(frozen=True)
class SourceVolume:
    """One subject: the volume to be predicted and, in paired data, the other one and the mask that come with it."""

    id: str
    target: Path
    input: Path | None = None
    mask: Path | None = None

    @property
    def files(self) -> dict[str, Path]:
        """The files that there are, by role."""
        named = {"target": self.target, "input": self.input, "mask": self.mask}
        return {role: path for role, path in named.items() if path is not None}


@dataclass(frozen=True, eq=False)
class Volume:
    """Values (x, y, z, …) and the affine from voxel numbers to millimetres (RAS)."""

    values: NDArray[Any]
    affine: NDArray[np.float64]

    @property
    def spacing(self) -> tuple[float, ...]:
        """Distance of neighbouring voxels along each axis, in mm."""
        return tuple(float(size) for size in np.linalg.norm(self.affine[:3, :3], axis=0))


def load_volume(path: Path) -> Volume:
    """One volume in canonical orientation, integers as stored, anything else as float32.

    Raises InfrastructureError when it cannot be read, has no three axes or no usable geometry, and MissingDataError
    when the package that reads its format is not installed.
    """
    with open_source(path) as reader:
        shape = reader.header.shape
        if len(shape) != 3 or min(shape) < 2:
            raise unreadable(path, f"has shape {shape}, not three axes")
        volume = Volume(_compact(_whole(reader)), reader.header.affine)
    if not np.isfinite(volume.affine).all() or abs(np.linalg.det(volume.affine[:3, :3])) < 1e-9:
        raise unreadable(path, "has no usable geometry")
    return canonical(volume)


def canonical(volume: Volume) -> Volume:
    """The same volume with its axes turned and flipped to the closest RAS+ orientation."""
    import nibabel

    orientations: Any = nibabel.orientations
    found = orientations.io_orientation(volume.affine)
    values = orientations.apply_orientation(volume.values, found)
    return Volume(values, volume.affine @ orientations.inv_ornt_aff(found, volume.values.shape))


def same_grid(first: Volume, second: Volume, tolerance: float = 1e-3) -> bool:
    """Equal shapes and affines that differ nowhere by more than ``tolerance``."""
    return first.values.shape == second.values.shape and bool(np.abs(first.affine - second.affine).max() <= tolerance)


def _whole(reader: SourceReader) -> NDArray[Any]:
    """All values, (x, y, z)."""
    size, start = math.prod(reader.header.shape), 0
    values: NDArray[Any] = np.empty(0)
    for block in reader.blocks():
        values = values if start else np.empty(size, block.dtype)
        values[start : start + block.size] = block
        start += block.size
    return values.reshape(reader.header.shape, order="F")


def _compact(values: NDArray[Any]) -> NDArray[Any]:
    """Integers in the smallest of uint8, int16 and int32 that holds them; the rest as float32."""
    if values.dtype.kind not in "iu" or values.size == 0:
        return values.astype(np.float32)
    lowest, highest = int(values.min()), int(values.max())
    for dtype in (np.uint8, np.int16, np.int32):
        if np.iinfo(dtype).min <= lowest and highest <= np.iinfo(dtype).max:
            return values.astype(dtype)
    return values.astype(np.float32)
