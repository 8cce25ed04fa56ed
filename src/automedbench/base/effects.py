"""Effect of the case on a run's outputs: what of the measure counts, and how much a stage may earn without an effect.

Used where a run is scored, where its judge is measured on the gold set, and by the statistics over single judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from automedbench.base.records import AuditRecord, Conversation, Effect, EffectVerdict, Stage

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


def decide_effect(measured: EffectVerdict, audit: AuditRecord, conversation: Conversation) -> EffectVerdict:
    """Effect of the case as it stands: an operator's decision in either direction, else what was measured.

    Where too little was measured to tell, outputs of a run that opened no input owe nothing to their case.
    """
    decided = audit.confirmed_no_inference
    if decided is not None:
        return "none" if decided else "unclear"
    return "none" if measured == "unclear" and no_input_opened(conversation, audit) else measured


def is_method_at_work(conversation: Conversation, audit: AuditRecord) -> bool:
    """False where the trace shows that no input was opened, or neither weights nor a program that computes a model."""
    return audit.model_opened is not False and not no_input_opened(conversation, audit)


def no_input_opened(conversation: Conversation, audit: AuditRecord) -> bool:
    """The trace knows every file that every process of the run opened, outputs among them, and none was an input."""
    traced = [call.processes for call in conversation.calls if call.status != "refused"]
    opened = [process for processes in traced for process in processes or ()]
    unseen = None in traced or any(process.left_out for process in opened)
    if unseen or any(finding.rule == "trace.unread" for finding in audit.findings):
        return False
    wrote = any(path.startswith("agents_outputs/") for process in opened for path in process.writes)
    return wrote and not any(path.startswith("/data/public/") for process in opened for path in process.reads)


def why_no_effect(effect: Effect, audit: AuditRecord) -> str:
    """Reason why there is no effect of the case, where ``decide_effect`` says so: operator, measure or trace."""
    if audit.confirmed_no_inference and audit.decision is not None:
        return f"{audit.decision.by} decided that no method was at work: {audit.decision.why}"
    return effect.reason if effect.verdict == "none" else "no process of the run opened an input"
