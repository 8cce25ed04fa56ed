"""MSD Task08: hepatic vessels and tumours in one map. One case has no tumour; the numbers have gaps."""

from __future__ import annotations

from automedbench_rehearsal.making.files import nifti
from automedbench_rehearsal.making.volumes import ct, decathlon, organ_and_tumour, volumes
from automedbench_rehearsal.upstreams import Upstream


def upstream() -> Upstream:
    """``Task08_HepaticVessel.tar``."""
    cases = {}
    for number in (1, 2, 4, 11):
        label = organ_and_tumour(number, tumour=number != 4)
        label[::2][label[::2] == 1] = 0  # branches, not a ball
        cases[f"hepaticvessel_{number:03d}"] = volumes(ct("vessel", number), label, (0.9, 0.9, 4.0))
    return decathlon(
        8,
        "HepaticVessel",
        cases,
        {"hepaticvessel_003": nifti(ct("vessel", 3))},
        modality={"0": "CT"},
        labels={"0": "background", "1": "Vessel", "2": "Tumour"},
    )
