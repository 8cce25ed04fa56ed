"""Settings of an enhancement card: ranges, shape, LPIPS, published baselines."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from automedbench.base.records import Model, Number
from automedbench.tracks import MetricSettings


class BaselineQuality(Model):
    """Mean quality of a simple method over the staged cases."""

    mean_ssim: Number
    mean_psnr: Number


class EnhancementSettings(MetricSettings):
    """Metric settings of an enhancement card."""

    data_range: float | None = Field(
        None, gt=0, description="range of intensities for SSIM and PSNR; null: maximum − minimum of each reference"
    )
    intensity_range: tuple[float, float] | None = Field(
        None, description="plausible values; an output that leaves it by a quarter of its width gets a remark"
    )
    output_shape: tuple[int, int] | None = Field(
        None, description="height and width of every output; null: each case as its reference is"
    )
    lpips: Literal["auto", "off"] = Field("auto", description="auto: where package and weights are there, else null")
    baselines: dict[str, BaselineQuality] = Field(
        default_factory=dict, description="published means; none: computed when the task is staged"
    )
    classical: str = Field("classical", description="which of the baselines the pass rate is measured against")

    @model_validator(mode="after")
    def _consistent(self) -> EnhancementSettings:
        if self.intensity_range is not None and self.intensity_range[1] <= self.intensity_range[0]:
            raise ValueError("intensity_range must be two rising numbers")
        if self.baselines and self.classical not in self.baselines:
            raise ValueError(f"baselines hold no '{self.classical}', which classical names")
        return self
