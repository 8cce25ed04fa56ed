"""SynthRAD2025, task 1: compressed MetaImage triplets in LPS below Task1/<region>/<patient>, and an overview folder."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench_rehearsal.making.files import zipped
from automedbench_rehearsal.making.pictures import picture, scene
from automedbench_rehearsal.making.volumes import affine, ct, metaimage, mri, outline
from automedbench_rehearsal.upstreams import Upstream

URL = "https://zenodo.org/records/15373853/files/synthRAD2025_Task1_Train.zip"
TOP = "synthRAD2025_Task1_Train/Task1"
PATIENTS = ("1HNA001", "1HNA012", "1HNB034", "1HNC117")
SHORT = "1HNC120"


def upstream() -> Upstream:
    """Four patients of head and neck, one with too few slices, and one of the abdomen."""
    files = {f"{TOP}/HN/overview/{name}_train.png": picture(scene((20, 30), name)) for name in PATIENTS}
    for number, name in enumerate((*PATIENTS, SHORT, "1ABA005")):
        shape = (64, 64, 12) if name == SHORT else (64, 64, 32 + number)
        # Stored as scanners do, to the left and to the back; one patient lay at an angle.
        place = affine((1.0, 1.0, 3.0), "xy")
        if name == "1HNB034":
            place = _turned(0.1) @ place
        volumes: dict[str, NDArray[Any]] = {
            "mr": mri(number, shape),
            "ct": ct(number, shape),
            "mask": outline(number, shape),
        }
        for role, values in volumes.items():
            files[f"{TOP}/{name[1:3]}/{name}/{role}.mha"] = metaimage(values[::-1, ::-1], place)
    return Upstream(files={URL: zipped(files, compress=False)})


def _turned(angle: float) -> NDArray[np.float64]:
    """A turn about the body axis, in radians."""
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return turn
