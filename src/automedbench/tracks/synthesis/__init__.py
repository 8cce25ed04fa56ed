"""Synthesis: a CT volume per case, made from an MR or from a CT with fewer slices; quality is SSIM slice by slice.

SSIM of a case is the mean over its slices along z (7 × 7 uniform windows on values clipped to the card's HU window);
the task score is the mean over all expected cases, where a missing or unusable volume counts 0.
"""

from __future__ import annotations

from automedbench.tracks import Outputs, Signal, Track, TrackText
from automedbench.tracks.common.signals import find_remark, remark_signal
from automedbench.tracks.synthesis import check, effect, score, settings, show, stage

SMALL_RANGES = ((-1.0, 1.0), (0.0, 255.0))
"""Where values lie that were never turned back into HU (docs/specification.md, 10.7)."""


def value_range(outputs: Outputs) -> str | None:
    """All volumes lie in −1…1 or 0…255 where HU are requested, or are hardly HU."""
    return _never_rescaled(outputs) or find_remark(outputs, "hu_range", "values that are hardly HU")


def _never_rescaled(outputs: Outputs) -> str | None:
    ranges = [found for case in outputs.scored if (found := case.detail.get("range_hu"))]
    if not ranges or len(ranges) < len(outputs.scored):
        return None
    low, high = min(first for first, _ in ranges), max(last for _, last in ranges)
    for least, most in SMALL_RANGES:
        if least <= low and high <= most:
            return f"all {len(ranges)} volumes have values from {low:g} to {high:g}, HU are requested"
    return None


SIGNALS = (
    Signal("verify.value_range", "volumes in −1…1 or 0…255, or beyond HU", value_range),
    remark_signal("verify.blank", "volumes with one value everywhere", "constant_volume", "one value everywhere"),
)


TRACK = Track(
    version=2,
    quality="ssim",
    settings=settings.SynthesisSettings,
    stage=stage.stage,
    check=check.check,
    score=score.score,
    verify=score.verify,
    effect=effect.read_effect,
    show=show.show,
    text=TrackText("Image synthesis", "Synth", "mean SSIM over cases", "rounds whose medal is fail", medal_rate=True),
    signals=SIGNALS,
    staged_settings=("hu_window", "ssim_window", "slice_axis", "mask_min_voxels"),
    copies_of_inputs=frozenset({stage.MASK}),
)
