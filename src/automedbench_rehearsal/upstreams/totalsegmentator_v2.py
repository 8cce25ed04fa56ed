"""TotalSegmentator v2: a folder per subject with a CT and masks that synthesis leaves alone; gaps, a thin slab."""

from __future__ import annotations

from automedbench_rehearsal.making.files import zipped
from automedbench_rehearsal.making.volumes import affine, ct, nifti
from automedbench_rehearsal.upstreams import Upstream

URL = "https://zenodo.org/records/10047292/files/Totalsegmentator_dataset_v201.zip"
SUBJECTS = ("s0000", "s0003", "s0024", "s0700", "s1428")
SLAB = "s0011"


def upstream() -> Upstream:
    """Five subjects and one of eight slices; one volume runs from left to right and from head to feet."""
    files = {"meta.csv": b"\xef\xbb\xbfimage_id;age;gender;institute;study_type;split\n"}
    for number, name in enumerate(SUBJECTS):
        values, place = ct(number), affine((1.5, 1.5, 1.5), "xz" if number == 1 else "")
        if number == 1:
            values = values[::-1, :, ::-1]
        files[f"{name}/ct.nii.gz"] = nifti(values, place, describe=f"TotalSegmentator {name}")
        files[f"{name}/segmentations/liver.nii.gz"] = nifti((values > 500).astype("u1"), place)
        files["meta.csv"] += f"{name};{50 + number};m;A;ct thorax;train\n".encode()
    files[f"{SLAB}/ct.nii.gz"] = nifti(ct(9, (64, 64, 8)), affine((1.5, 1.5, 1.5)))
    return Upstream(files={URL: zipped(files)})
