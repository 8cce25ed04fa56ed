"""BraTS 2023's training archive of gliomas: a folder per patient and time point, five volumes in each.

Defects of upstream that are here: a patient with two time points, brains without skull in volumes of 0, whole slices
of 0 at both ends, planes of 240 voxels (here 120) that are no power of two, axes that run to the left and back.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from automedbench_rehearsal.making.files import generator, zipped
from automedbench_rehearsal.making.volumes import nifti
from automedbench_rehearsal.upstreams import Upstream

_ARCHIVE = "ASNR-MICCAI-BraTS2023-GLI-Challenge-TrainingData"
_SCANS = ("00000-000", "00002-000", "00005-000", "00005-001", "00006-000")
_LPS = np.array([[-1.0, 0, 0, 0], [0, -1.0, 0, 239], [0, 0, 1.0, 0], [0, 0, 0, 1.0]])


def upstream() -> Upstream:
    """Five scans of four patients."""
    content = {}
    for scan in _SCANS:
        place = f"{_ARCHIVE}/BraTS-GLI-{scan}/BraTS-GLI-{scan}-"
        content[f"{place}t1c.nii.gz"] = nifti(_brain(scan), _LPS)
        for other in ("t1n", "t2f", "t2w", "seg"):
            content[f"{place}{other}.nii.gz"] = nifti(np.zeros((4, 4, 4), np.int16), _LPS)
    url = "https://repo-prod.prod.sagebase.org/repo/v1/entity/syn51514132/file"
    return Upstream(files={url: zipped(content, compress=False)})


def _brain(scan: str) -> NDArray[np.int16]:
    """(x, y, z): an ellipsoid of tissue with a bright rim somewhere, 0 around it and in the first and last slices."""
    chance = generator("brats", scan)
    shape = (120, 120, 10)
    x, y, z = np.meshgrid(*(np.linspace(-1, 1, size) for size in shape), indexing="ij")
    values = 400 + 60 * np.sin(9 * x + chance.uniform(0, 6)) * np.cos(7 * y)
    distance = np.sqrt((x - chance.uniform(-0.3, 0.3)) ** 2 + (y - chance.uniform(-0.3, 0.3)) ** 2)
    values = np.where(np.abs(distance - 0.2) < 0.05, 900, values)
    values = np.rint(values / 4) * 4
    brain = (x / 0.6) ** 2 + (y / 0.75) ** 2 + (z / 0.9) ** 2 < 1
    return np.where(brain & (np.abs(z) < 0.8), values, 0).astype(np.int16)
