"""MSD Task09: spleen. As text ``spleen_10`` comes before ``spleen_2``."""

from __future__ import annotations

from automedbench_rehearsal.making.files import nifti
from automedbench_rehearsal.making.volumes import ct, decathlon, organ_and_tumour, volumes
from automedbench_rehearsal.upstreams import Upstream


def upstream() -> Upstream:
    """``Task09_Spleen.tar``."""
    cases = {
        f"spleen_{number}": volumes(ct("spleen", number), organ_and_tumour(number, tumour=False), (0.8, 0.8, 5.0))
        for number in (2, 3, 10)
    }
    return decathlon(
        9,
        "Spleen",
        cases,
        {"spleen_1": nifti(ct("spleen", 1))},
        modality={"0": "CT"},
        labels={"0": "background", "1": "spleen"},
    )
