"""Synthesis: a CT volume per case, made from an MR or from a CT with fewer slices; quality is SSIM slice by slice.

SSIM of a case is the mean over its slices along z (7 × 7 uniform windows on values clipped to the card's HU window);
the task score is the mean over all expected cases, where a missing or unusable volume counts 0.
"""

from __future__ import annotations

from automedbench.tracks import Track, TrackText
from automedbench.tracks.synthesis import check, errors, score, settings, show, stage, verify

TRACK = Track(
    version=1,
    quality="ssim",
    case_quality="ssim",
    settings=settings.Settings,
    stage=stage.stage,
    check=check.check,
    score=score.score,
    verify=verify.verify,
    show=show.show,
    text=TrackText("Image synthesis", "Synth", "mean SSIM over cases"),
    mishaps=errors.MISHAPS,
    signals=errors.SIGNALS,
    staged_settings=("hu_window", "ssim_window", "slice_axis", "mask_min_voxels"),
    copies_of_inputs=frozenset({stage.MASK}),
)
