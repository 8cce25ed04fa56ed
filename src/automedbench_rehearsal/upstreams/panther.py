"""PANTHER: compressed MetaImage with oblique axes, on diagnostic T1 (task 1) and MR-Linac T2 (task 2).

Labels are 1 tumour, 2 pancreas. Task 1 also has unlabelled images; one subject of task 2 has no tumour.
"""

from __future__ import annotations

import numpy as np

from automedbench_rehearsal.making.files import zipped
from automedbench_rehearsal.making.volumes import SMALL, metaimage, mri, organ_and_tumour
from automedbench_rehearsal.upstreams import Upstream

_RECORD = "https://zenodo.org/records/15192302/files"


def upstream() -> Upstream:
    """Both archives."""
    first: dict[str, bytes] = {}
    for number in (10000, 10003, 10004, 10011):
        first |= _subject(f"{number}_0001", number, _oblique(8, (1.2, 1.2, 3.0)))
    first["ImagesTr_unlabeled/10001_0001_0000.mha"] = metaimage(_image(10001), _oblique(8, (1.2, 1.2, 3.0)))
    second: dict[str, bytes] = {}
    for number in (10303, 10311, 10320):
        second |= _subject(str(number), number, _oblique(-5, (1.7, 1.7, 2.0)), tumour=number != 10320)
    return Upstream(
        files={f"{_RECORD}/PANTHER_Task1.zip": zipped(first), f"{_RECORD}/PANTHER_Task2.zip": zipped(second)}
    )


def _subject(name: str, number: int, place: np.ndarray, *, tumour: bool = True) -> dict[str, bytes]:
    codes = np.array([0, 2, 1], np.uint8)  # pancreas and tumour the other way round
    return {
        f"ImagesTr/{name}_0000.mha": metaimage(_image(number), place),
        f"LabelsTr/{name}.mha": metaimage(codes[organ_and_tumour(number, tumour=tumour)], place),
    }


def _image(number: int) -> np.ndarray:
    return mri(number, SMALL)


def _oblique(degrees: float, spacing: tuple[float, float, float]) -> np.ndarray:
    """Axes to the left, to the back and upwards, tilted about the first one."""
    angle = np.deg2rad(degrees)
    cosine, sine = np.cos(angle), np.sin(angle)
    turn = np.array([[-1, 0, 0], [0, -cosine, -sine], [0, -sine, cosine]])
    matrix = np.eye(4)
    matrix[:3, :3] = turn * spacing
    matrix[:3, 3] = (SMALL[0], 40.5, -17.0)
    return matrix
