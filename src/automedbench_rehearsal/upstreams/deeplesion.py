"""DeepLesion's first three archives: PNG of 16 bits in a folder per series.

Defects of upstream that are here: slices of one name in all folders, several studies and series of a patient, a slice
that is not square, values below -1024 HU, and a patient whom the card leaves out.
"""

from __future__ import annotations

import numpy as np

from automedbench_rehearsal.making.files import zipped
from automedbench_rehearsal.making.pictures import picture
from automedbench_rehearsal.making.volumes import body, round_field
from automedbench_rehearsal.upstreams import Upstream

_BOX = "https://nihcc.box.com/shared/static/"
# Archive → series → numbers of its slices.
_ARCHIVES = {
    "sp5y2k799v4x1x77f7w1aqp26uyfq7qz.zip": {
        "000001_01_01": (103, 106),
        "000001_02_01": (8, 10),
        "000002_01_01": (103, 105),
    },
    "l9e1ys5e48qq8s409ua3uv6uwuko0y5c.zip": {"000080_01_01": (1, 3), "000099_03_02": (55, 57)},
    "48jotosvbrw0rlke4u88tzadmabcp72r.zip": {"000149_01_01": (103, 105), "000160_01_01": (103, 105)},
}


def upstream() -> Upstream:
    """Six patients, five of whom the card takes."""
    files = {}
    for archive, series in _ARCHIVES.items():
        content = {
            f"Images_png/{name}/{number:03d}.png": _slice(name, number)
            for name, (first, last) in series.items()
            for number in range(first, last)
        }
        files[_BOX + archive] = zipped(content)
    return Upstream(files=files)


def _slice(series: str, number: int) -> bytes:
    shape = (48, 44, 3) if series == "000099_03_02" else (48, 48, 3)
    hu = round_field(body(shape, series, number), -3024)[:, :, 1].T
    return picture((hu.astype(np.int32) + 32768).astype(np.uint16))
