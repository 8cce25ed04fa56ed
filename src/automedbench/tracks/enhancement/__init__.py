"""Enhancement: one float array per case (denoised, or with twice the resolution); quality is mean SSIM.

SSIM is cut to [0, 1] per case and averaged over all expected cases; a missing or unusable output counts 0, so that the
mean is quality × completion rate already. PSNR, LPIPS, pass rate and rating stand beside it and change nothing.
"""

from __future__ import annotations

from automedbench.base.records import CaseScore
from automedbench.tracks import Outputs, Signal, Track, TrackText
from automedbench.tracks.common.signals import FEWEST, find_in_most, find_remark
from automedbench.tracks.enhancement import check, effect, score, settings, show, stage


def implausible_values(outputs: Outputs) -> str | None:
    """Values far outside the plausible range, or all within −1…1 where the scale is far wider."""
    found = find_remark(outputs, "range", "values outside the plausible range")
    return found or find_in_most(outputs, _normalised, "values that were never scaled back", _extremes)


def _normalised(case: CaseScore) -> bool:
    value_range, scale = _range(case), case.metrics.get("data_range")
    return value_range is not None and scale is not None and scale >= 10 and -1 <= value_range[0] <= value_range[1] <= 1


def blank_images(outputs: Outputs) -> str | None:
    """One value everywhere."""
    return find_in_most(outputs, _blank, "one value everywhere", _extremes)


def _blank(case: CaseScore) -> bool:
    value_range = _range(case)
    return value_range is not None and value_range[0] == value_range[1]


def _range(case: CaseScore) -> tuple[float, float] | None:
    low, high = case.detail.get("output_min"), case.detail.get("output_max")
    return None if low is None or high is None else (low, high)


def _extremes(case: CaseScore) -> str:
    return f"values from {case.detail.get('output_min'):g} to {case.detail.get('output_max'):g}"


def mixed_up(outputs: Outputs) -> str | None:
    """Outputs fit the next case's reference as well as their own."""
    own, other = outputs.detail.metrics.get("mean_ssim"), outputs.detail.metrics.get("control_ssim")
    if own is None or other is None or other < own or len(outputs.scored) < FEWEST:
        return None
    return f"outputs fit the next case as well as their own: SSIM {other:.4f} against {own:.4f}"


def below_every_band(outputs: Outputs) -> str | None:
    """Valid, but below the band of every baseline."""
    if outputs.detail.metrics.get("rating") != 0 or not outputs.submission.all_valid:
        return None
    return f"{outputs.detail.quality_name} {outputs.detail.quality:.4f}, below the band of every baseline (rating F)"


SIGNALS = (
    Signal("verify.value_range", "values off the plausible scale", implausible_values),
    Signal("verify.blank", "images with one value everywhere", blank_images),
    Signal("verify.mixed_up", "outputs that fit another case as well", mixed_up),
    Signal("verify.far_below", "quality far below okay", below_every_band),
)


TRACK = Track(
    version=2,
    quality="ssim",
    settings=settings.EnhancementSettings,
    stage=stage.stage,
    check=check.check,
    score=score.score,
    verify=score.verify,
    effect=effect.read_effect,
    show=show.show,
    text=TrackText("Image enhancement", "Enh", "mean SSIM over cases", "repeats that could not be scored"),
    signals=SIGNALS,
    staged_settings=("data_range", "intensity_range", "output_shape", "baselines", "classical"),
)
