"""Volumes to measure with, made from a seed: label maps of ellipsoids with a prediction of them.

Arrays are in Fortran order, x first, as NIfTI files have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Volume = NDArray[Any]
Shape = tuple[int, int, int]
Ellipsoid = tuple[int, NDArray[np.float64], NDArray[np.float64]]
"""Label, centre and radii in voxels."""


def kidney_pair(scale: float, seed: int = 42) -> tuple[Volume, Volume]:
    """Truth and prediction, 512 × 512 × 200 at scale 1: kidneys (1), tumours (2), a cyst (3); 2 % foreground."""
    shape = _scaled((512, 512, 200), scale)
    places = {
        1: [(0.32, 0.6, 0.5), (0.68, 0.6, 0.45)],
        2: [(0.27, 0.62, 0.6), (0.7, 0.55, 0.4)],
        3: [(0.69, 0.65, 0.6)],
    }
    sizes = {1: (45.0, 50.0, 60.0), 2: (26.0, 24.0, 22.0), 3: (12.0, 12.0, 12.0)}
    truth = [
        (label, np.array(place) * shape, scale * np.array(sizes[label]))
        for label, centres in places.items()
        for place in centres
    ]
    return _painted(shape, truth), _painted(shape, _predicted(truth, np.random.default_rng(seed)))


def organ_pair(scale: float, seed: int = 42) -> tuple[Volume, Volume]:
    """Truth and prediction, 300 × 300 × 400 at scale 1: 91 of 117 labels, one missed, one invented; 27 % foreground."""
    random = np.random.default_rng(seed)
    shape = _scaled((300, 300, 400), scale)
    cells = np.array([5, 5, 4])
    side = np.array(shape) / cells
    labels = random.permutation(np.arange(1, 118))[:91]
    structures = [
        (
            int(label),
            (np.array(np.unravel_index(cell, cells)) + 0.5 + random.uniform(-0.06, 0.06, 3)) * side,
            random.uniform(0.36, 0.48, 3) * side,
        )
        for label, cell in zip(labels, random.permutation(cells.prod()), strict=False)
    ]
    return _painted(shape, structures[1:]), _painted(shape, _predicted(structures, random)[:-1])


def save(volume: Volume, path: Path, spacing: Sequence[float] = (1.0, 1.0, 1.0)) -> None:
    """Write a ``.nii.gz`` as nibabel does."""
    import nibabel

    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(volume, np.diag([*spacing, 1.0])), path)


def _predicted(truth: Sequence[Ellipsoid], random: np.random.Generator) -> list[Ellipsoid]:
    """The same structures as a good model might find them."""
    return [
        (label, centre + random.normal(0, 0.02, 3) * radii, radii * random.normal(1, 0.02, 3))
        for label, centre, radii in truth
    ]


def _painted(shape: Shape, structures: Sequence[Ellipsoid]) -> Volume:
    volume = np.zeros(shape, dtype=np.uint8, order="F")
    for label, centre, radii in structures:
        low = np.maximum(np.floor(centre - radii).astype(int), 0)
        high = np.minimum(np.ceil(centre + radii).astype(int) + 1, shape)
        box = tuple(slice(first, last) for first, last in zip(low, high, strict=True))
        x, y, z = ((axis - middle) / radius for axis, middle, radius in zip(np.ogrid[box], centre, radii, strict=True))
        volume[box][x**2 + y**2 + z**2 < 1] = label
    return volume


def _scaled(shape: Shape, scale: float) -> Shape:
    x, y, z = (max(round(side * scale), 8) for side in shape)
    return x, y, z
