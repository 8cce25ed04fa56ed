"""Consequences of outputs on which their case has no effect: how much a stage may earn of them.

Used where a run is scored, where its judge is measured on the gold set, and by the statistics over single judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from automedbench.base.records import EffectVerdict, Stage

StageT = TypeVar("StageT", bound=Stage)
NO_EFFECT: dict[Stage, float] = {"S3": 0.0, "S4": 0.3}
"""Most that a stage may earn where the case has no effect on the outputs: a validation that passes these is none."""
NO_METHOD: dict[Stage, float] = NO_EFFECT | {"S2": 0.2}
"""The same where the trace shows no method at work either: one of S2's five criteria is left, the look at an input."""


def stage_limits(effect: EffectVerdict, method_at_work: bool) -> dict[Stage, float]:
    """Stage → the most it may earn, by the effect of the case on the outputs; empty unless there is none.

    ``method_at_work``: False where the trace shows that no input was opened, or neither weights nor a program that
    computes a model. S5 has no limit: without an effect its first half is not earned (``scoring.run.s5``).
    """
    if effect != "none":
        return {}
    return NO_EFFECT if method_at_work else NO_METHOD


def cap_stages(stages: Mapping[StageT, float], limits: Mapping[Stage, float]) -> dict[StageT, float]:
    """The stages, none above its limit."""
    return {stage: min(earned, limits.get(stage, 1.0)) for stage, earned in stages.items()}


def limit_stages(stages: Mapping[StageT, float], effect: EffectVerdict, method_at_work: bool) -> dict[StageT, float]:
    """The stages, none above what ``stage_limits`` lets it earn."""
    return cap_stages(stages, stage_limits(effect, method_at_work))
