"""BCCD: a git repository in Pascal VOC's layout.

Defects: two images with a box of no area, as upstream; coordinates from 1 on.
"""

from __future__ import annotations

import numpy as np

from automedbench_rehearsal.making.files import generator
from automedbench_rehearsal.making.pictures import picture, scene
from automedbench_rehearsal.upstreams import Upstream

WIDTH, HEIGHT = 64, 48
DEGENERATE = (338, 343)
_SPLITS = {"test": (7, 11, 338, 343), "train": (0, 1), "val": (2,)}


def upstream() -> Upstream:
    """The repository with the parts that are read, and a script that is not."""
    numbers = sorted(number for part in _SPLITS.values() for number in part)
    files: dict[str, bytes] = {"LICENSE": b"MIT License\n", "plot.py": b"print('not data')\n"}
    for number in numbers:
        pixels = 255 - scene((HEIGHT, WIDTH), "bccd", number, colours=3) // 2
        files[f"BCCD/JPEGImages/BloodImage_{number:05d}.jpg"] = picture(pixels, "JPEG", quality=90)
        files[f"BCCD/Annotations/BloodImage_{number:05d}.xml"] = _annotation(number)
    parts = {**_SPLITS, "trainval": _SPLITS["train"] + _SPLITS["val"]}
    for name, chosen in parts.items():
        lines = "".join(f"BloodImage_{number:05d}\n" for number in chosen)
        files[f"BCCD/ImageSets/Main/{name}.txt"] = lines.encode()
    return Upstream(repositories={"https://github.com/Shenggan/BCCD_Dataset": files})


def _annotation(number: int) -> bytes:
    chance = generator("bccd", number)
    boxes = [(name, *_corners(chance)) for name in ("WBC", "RBC", "RBC", "Platelets")]
    if number in DEGENERATE:
        boxes.append(("RBC", 30, 20, 30, 20))
    objects = "".join(
        f"<object><name>{name}</name><pose>Unspecified</pose><truncated>0</truncated><difficult>0</difficult><bndbox>"
        f"<xmin>{x1}</xmin><ymin>{y1}</ymin><xmax>{x2}</xmax><ymax>{y2}</ymax></bndbox></object>"
        for name, x1, y1, x2, y2 in boxes
    )
    size = f"<size><width>{WIDTH}</width><height>{HEIGHT}</height><depth>3</depth></size>"
    return (
        f'<annotation verified="no"><folder>JPEGImages</folder><filename>BloodImage_{number:05d}.jpg</filename>'
        f"{size}<segmented>0</segmented>{objects}</annotation>\n"
    ).encode()


def _corners(chance: np.random.Generator) -> tuple[int, int, int, int]:
    left, top = int(chance.integers(1, 40)), int(chance.integers(1, 28))
    return left, top, left + int(chance.integers(6, 20)), top + int(chance.integers(6, 18))
