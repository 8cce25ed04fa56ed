"""Detection: boxes with class and score per image; quality is mAP@0.5 over all expected images.

The metric is COCO's AP at one IoU threshold, averaged over the classes that have truth. A missing or unreadable
image has no predictions, so its truth boxes are misses; the caller multiplies by the completion rate on top.
"""

from __future__ import annotations

from dataclasses import replace

from automedbench.tracks import Outputs, Signal, Track, TrackText
from automedbench.tracks.common.signals import QUALITY_FAR_BELOW, find_in_most, remark_signal
from automedbench.tracks.detection import check, effect, score, settings, show, stage


def no_boxes(outputs: Outputs) -> str | None:
    """Detect a submission without boxes on images that have objects."""
    return find_in_most(
        _with_objects(outputs),
        lambda case: not case.metrics.get("n_predictions"),
        "no box",
        lambda case: f"0 boxes, {case.metrics.get('n_truth') or 0:g} objects",
    )


def _with_objects(outputs: Outputs) -> Outputs:
    cases = [case for case in outputs.detail.cases if case.metrics.get("n_truth")]
    return replace(outputs, detail=outputs.detail.model_copy(update={"cases": cases}))


def zero_scores(outputs: Outputs) -> str | None:
    """Every box has the score 0."""
    scores = [box.get("score") for case in outputs.scored for box in case.detail.get("boxes", [])]
    if not scores or any(scores):
        return None
    return f"all {len(scores)} boxes have the score 0"


SIGNALS = (
    Signal("verify.no_boxes", "no box on nearly all images with objects", no_boxes),
    remark_signal(
        "verify.boxes_outside",
        "boxes outside the image in nearly all files",
        "out_of_bounds",
        "boxes outside the image",
    ),
    Signal("verify.zero_scores", "every box has the score 0", zero_scores),
    QUALITY_FAR_BELOW,
)


TRACK = Track(
    version=2,
    quality="map50",
    case_quality="f1",
    quality_is_mean=False,  # mAP is of all boxes together
    settings=settings.DetectionSettings,
    stage=stage.stage,
    check=check.check,
    score=score.score,
    verify=score.verify,
    effect=effect.read_effect,
    show=show.show,
    text=TrackText("Detection", "Det", "mAP at IoU 0.5 over all images, times the completion rate"),
    signals=SIGNALS,
)
