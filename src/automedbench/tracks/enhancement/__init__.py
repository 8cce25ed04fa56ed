"""Enhancement: one float array per case (denoised, or with twice the resolution); quality is mean SSIM.

SSIM is cut to [0, 1] per case and averaged over all expected cases; a missing or unusable output counts 0, so that the
mean is quality × completion rate already. PSNR, LPIPS, pass rate and rating stand beside it and change nothing.
"""

from __future__ import annotations

from automedbench.tracks import Track, TrackText
from automedbench.tracks.enhancement import check, errors, lpips, score, settings, show, stage, verify

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
    text=TrackText("Image enhancement", "Enh", "mean SSIM over cases"),
    mishaps=errors.MISHAPS,
    signals=errors.SIGNALS,
    preflight=lpips.preflight,
    staged_settings=("data_range", "intensity_range", "output_shape", "ssim_offset", "baselines", "classical"),
)
