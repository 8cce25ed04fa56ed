"""MSD Task05: prostate zones. Images are 4-D (T2 and ADC), label maps 3-D; one case lacks the transition zone."""

from __future__ import annotations

import numpy as np

from automedbench_rehearsal.making.files import nifti
from automedbench_rehearsal.making.volumes import SHAPE, decathlon, mri, organ_and_tumour, volumes
from automedbench_rehearsal.upstreams import Upstream


def upstream() -> Upstream:
    """``Task05_Prostate.tar``."""
    cases = {}
    for number in (0, 1, 2, 4):
        label = organ_and_tumour(number, tumour=number != 2)
        cases[f"prostate_{number:02d}"] = volumes(_channels(number), label, (0.62, 0.62, 3.6))
    return decathlon(
        5,
        "Prostate",
        cases,
        {"prostate_03": nifti(_channels(3))},
        tensorImageSize="4D",
        modality={"0": "T2", "1": "ADC"},
        labels={"0": "background", "1": "PZ", "2": "TZ"},
    )


def _channels(number: int) -> np.ndarray:
    return np.stack([mri("prostate", kind, number, shape=SHAPE) for kind in ("T2", "ADC")], axis=-1)
