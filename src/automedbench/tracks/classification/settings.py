"""Settings of a classification card's metric."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from automedbench.tracks import MetricSettings


class ClassificationSettings(MetricSettings):
    """Metric settings of a classification card."""

    score_metric: Literal["accuracy", "balanced_accuracy"] = Field(
        "accuracy", description="which of the two is the quality; both are always reported"
    )
