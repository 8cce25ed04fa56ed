"""FeTA: BIDS-like folders. Two reconstructions by different software; label maps stored as float; a qform only.

Defects: a subject without label map (007) and one with both reconstructions (002).
"""

from __future__ import annotations

import numpy as np

from automedbench_rehearsal.making.files import table, zipped
from automedbench_rehearsal.making.volumes import affine, ball, mri, nifti
from automedbench_rehearsal.upstreams import Upstream

_SHAPE = (14, 14, 14)
_FILE = "https://repo-prod.prod.sagebase.org/repo/v1/entity/syn25649833/file"


def upstream() -> Upstream:
    """``feta_2.4.zip`` on Synapse."""
    names = {1: ("mial",), 2: ("mial", "irtk"), 7: ("mial",), 41: ("irtk",), 80: ("irtk",)}
    files = {}
    for number, reconstructions in names.items():
        for name in reconstructions:
            start = f"feta_2.4/sub-{number:03d}/anat/sub-{number:03d}_rec-{name}"
            files[f"{start}_T2w.nii.gz"] = _placed(mri(number, _SHAPE).astype(np.float32))
            if number != 7:
                files[f"{start}_dseg.nii.gz"] = _placed(_tissues(number).astype(np.float32))
    rows = [{"participant_id": f"sub-{n:03d}", "Pathology": "Neurotypical", "Gestational age": 24.1} for n in names]
    files["feta_2.4/participants.tsv"] = table(rows, "\t")
    files["feta_2.4/derivatives/biometry/sub-001/anat/sub-001_rec-mial_meas.nii.gz"] = _placed(_tissues(1))
    return Upstream(files={_FILE: zipped(files)})


def _placed(values: np.ndarray) -> bytes:
    return nifti(values, affine((0.5, 0.5, 0.5), "xy"), sform=0)


def _tissues(number: int) -> np.ndarray:
    labels = np.zeros(_SHAPE, np.uint8)
    for label, radius in ((1, 6.4), (2, 5.2), (3, 4.0), (4, 1.6 + 0.3 * (number % 2))):
        labels[ball(_SHAPE, (6.5, 6.5, 6.5), radius)] = label
    for label, place in ((5, (7, 3, 3)), (6, (6, 9, 7)), (7, (7, 4, 6))):
        labels[ball(_SHAPE, place, 1.5)] = label
    return labels
