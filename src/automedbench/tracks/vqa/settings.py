"""Settings of a VQA card's metric."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from automedbench.metrics.answers import NORMALISER
from automedbench.tracks import MetricSettings


class VqaSettings(MetricSettings):
    """Metric settings of a VQA card."""

    scoring: Literal["lexical", "judge"] = Field(
        "lexical", description="texts by exact match and token F1, or by the answer judge; never mixed in one table"
    )
    open_score: Literal["max", "mean"] = Field(
        "max", description="of exact match and token F1: the larger, or half of each as in the public Full release"
    )
    judge_model: str | None = Field(None, description="model of the answer judge; required by scoring: judge")
    normaliser: Literal["amb-3"] = NORMALISER
    filler_share: float = Field(
        0.2, ge=0, le=1, description="'none', 'unknown' and the like are stand-ins beyond this share of all answers"
    )

    @model_validator(mode="after")
    def _judge_has_a_name(self) -> Self:
        if (self.scoring == "judge") != (self.judge_model is not None):
            raise ValueError("scoring: judge needs judge_model, and scoring: lexical must not have one")
        return self

    @property
    def needs_answer_judge(self) -> bool:
        """Texts are scored by the answer judge, so that its verdicts must be there first."""
        return self.scoring == "judge"
