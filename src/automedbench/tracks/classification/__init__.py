"""Classification: one label per case; quality is the accuracy over all expected cases.

A missing, unknown or contradictory label is wrong, so that quality already counts what is missing and is not
multiplied by the completion rate. A card may ask for the balanced accuracy (mean recall of the classes) instead.
"""

from __future__ import annotations

from automedbench.tracks import Track, TrackText
from automedbench.tracks.classification import check, errors, score, settings, show, stage, verify

TRACK = Track(
    version=1,
    quality="accuracy",
    case_quality="correct",
    settings=settings.Settings,
    stage=stage.stage,
    check=check.check,
    score=score.score,
    verify=verify.verify,
    show=show.show,
    text=TrackText("Classification", "Class", "accuracy over all cases; a missing case is wrong"),
    mishaps=errors.MISHAPS,
    signals=errors.SIGNALS,
)
