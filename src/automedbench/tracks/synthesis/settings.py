"""Settings of a synthesis card's metric."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from automedbench.tracks import MetricSettings

Window = tuple[float, float]


class SynthesisSettings(MetricSettings):
    """Metric settings of a synthesis card; what decides the score has no default."""

    hu_window: Window = Field(description="both volumes are clipped to it; its width is SSIM's data range")
    ssim_window: int = Field(ge=3, description="side of the uniform window in voxels, odd")
    slice_axis: Literal[2] = Field(description="axis of the slices: staged volumes have it upwards")
    mask_min_voxels: int = Field(ge=1, description="slices with fewer voxels in the mask are left out of the SSIM")
    soft_window: Window = Field((-160.0, 240.0), description="soft-tissue window of a diagnostic SSIM")
    plausible_hu: Window = Field((-2500.0, 5000.0), description="values outside are remarked on")

    @field_validator("hu_window", "soft_window", "plausible_hu")
    @classmethod
    def _ordered(cls, window: Window) -> Window:
        if not window[0] < window[1]:
            raise ValueError("must be [lowest, highest]")
        return window

    @field_validator("ssim_window")
    @classmethod
    def _odd(cls, window: int) -> int:
        if window % 2 == 0:
            raise ValueError("must be odd")
        return window

    @property
    def data_range(self) -> float:
        """R of SSIM and PSNR, in HU."""
        return self.hu_window[1] - self.hu_window[0]
