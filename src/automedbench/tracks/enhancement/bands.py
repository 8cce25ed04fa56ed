"""Baseline bands: letters A, B, C, F for a run's mean quality, frozen beside the private data when a task is staged.

Construction: docs/specification.md, 10.2. The letters are diagnostics and may carry the medals; they
never change a score.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from automedbench.base.records import Model, Number
from automedbench.tracks.enhancement.settings import Baseline, LegacyScale

BANDS = "baseline_bands.json"
Letter = Literal["A", "B", "C", "F"]
RATINGS: dict[Letter, int] = {"A": 3, "B": 2, "C": 1, "F": 0}
"""Letters as the numbers that metrics and medals use."""
# (letter, SSIM above the anchor, dB above the anchor), best first.
_STEPS: tuple[tuple[Letter, float, float], ...] = (("A", 0.02, 1.0), ("B", -0.02, -1.0), ("C", -0.05, -3.0))
PASS_BELOW_CLASSICAL = 0.02


class Band(Model):
    """Both minima must be reached."""

    ssim_min: Number
    psnr_min: Number


class BaselineBands(Model):
    """``private/baseline_bands.json``: simple methods' means over the staged cases, and the bands made from them."""

    schema_: Literal["automedbench/baseline-bands/1"] = Field("automedbench/baseline-bands/1", alias="schema")
    task: str
    source: Literal["published", "computed"]
    baselines: dict[str, Baseline]
    recipes: dict[str, str] = Field(default_factory=dict, description="how a baseline was computed here")
    classical: str
    anchor: str
    bands: dict[Letter, Band]

    @property
    def classical_ssim(self) -> float:
        """Mean SSIM of the classical baseline."""
        return self.baselines[self.classical].mean_ssim

    @property
    def pass_threshold(self) -> float:
        """SSIM from which a case passes."""
        return round(self.classical_ssim - PASS_BELOW_CLASSICAL, 4)


def make_bands(
    task: str,
    baselines: dict[str, Baseline],
    *,
    classical: str,
    source: Literal["published", "computed"],
    recipes: dict[str, str] | None = None,
) -> BaselineBands:
    """Bands around the anchor: the better by mean SSIM of the classical and, if given, the ``neural`` one."""
    anchor = classical
    if "neural" in baselines and baselines["neural"].mean_ssim >= baselines[classical].mean_ssim:
        anchor = "neural"
    best = baselines[anchor]
    bands = {
        letter: Band(
            ssim_min=round(_reachable(best.mean_ssim, ssim_step), 4), psnr_min=round(best.mean_psnr + psnr_step, 3)
        )
        for letter, ssim_step, psnr_step in _STEPS
    }
    return BaselineBands(
        task=task,
        source=source,
        baselines=baselines,
        recipes=recipes or {},
        classical=classical,
        anchor=anchor,
        bands=bands,
    )


def rate(bands: BaselineBands, mean_ssim: float | None, mean_psnr: float | None, *, all_valid: bool) -> Letter:
    """The first letter whose minima are both reached; F for undefined means and for any case missing or invalid."""
    if not all_valid or mean_ssim is None or mean_psnr is None:
        return "F"
    if not (math.isfinite(mean_ssim) and math.isfinite(mean_psnr)):
        return "F"
    for letter, band in bands.bands.items():
        if mean_ssim >= band.ssim_min and mean_psnr >= band.psnr_min:
            return letter
    return "F"


def legacy_clinical(
    scale: LegacyScale, mean_psnr: float | None, mean_ssim: float | None, mean_lpips: float | None
) -> float | None:
    """The public implementation's former score, mean of three normalised means; null when one of them is undefined."""
    if mean_psnr is None or mean_ssim is None or mean_lpips is None:
        return None
    parts = (
        (mean_psnr - scale.psnr_low) / (scale.psnr_high - scale.psnr_low),
        mean_ssim,
        1 - mean_lpips / scale.lpips_max,
    )
    return round(sum(min(1.0, max(0.0, part)) for part in parts) / 3, 4)


def _reachable(anchor_ssim: float, step: float) -> float:
    """A minimum that no image could reach lies half way between anchor and 1 instead."""
    return anchor_ssim + step if anchor_ssim + step < 1 else (1 + anchor_ssim) / 2
