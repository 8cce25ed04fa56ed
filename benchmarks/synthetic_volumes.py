"""Volumes to measure with, made from a seed: label maps of smooth structures with a prediction of them, and CT pairs.

Arrays are in Fortran order, x first, as NIfTI files have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Volume = NDArray[Any]
Shape = tuple[int, int, int]

_REACH = 1.25  # of a structure, in radii
_WAVE = 0.1  # height of the waves of its surface, per axis


@dataclass(frozen=True)
class Structure:
    """An ellipsoid with a wavy surface; centre and radii in voxels."""

    label: int
    centre: NDArray[np.float64]
    radii: NDArray[np.float64]
    phases: NDArray[np.float64]

    def paint(self, volume: Volume) -> None:
        """Set its voxels to its label."""
        low = np.maximum(np.floor(self.centre - _REACH * self.radii).astype(int), 0)
        high = np.minimum(np.ceil(self.centre + _REACH * self.radii).astype(int) + 1, volume.shape)
        box = tuple(slice(first, last) for first, last in zip(low, high, strict=True))
        axes = [
            (axis - centre) / radius
            for axis, centre, radius in zip(np.ogrid[box], self.centre, self.radii, strict=True)
        ]
        x, y, z = axes
        waves = [_WAVE * np.sin(4 * axis + phase) for axis, phase in zip(axes, self.phases, strict=True)]
        volume[box][x**2 + y**2 + z**2 < (1 + waves[0]) + (waves[1] + waves[2])] = self.label

    def predicted(self, random: np.random.Generator) -> Structure:
        """The same structure as a good model might find it."""
        return Structure(
            self.label,
            self.centre + random.normal(0, 0.02, 3) * self.radii,
            self.radii * random.normal(1, 0.02, 3),
            self.phases + random.normal(0, 0.2, 3),
        )


def kidney_pair(scale: float, seed: int = 42) -> tuple[Volume, Volume]:
    """Truth and prediction, 512 × 512 × 200 at scale 1: kidneys (1), tumours (2), a cyst (3); 2 % foreground."""
    random = np.random.default_rng(seed)
    shape = _scaled((512, 512, 200), scale)
    places = {
        1: [(0.32, 0.6, 0.5), (0.68, 0.6, 0.45)],
        2: [(0.27, 0.62, 0.6), (0.7, 0.55, 0.4)],
        3: [(0.69, 0.65, 0.6)],
    }
    sizes = {1: (45.0, 50.0, 60.0), 2: (26.0, 24.0, 22.0), 3: (12.0, 12.0, 12.0)}
    truth = [
        Structure(label, np.array(place) * shape, scale * np.array(sizes[label]), random.uniform(0, 6, 3))
        for label, centres in places.items()
        for place in centres
    ]
    return _painted(shape, truth), _painted(shape, [each.predicted(random) for each in truth])


def organ_pair(scale: float, seed: int = 42) -> tuple[Volume, Volume]:
    """Truth and prediction, 300 × 300 × 400 at scale 1: 91 of 117 labels, one missed, one invented; 27 % foreground."""
    random = np.random.default_rng(seed)
    shape = _scaled((300, 300, 400), scale)
    cells = np.array([5, 5, 4])
    side = np.array(shape) / cells
    labels = random.permutation(np.arange(1, 118))[:91]
    structures = [
        Structure(
            int(label),
            (np.array(np.unravel_index(cell, cells)) + 0.5 + random.uniform(-0.06, 0.06, 3)) * side,
            random.uniform(0.36, 0.48, 3) * side,
            random.uniform(0, 6, 3),
        )
        for label, cell in zip(labels, random.permutation(cells.prod()), strict=False)
    ]
    found = [each.predicted(random) for each in structures]
    return _painted(shape, structures[1:]), _painted(shape, found[:-1])


def ct_pair(scale: float, seed: int = 42) -> tuple[Volume, Volume]:
    """Reference and prediction in HU (int16), 256 × 256 × 160 at scale 1, with the noise of a scanner in both."""
    random = np.random.default_rng(seed)
    shape = _scaled((256, 256, 160), scale)
    middle = np.array(shape) / 2
    values = np.full(shape, -1000.0, dtype=np.float32, order="F")
    parts = [
        (40, (0, 0, 0), 0.9),
        (-700, (-0.4, -0.1, 0), 0.35),
        (-700, (0.4, -0.1, 0), 0.35),
        (700, (0, 0.6, 0), 0.12),
    ]
    for value, place, size in parts:
        centre = middle * (1 + np.array(place))
        Structure(value, centre, middle * size * np.array([1, 0.8, 1.1]), random.uniform(0, 6, 3)).paint(values)
    x, y, z = np.ogrid[: shape[0], : shape[1], : shape[2]]
    texture = (20 * np.sin(x / 7) * np.sin(y / 9) * np.sin(z / 11)).astype(np.float32)
    noisy = [values * gain + texture + random.normal(0, 20, shape).astype(np.float32) for gain in (1.0, 0.98)]
    reference, prediction = (np.asfortranarray(np.rint(each).astype(np.int16)) for each in noisy)
    return reference, prediction


def save(volume: Volume, path: Path, spacing: Sequence[float] = (1.0, 1.0, 1.0)) -> None:
    """Write a ``.nii.gz`` as nibabel does."""
    import nibabel

    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(volume, np.diag([*spacing, 1.0])), path)


def _painted(shape: Shape, structures: Sequence[Structure]) -> Volume:
    volume = np.zeros(shape, dtype=np.uint8, order="F")
    for structure in structures:
        structure.paint(volume)
    return volume


def _scaled(shape: Shape, scale: float) -> Shape:
    x, y, z = (max(round(side * scale), 8) for side in shape)
    return x, y, z
