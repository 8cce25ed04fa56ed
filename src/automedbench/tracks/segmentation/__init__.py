"""Segmentation: binary masks or a label map per patient; quality is macro Dice.

Macro Dice is the mean over targets of the target's mean Dice over completed cases; the task score multiplies it by the
completion rate (docs/specification.md, 10.1). A case is completed when every file is there and can be read to its
end. A file of the wrong shape scores 0 in every target of its case; an affine other than the scan's is a remark, since
voxels are compared one by one and nothing is resampled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from automedbench.base.records import CaseScore
from automedbench.tracks import Outputs, Signal, Track, TrackText
from automedbench.tracks.common.signals import QUALITY_FAR_BELOW, find_in_most, remark_signal
from automedbench.tracks.segmentation import check, effect, score, settings, show, stage


def empty_masks(outputs: Outputs) -> str | None:
    """Detect empty masks in all cases although their truth is not empty."""
    return find_in_most(outputs, _unmarked, "nothing is marked", lambda case: "0 voxels predicted")


def _unmarked(case: CaseScore) -> bool:
    targets: Iterable[dict[str, Any]] = case.detail.get("targets", {}).values()
    sums = [sum(target.get(side) or 0 for target in targets) for side in ("predicted_voxels", "reference_voxels")]
    return bool(case.detail.get("comparable")) and sums[0] == 0 < sums[1]


SIGNALS = (
    Signal("verify.empty_masks", "no voxel marked in nearly all cases", empty_masks),
    remark_signal("verify.other_grid", "masks placed elsewhere than their scans", "affine_mismatch", "another affine"),
    QUALITY_FAR_BELOW,
)


TRACK = Track(
    version=3,
    quality="macro_dice",
    case_quality="dice",
    settings=settings.SegmentationSettings,
    stage=stage.stage,
    check=check.check,
    score=score.score,
    verify=score.verify,
    effect=effect.read_effect,
    show=show.show,
    text=TrackText("Segmentation", "Seg", "macro Dice over cases and targets"),
    signals=SIGNALS,
    staged_settings=("files",),
    quality_over_completed=True,
)
