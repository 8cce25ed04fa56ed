"""Made-up scans of a body: CT in HU, an MRI and an outline of the same body, as small volumes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench_rehearsal.making.files import gzipped, nifti

SHAPE = (64, 64, 36)
Array = NDArray[Any]


def ct(number: int, shape: tuple[int, int, int] = SHAPE) -> NDArray[np.int16]:
    """HU (x, y, z): air, an elliptic body with coarse texture, and a spine that leans from slice to slice."""
    x, y, z = np.ogrid[: shape[0], : shape[1], : shape[2]]
    middle = (shape[0] / 2, shape[1] / 2)
    values = np.full(shape, -1000.0)
    inside = np.broadcast_to(_inside(x, y, shape, number), shape)
    texture = 40 + 60 * np.sin(0.9 * z + 0.3 * x + number) * np.cos(0.2 * y)
    values[inside] = texture[inside]
    bone = (x - middle[0] - (number - 2) * np.sin(0.4 * z)) ** 2 + (y - 0.7 * middle[1]) ** 2 < 30
    values[bone & inside] = 700 + 30 * number
    return np.rint(values / 10).astype(np.int16) * 10


def mri(number: int, shape: tuple[int, int, int] = SHAPE) -> NDArray[np.int16]:
    """The same body in an MRI: no unit, bone dark, air zero."""
    values = ct(number, shape).astype(float)
    return np.where(values < -500, 0, np.where(values > 500, 60, 300 + 2 * values)).astype(np.int16)


def outline(number: int, shape: tuple[int, int, int] = SHAPE) -> NDArray[np.uint8]:
    """The body dilated by some voxels, 0 and 1."""
    x, y, _ = np.ogrid[: shape[0], : shape[1], : shape[2]]
    return np.broadcast_to(_inside(x, y, shape, number, more=3), shape).astype(np.uint8)


def grid(
    spacing: tuple[float, float, float], origin: tuple[float, float, float] = (-40, -30, 100), flip: str = ""
) -> Array:
    """Affine from voxels to mm (RAS); axes named in ``flip`` run the other way."""
    signs = [-1.0 if axis in flip else 1.0 for axis in "xyz"]
    affine = np.diag([*(sign * size for sign, size in zip(signs, spacing, strict=True)), 1.0])
    affine[:3, 3] = origin
    return affine


def without_qform(values: Array, affine: Array, describe: str = "") -> bytes:
    """A gzipped NIfTI whose place is told by its sform alone."""
    data = bytearray(nifti(values, affine, gz=False, describe=describe))
    data[252:254] = bytes(2)  # qform_code
    return gzipped(bytes(data))


def _inside(x: Array, y: Array, shape: tuple[int, int, int], number: int, more: float = 0) -> NDArray[np.bool_]:
    width, height = 0.40 * shape[0] - number % 3 + more, 0.32 * shape[1] + number % 2 + more
    body = ((x - shape[0] / 2) / width) ** 2 + ((y - shape[1] / 2) / height) ** 2 < 1
    return np.asarray(body[:, :, :1])
