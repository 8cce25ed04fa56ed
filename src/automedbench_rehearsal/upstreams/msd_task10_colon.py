"""MSD Task10: colon cancer. Label maps are float in some cases; one case has no cancer."""

from __future__ import annotations

import numpy as np

from automedbench_rehearsal.making.files import ball, nifti
from automedbench_rehearsal.making.volumes import SHAPE, ct, decathlon, volumes
from automedbench_rehearsal.upstreams import Upstream


def upstream() -> Upstream:
    """``Task10_Colon.tar``."""
    cases = {}
    for index, number in enumerate((1, 5, 7, 8)):
        cancer = ball(SHAPE, (6 + index, 7, 5), 2.5) & (number != 7)
        label = cancer.astype(np.float32 if number == 5 else np.uint8)
        cases[f"colon_{number:03d}"] = volumes(ct("colon", number), label, (0.75, 0.75, 5.0))
    return decathlon(
        10,
        "Colon",
        cases,
        {"colon_003": nifti(ct("colon", 3))},
        modality={"0": "CT"},
        labels={"0": "background", "1": "colon cancer primaries"},
    )
