"""Medical Segmentation Decathlon, pancreas: images of both parts are used; macOS leftovers beside them."""

from __future__ import annotations

import json

from automedbench_rehearsal.making.files import nifti, tarred
from automedbench_rehearsal.making.scans import ct, grid
from automedbench_rehearsal.upstreams import Upstream

URL = "https://msd-for-monai.s3-us-west-2.amazonaws.com/Task07_Pancreas.tar"
TRAINING, TEST = ("pancreas_001", "pancreas_004", "pancreas_290"), ("pancreas_002", "pancreas_181")
THIN = "pancreas_391"


def upstream() -> Upstream:
    """Three training and two test patients, and one with too few slices."""
    top = "Task07_Pancreas"
    listed = {
        "name": "Pancreas",
        "labels": {"0": "background", "1": "pancreas", "2": "cancer"},
        "numTraining": len(TRAINING),
        "training": [{"image": f"./imagesTr/{name}.nii.gz", "label": f"./labelsTr/{name}.nii.gz"} for name in TRAINING],
        "test": [f"./imagesTs/{name}.nii.gz" for name in (*TEST, THIN)],
    }
    files = {f"{top}/dataset.json": json.dumps(listed).encode(), f"._{top}": b"\0\5\26\7"}
    for number, name in enumerate((*TRAINING, *TEST, THIN)):
        part = "imagesTr" if name in TRAINING else "imagesTs"
        values = ct(number, (64, 64, 20) if name == THIN else (64, 64, 32 + number))
        affine = grid((0.8, 0.8, 2.5), flip="x")
        files[f"{top}/{part}/{name}.nii.gz"] = nifti(values, affine, describe=f"5.0.10 {name}")
        files[f"{top}/{part}/._{name}.nii.gz"] = b"\0\5\26\7resource fork"
        if part == "imagesTr":
            files[f"{top}/labelsTr/{name}.nii.gz"] = nifti((values > 500).astype("u1"), affine)
    return Upstream(files={URL: tarred(files)})
