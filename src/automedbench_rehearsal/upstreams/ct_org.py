"""CT-ORG: one package by Aspera, so a folder that a person made; mirrored volumes, no qform, low-dose PET-CT."""

from __future__ import annotations

import numpy as np

from automedbench_rehearsal.making.volumes import affine, ct, nifti
from automedbench_rehearsal.upstreams import Upstream

FOLDER = "PKG - CT-ORG/CT-ORG/OrganSegmentations"
VOLUMES = (0, 2, 10, 21, 130)
LOW_DOSE, SHORT = 135, 7


def upstream() -> Upstream:
    """Five volumes that can be staged, one of PET-CT and one with too few slices; label maps beside them."""
    files = {f"{FOLDER}/README.txt": b"CT-ORG\n"}
    for place, number in enumerate((*VOLUMES, LOW_DOSE, SHORT)):
        values = ct(place, (64, 64, 12) if number == SHORT else (64, 64, 40)).astype(np.float32)
        if number == LOW_DOSE:
            values = np.maximum(values, -1024) + np.float32(24)
        # Of volume 2 the affine says the other side than the anatomy.
        where = affine((0.9, 0.9, 3.0), "x" if number == 2 else "")
        files[f"{FOLDER}/volume-{number}.nii.gz"] = nifti(values, where, describe=f"volume-{number}", qform=0)
        files[f"{FOLDER}/labels-{number}.nii.gz"] = nifti((values > 500).astype(np.float32), where, qform=0)
    return Upstream(by_hand=files)
