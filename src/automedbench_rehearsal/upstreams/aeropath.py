"""AeroPath: a numbered folder per patient with a scan and two masks, which overlap where airways run through lung."""

from __future__ import annotations

import numpy as np

from automedbench_rehearsal.making.files import zipped
from automedbench_rehearsal.making.volumes import SMALL, affine, ball, ct, nifti
from automedbench_rehearsal.upstreams import Upstream


def upstream() -> Upstream:
    """``AeroPath.zip`` with patients whose numbers have another order as text."""
    files = {"AeroPath/README.md": b"made up for tests\n"}
    place = affine((0.75, 0.75, 0.5), "xy")
    for index, number in enumerate((1, 2, 10, 27)):
        lungs = ball(SMALL, (5, 7, 5), 3.5) | ball(SMALL, (11, 7, 5), 3.5)
        airways = np.zeros(SMALL, bool)
        airways[7:9, 6:8, :] = True
        airways[4 : 12 - index, 6:8, 4] = True
        for name, values in (("", ct(number, SMALL)), ("_label_lungs", lungs), ("_label_airways", airways)):
            data = nifti(values.astype(np.uint8) if name else values, place, describe="made up")
            files[f"AeroPath/{number}/{number}_CT_HR{name}.nii.gz"] = data
    return Upstream(files={"https://zenodo.org/records/10069289/files/AeroPath.zip": zipped(files)})
