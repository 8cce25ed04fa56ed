"""IXI's archive of T1 volumes: NIfTI files side by side, without a folder.

Defects of upstream that are here: planes stored sagittal first with an oblique affine, hospitals whose volumes differ
in shape, free text in the header.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from automedbench_rehearsal.making.files import generator, tarred
from automedbench_rehearsal.making.volumes import nifti
from automedbench_rehearsal.upstreams import Upstream

_VOLUMES = {
    "IXI002-Guys-0828": (64, 64, 11),
    "IXI012-HH-1211": (64, 64, 10),
    "IXI035-IOP-0873": (60, 64, 11),
    "IXI046-Guys-0824": (64, 64, 9),
    "IXI652-Guys-1116": (64, 64, 11),
}


def upstream() -> Upstream:
    """Five volumes of five subjects from three hospitals."""
    content = {
        f"{name}-T1.nii.gz": nifti(_head(shape, name), _affine(shape), describe=f"{name} SIEMENS")
        for name, shape in _VOLUMES.items()
    }
    return Upstream(files={"http://biomedic.doc.ic.ac.uk/brain-development/downloads/IXI/IXI-T1.tar": tarred(content)})


def _affine(shape: tuple[int, int, int]) -> NDArray[np.float64]:
    """Stored axes run to the back, up and to the right, tilted by three degrees."""
    tilt = np.deg2rad(3)
    axes = np.array([[0, 0, 1.2], [-0.94, 0, 0], [0, 0.94, 0]])
    turn = np.array([[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]])
    affine = np.eye(4)
    affine[:3, :3] = turn @ axes
    affine[:3, 3] = -affine[:3, :3] @ (np.array(shape) - 1) / 2
    return affine


def _head(shape: tuple[int, int, int], name: str) -> NDArray[np.int16]:
    """(back, up, right): skin, a brain with folds, darker ventricles, and noise everywhere."""
    chance = generator("ixi", name)
    back, up, right = np.meshgrid(*(np.linspace(-1, 1, size) for size in shape), indexing="ij")
    radius = np.sqrt((back / 0.9) ** 2 + (up / 0.95) ** 2 + (right / 0.95) ** 2)
    values = np.where(radius < 1, 250.0, 0.0)
    folds = 500 + 120 * np.sin(14 * back + chance.uniform(0, 6)) * np.cos(11 * up + 3 * right)
    values = np.where(radius < 0.85, folds, values)
    values = np.where((back + 0.1) ** 2 + (up - 0.1) ** 2 < 0.03, 120, values)
    return np.rint(np.abs(values + chance.normal(0, 10, shape))).astype(np.int16)
