"""Metric settings of a report card: which components make the score, which text is scored, what a file must hold."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field, field_validator, model_validator

from automedbench.base.records import Model
from automedbench.tracks import MetricSettings

Component = Literal[
    "BLEU",
    "METEOR",
    "ROUGE_L",
    "F1RadGraph",
    "micro_average_precision",
    "micro_average_recall",
    "micro_average_f1",
    "observation_f1",
]
TextMode = Literal["findings_only", "findings_or_impression", "full", "caption", "published"]

TEXT_COMPONENTS: tuple[Component, ...] = ("BLEU", "METEOR", "ROUGE_L")
CHEXBERT_COMPONENTS: tuple[Component, ...] = ("micro_average_precision", "micro_average_recall", "micro_average_f1")
COMPONENTS: tuple[Component, ...] = (*TEXT_COMPONENTS, "F1RadGraph", *CHEXBERT_COMPONENTS)
"""All seven, in the order of the published configuration."""
OBSERVATION: Component = "observation_f1"
_ORDER = (*COMPONENTS, OBSERVATION)


class ObservationPatterns(Model):
    """Word patterns of a finding: regular expressions for text in lower case; a negative one overrides."""

    positive: list[str] = Field(min_length=1)
    negative: list[str] = Field(default_factory=list)

    @field_validator("positive", "negative")
    @classmethod
    def _compile(cls, patterns: list[str]) -> list[str]:
        for pattern in patterns:
            re.compile(pattern)
        return patterns


class ReportSettings(MetricSettings):
    """Metric settings of a report card."""

    components: tuple[Component, ...] = Field(
        COMPONENTS, min_length=1, description="equal parts of a report's score; fewer than seven is said with the score"
    )
    weights: dict[Component, float] = Field(
        default_factory=dict, description="component → its part of a report's score; empty: equal parts"
    )
    all_or_nothing: bool = Field(False, description="one missing or invalid report makes the task score 0")
    ascii_only: bool = Field(False, description="a report with another character than printable ASCII is invalid")
    text_mode: TextMode = Field(
        "findings_only",
        description="which sections of reference and prediction are compared; published: as the public release does, "
        "what follows a heading FINDINGS in capitals, else all",
    )
    observations: dict[str, ObservationPatterns] = Field(
        default_factory=dict, description="finding → word patterns, for the component observation_f1"
    )
    hyphens: bool = Field(False, description="in ROUGE-L a word with an inner hyphen is one token, not two")
    min_chars: int = Field(40, ge=1, description="a report has at least so many characters")
    max_chars: int = Field(8000, ge=1, description="and at most so many")
    min_alpha_chars: int = Field(20, ge=0, description="and at least so many letters of any script")

    @field_validator("components")
    @classmethod
    def _in_order(cls, components: tuple[Component, ...]) -> tuple[Component, ...]:
        """In the published order, so that the same choice always gives the same record."""
        if len(set(components)) != len(components):
            raise ValueError("names a component twice")
        return tuple(name for name in _ORDER if name in components)

    @model_validator(mode="after")
    def _weights_of_the_components(self) -> ReportSettings:
        if self.weights and (set(self.weights) != set(self.components) or min(self.weights.values()) <= 0):
            raise ValueError("weights must be positive numbers, one for each of the components")
        if (OBSERVATION in self.components) != bool(self.observations):
            raise ValueError(f"the component {OBSERVATION} needs word patterns in 'observations', others have none")
        return self

    def combined(self, values: Sequence[float]) -> float:
        """Weighted mean of one value for each of the components, in their order."""
        parts = [self.weights.get(name, 1.0) for name in self.components]
        return math.fsum(map(operator.mul, parts, values)) / math.fsum(parts)

    def combined_reports(self, reports: Mapping[Component, Sequence[float]]) -> list[float]:
        """The weighted mean for each report; ``reports``: component → value of each."""
        return list(map(self.combined, zip(*(reports[name] for name in self.components), strict=True)))

    def uses(self, *components: Component) -> bool:
        """Return whether at least one of these counts."""
        return not set(components).isdisjoint(self.components)
