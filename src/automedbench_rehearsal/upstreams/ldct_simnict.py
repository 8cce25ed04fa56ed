"""SimNICT's sample of AMOS: volumes at normal dose and simulated defects of them, by the same number in each folder.

Defects of upstream that are here: numbers start anew in train and test, slices are smaller or larger than 512×512,
some volumes are stored unsigned with an intercept, ground outside the round field of view lies at -2000 HU.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from automedbench_rehearsal.making.files import generator
from automedbench_rehearsal.making.pictures import picture, scene
from automedbench_rehearsal.making.volumes import body, nifti, round_field
from automedbench_rehearsal.upstreams import Upstream

HUB = "YutingHe-list/SimNICT"
_SAMPLE = "SimNICT-AMOS-Sample"
_VOLUMES = {"train/1": (64, 56, 9), "train/2": (540, 48, 6), "test/1": (60, 60, 8)}
_NOISE_HU = {"LDCT_Low": 15, "LDCT_High": 60, "SVCT_High": 40}
_LPS = np.diag([-0.8, -0.8, 5.0, 1.0])


def upstream() -> Upstream:
    """Three volumes, of each what the card takes and some of what it leaves."""
    files = {"README.md": b"---\nlicense: cc-by-nd-4.0\n---\n", ".gitattributes": b"*.gz filter=lfs\n"}
    for name, shape in _VOLUMES.items():
        part, number = name.split("/")
        values = round_field(body(shape, name), -2000)
        folder = f"{_SAMPLE}/{part}_nii_files"
        files[f"{folder}/org/{number}.nii.gz"] = _unsigned(values) if name == "test/1" else nifti(values, _LPS)
        for defect, sigma in _NOISE_HU.items():
            noise = generator("ldct", name, defect).normal(0, sigma, shape)
            noisy = np.where(values > -2000, np.rint(values + noise), values).astype(np.int16)
            files[f"{folder}/{defect}/{number}.nii.gz"] = nifti(noisy, _LPS)
        files[f"{_SAMPLE}/{part}_png_previews/{number}_preview.png"] = picture(scene((8, 8), name))
    return Upstream(hubs={HUB: files})


def _unsigned(values: NDArray[np.int16]) -> bytes:
    """The same HU as uint16 with a slope of 1 and an intercept of -2048."""
    return nifti((values.astype(np.int32) + 2048).astype(np.uint16), _LPS, scaling=(1, -2048))
