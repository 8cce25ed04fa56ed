"""KiTS19: label maps and records in a git repository, scans elsewhere.

Arrays are slices × rows × columns. Defects: a label map that is a Git LFS pointer (case 5), a malignant case without
one (case 7), records of test cases (210), benign cases.
"""

from __future__ import annotations

import json

import numpy as np

from automedbench_rehearsal.making.volumes import ct, nifti, organ_and_tumour
from automedbench_rehearsal.upstreams import Upstream

_SHAPE = (8, 14, 14)
_AFFINE = np.array([[0, 0, -0.9, 11], [0, -0.9, 0, 23], [-3.0, 0, 0, -40], [0, 0, 0, 1]])
_SCANS = 30
_MALIGNANT = (0, 1, 3, 4, 5, 6, 7, 8, 210)
_POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:0000000000000000000000000000000000000000000000000000000000000000\nsize 123456\n"
)


def upstream() -> Upstream:
    """The repository, and the scans at both places."""
    scans = [_scan(number) for number in range(_SCANS)]
    host = "https://kits19.sfo2.digitaloceanspaces.com"
    return Upstream(
        files={f"{host}/master_{number:05d}.nii.gz": data for number, data in enumerate(scans)},
        hubs={
            "neheller/KiTS-Challenge-Imaging": {
                f"images/case_{number:05d}.nii.gz": data for number, data in enumerate(scans)
            }
        },
        repositories={"https://github.com/neheller/kits19": _repository()},
    )


def _scan(number: int) -> bytes:
    shape = _SHAPE if number in _MALIGNANT else (2, 4, 4)
    return nifti(ct(number, shape).astype(np.float32), _AFFINE, describe="made up")


def _repository() -> dict[str, bytes]:
    files = {"LICENSE": b"made up for tests\n", "README.md": b"# KiTS19\n"}
    for number in (0, 1, 2, 3, 4, 6, 8):
        label = organ_and_tumour(number, _SHAPE)
        files[f"data/case_{number:05d}/segmentation.nii.gz"] = nifti(label, _AFFINE, describe="made up")
    files["data/case_00005/segmentation.nii.gz"] = _POINTER
    records = [
        {
            "case_id": f"case_{number:05d}",
            "gender": "female" if number % 2 else "male",
            "radiographic_size": 2.4,
            "malignant": number in _MALIGNANT,
            "tumor_histologic_subtype": "clear_cell_rcc" if number in _MALIGNANT else "oncocytoma",
            "last_preop_egfr": {"value": None, "days_before_nephrectomy": None},
            "voxel_spacing": {"x_spacing": 0.9, "y_spacing": 0.9, "z_spacing": 3.0},
        }
        for number in (*range(_SCANS), 210)
    ]
    return files | {"data/kits.json": json.dumps(records, indent=2).encode()}
