"""TotalSegmentator, small release: a folder per subject with a CT and one mask for each of 117 structures.

A structure that is not in a volume has an empty mask; numbers of subjects have gaps; the table has semicolons.
"""

from __future__ import annotations

import numpy as np

from automedbench_rehearsal.making.files import table, zipped
from automedbench_rehearsal.making.volumes import affine, ct, nifti
from automedbench_rehearsal.upstreams import Upstream

_FILE = "https://zenodo.org/records/10047263/files/Totalsegmentator_dataset_small_v201.zip"
_SIDES = (
    "adrenal_gland atrial_appendage autochthon brachiocephalic_vein clavicula common_carotid_artery femur "
    "gluteus_maximus gluteus_medius gluteus_minimus hip humerus iliac_artery iliac_vena iliopsoas kidney_cyst kidney "
    "lung_lower_lobe lung_upper_lobe scapula subclavian_artery"
)
_SINGLE = (
    "aorta brachiocephalic_trunk brain colon costal_cartilages duodenum esophagus gallbladder heart "
    "inferior_vena_cava liver lung_middle_lobe_right pancreas portal_vein_and_splenic_vein prostate pulmonary_vein "
    "sacrum skull small_bowel spinal_cord spleen sternum stomach superior_vena_cava thyroid_gland trachea "
    "urinary_bladder"
)
_CELL, _CELLS = 3, (5, 5, 5)
_SUBJECTS = (11, 58, 223)


def structures() -> list[str]:
    """The 117 names in alphabetical order."""
    levels = [*(f"C{n}" for n in range(1, 8)), *(f"L{n}" for n in range(1, 6)), "S1", *(f"T{n}" for n in range(1, 13))]
    return sorted(
        [
            *_SINGLE.split(),
            *(f"{name}_{side}" for name in _SIDES.split() for side in ("left", "right")),
            *(f"rib_{side}_{n}" for side in ("left", "right") for n in range(1, 13)),
            *(f"vertebrae_{level}" for level in levels),
        ]
    )


def upstream() -> Upstream:
    """``Totalsegmentator_dataset_small_v201.zip``."""
    shape = tuple(_CELL * number for number in _CELLS)
    place = affine((1.5, 1.5, 1.5), "xy")
    files = {}
    for index, number in enumerate(_SUBJECTS):
        folder = f"s{number:04d}"
        files[f"{folder}/ct.nii.gz"] = nifti(ct(number, shape), place, describe="made up")
        for cell, name in enumerate(structures()):
            mask = np.zeros(shape, np.uint8)
            if (cell + index) % 4:
                x, y, z = (_CELL * part for part in np.unravel_index(cell, _CELLS))
                mask[x : x + 2, y : y + 2 + index % 2, z : z + 2] = 1
            files[f"{folder}/segmentations/{name}.nii.gz"] = nifti(mask, place)
    rows = [
        {
            "image_id": f"s{number:04d}",
            "age": 60,
            "gender": "f",
            "institute": "A",
            "study_type": "ct body",
            "split": "test" if number == 58 else "train",
        }
        for number in _SUBJECTS
    ]
    return Upstream(files={_FILE: zipped({"meta.csv": table(rows, ";"), **files})})
