"""Settings of a detection card's metric."""

from __future__ import annotations

from pydantic import Field

from automedbench.tracks import MetricSettings


class DetectionSettings(MetricSettings):
    """Metric settings of a detection card."""

    iou_threshold: float = Field(0.5, gt=0, le=1, description="a prediction matches from this overlap on")
    max_detections: int = Field(100, ge=1, description="best-scored boxes that count, per image and class")
