"""Detection: boxes with class and score per image; quality is mAP@0.5 over all expected images.

The metric is COCO's AP at one IoU threshold, averaged over the classes that have truth. A missing or unreadable
image has no predictions, so its truth boxes are misses; the caller multiplies by the completion rate on top.
"""

from __future__ import annotations

from automedbench.tracks import Track, TrackText
from automedbench.tracks.detection import check, errors, score, settings, show, stage, verify

TRACK = Track(
    version=1,
    quality="map50",
    case_quality="f1",
    settings=settings.Settings,
    stage=stage.stage,
    check=check.check,
    score=score.score,
    verify=verify.verify,
    show=show.show,
    text=TrackText("Detection", "Det", "mAP at IoU 0.5 over all images, times the completion rate"),
    mishaps=errors.MISHAPS,
    signals=errors.SIGNALS,
)
