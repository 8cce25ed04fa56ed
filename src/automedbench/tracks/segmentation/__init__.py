"""Segmentation: binary masks or a label map per patient; quality is macro Dice.

Macro Dice is the mean over targets of the target's mean Dice over completed cases; the task score multiplies it by the
completion rate (docs/specification.md, 10.1). A case is completed when every file is there and can be read to its
end. A file of the wrong shape scores 0 in every target of its case; an affine other than the scan's is a remark, since
voxels are compared one by one and nothing is resampled.
"""

from __future__ import annotations

from automedbench.tracks import Track, TrackText
from automedbench.tracks.segmentation import check, errors, score, settings, show, stage, verify

TRACK = Track(
    version=1,
    quality="macro_dice",
    case_quality="dice",
    settings=settings.Settings,
    stage=stage.stage,
    check=check.check,
    score=score.score,
    verify=verify.verify,
    show=show.show,
    text=TrackText("Segmentation", "Seg", "macro Dice over cases and targets"),
    mishaps=errors.MISHAPS,
    signals=errors.SIGNALS,
    staged_settings=("files",),
    quality_over_completed=True,
)
