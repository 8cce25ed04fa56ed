"""PanTS (Mini): scans and masks in two archives without a folder around the cases, and a spreadsheet.

Defects: the tumour flag is a number or text or empty; rows without masks (6) or without scan (9001); an empty mask of
the prostate (3); masks of pancreas and lesion overlap in part.
"""

from __future__ import annotations

import numpy as np

from automedbench_rehearsal.making.files import tarred, workbook
from automedbench_rehearsal.making.volumes import ball, ct, nifti
from automedbench_rehearsal.upstreams import Upstream

_STRUCTURES = (
    "adrenal_gland_left adrenal_gland_right aorta bladder celiac_artery colon common_bile_duct duodenum femur_left "
    "femur_right gall_bladder kidney_left kidney_right liver lung_left lung_right pancreas pancreas_body pancreas_head "
    "pancreas_tail pancreatic_duct pancreatic_lesion postcava prostate spleen stomach superior_mesenteric_artery veins"
)
_SHAPE = (16, 12, 12)
_LABELS = "https://www.cs.jhu.edu/~zongwei/dataset/PanTSMini_Label.tar.gz"
_COLUMNS = ("PanTS ID", "shape", "spacing", "sex", "age", "tumor?")
_RAS = np.array([[1.5, 0, 0, -12], [0, 1.5, 0, -9], [0, 0, 1.5, 40], [0, 0, 0, 1]])
_FLAGS = {1: 1, 2: 0, 3: "1", 4: 1, 5: None, 6: 0, 9001: 0}


def structures() -> list[str]:
    """The 28 names in alphabetical order."""
    return _STRUCTURES.split()


def upstream() -> Upstream:
    """The hub's files and the archive of masks."""
    scans, masks = {}, {}
    for number, flag in _FLAGS.items():
        case = f"PanTS_{number:08d}"
        if number <= 1000:
            scans[f"{case}/ct.nii.gz"] = nifti(ct(number, _SHAPE), _RAS)
        if number != 6:
            for name in structures():
                mask = nifti(_mask(name, number, tumour=bool(flag)), _RAS)
                masks[f"{case}/segmentations/{name}.nii.gz"] = mask
            masks[f"{case}/combined_labels.nii.gz"] = nifti(np.zeros(_SHAPE, np.uint8), _RAS)
    rows = [
        (f"PanTS_{number:08d}", "(16, 12, 12)", "(1.5, 1.5, 1.5)", "F", 61, flag) for number, flag in _FLAGS.items()
    ]
    return Upstream(
        files={_LABELS: tarred(masks, gz=True)},
        hubs={
            "BodyMaps/PanTSMini": {
                "README.md": b"made up for tests\n",
                "metadata.xlsx": workbook([_COLUMNS, *rows]),
                "PanTSMini_ImageTr_00000001_00001000.tar.gz": tarred(scans, gz=True),
            }
        },
    )


def _mask(name: str, number: int, *, tumour: bool) -> np.ndarray:
    mask = np.zeros(_SHAPE, np.uint8)
    if name.startswith("pancrea"):
        lesion = ball(_SHAPE, (10, 10, 6), 1.6)
        if name == "pancreatic_lesion":
            mask[lesion] = tumour
        elif name == "pancreas":
            mask[6:11, 9:12, 4:9] = 1  # holds a part of the lesion
    elif not (name == "prostate" and number == 3):
        x, y, z = np.unravel_index(structures().index(name), (8, 4, 3))
        mask[2 * x : 2 * x + 2, 2 * y : 2 * y + 2, 4 * z : 4 * z + 2 + number % 2] = 1
    return mask
