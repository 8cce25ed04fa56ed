"""MSD Task03: liver and tumour. One case has no tumour; as text ``liver_10`` comes before ``liver_2``."""

from __future__ import annotations

from automedbench_rehearsal.making.files import nifti
from automedbench_rehearsal.making.volumes import ct, decathlon, organ_and_tumour, volumes
from automedbench_rehearsal.upstreams import Upstream


def upstream() -> Upstream:
    """``Task03_Liver.tar``."""
    cases = {
        f"liver_{number}": volumes(ct("liver", number), organ_and_tumour(number, tumour=number != 1), (0.8, 0.8, 2.5))
        for number in (0, 1, 2, 10)
    }
    return decathlon(
        3,
        "Liver",
        cases,
        {"liver_132": nifti(ct("liver", 132))},
        modality={"0": "CT"},
        labels={"0": "background", "1": "liver", "2": "cancer"},
    )
