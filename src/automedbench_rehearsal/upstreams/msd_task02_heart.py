"""MSD Task02: left atrium on MRI. Headers with a slope and intercept of 0."""

from __future__ import annotations

from automedbench_rehearsal.making.files import nifti
from automedbench_rehearsal.making.volumes import decathlon, mri, organ_and_tumour, unscaled, volumes
from automedbench_rehearsal.upstreams import Upstream


def upstream() -> Upstream:
    """``Task02_Heart.tar``."""
    cases = {}
    for number in (3, 4, 7, 14):
        image, label = volumes(mri("atrium", number), organ_and_tumour(number, tumour=False), (1.25, 1.25, 1.37))
        cases[f"la_{number:03d}"] = (unscaled(image), unscaled(label))
    return decathlon(
        2,
        "Heart",
        cases,
        {"la_001": nifti(mri("atrium", 1))},
        modality={"0": "MRI"},
        labels={"0": "background", "1": "left atrium"},
    )
