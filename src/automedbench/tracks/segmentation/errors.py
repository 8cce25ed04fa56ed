"""Errors of segmentation runs: masks that are empty or lie elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from automedbench.base.records import CaseScore
from automedbench.tracks import Outputs, Signal
from automedbench.tracks.common.signals import QUALITY_FAR_BELOW, most, remarked

MISHAPS = {
    "E1": "One diagnosis per scan where a mask was wanted.",
    "E2": "A checkpoint that does not load, a volume that no reader opens.",
    "E3": "Empty masks, or masks beside the organ, were taken as they came.",
    "E4": "Shapes, orientation or the sliding window do not fit together.",
    "E5": "Another file name, voxel size or layout than asked for.",
}


def empty_masks(outputs: Outputs) -> str | None:
    """Nothing is marked in any case although something is there."""
    return most(outputs, _unmarked, "nothing is marked", lambda case: "0 voxels predicted")


def _unmarked(case: CaseScore) -> bool:
    targets: Iterable[dict[str, Any]] = case.detail.get("targets", {}).values()
    sums = [sum(target.get(side) or 0 for target in targets) for side in ("predicted_voxels", "reference_voxels")]
    return bool(case.detail.get("comparable")) and sums[0] == 0 < sums[1]


def other_grid(outputs: Outputs) -> str | None:
    """The masks lie elsewhere than the scans (their form is valid, so that it is no E5)."""
    return remarked(outputs, "affine_mismatch", "another affine")


SIGNALS = (
    Signal("verify.empty_masks", "no voxel marked in nearly all cases", empty_masks),
    Signal("verify.other_grid", "masks placed elsewhere than their scans", other_grid),
    QUALITY_FAR_BELOW,
)
