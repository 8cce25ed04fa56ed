"""Scoring of one run from records: S4, S5, agentic, task, overall, medal, failure (docs/specification.md, 6).

Rounding: S1 and S2 come from the judge with two decimals, agentic and overall have four, S3–S5 and the task score
are not rounded (docs/specification.md, 6 and 10). Overall is made of the rounded agentic and the unrounded
task score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from automedbench import __version__
from automedbench.base.cards import Medal, TaskCard
from automedbench.base.code import present_code
from automedbench.base.effects import decide_effect, is_method_at_work, limit_stages, stage_limits
from automedbench.base.errors import InfrastructureError, JudgeError
from automedbench.base.files import read_record, sha256_file
from automedbench.base.records import (
    AuditRecord,
    Conversation,
    DetailReport,
    EffectRule,
    EffectVerdict,
    JudgeRecord,
    Model,
    Recipe,
    RunConditions,
    RunRecord,
    ScoreRecord,
    Scores,
    Stage,
    SubmissionRecord,
)
from automedbench.tracks import get_track

ModelT = TypeVar("ModelT", bound=Model)
SCORE_VERSION = 5
"""Raised when the same records could give other numbers; every run's numbers are then put together again."""
AGENTIC_WEIGHTS = {"s1": 0.25, "s2": 0.15, "s3": 0.35, "s4": 0.15, "s5": 0.10}
"""Weights of the stages in every track and tier (website; paper section 2)."""
NO_MEDAL = "fail"
DISQUALIFIED = "disqualified"
ZERO = Scores(s1=0, s2=0, s3=0, s4=0, s5=0, agentic=0, task=0, overall=0)
CASE_DIGITS = 4
_SAME_MEAN = 1e-6


def s4(submission: SubmissionRecord) -> float:
    """Inference: ½ completion rate + ½ [an output was submitted and every submitted one is valid]."""
    return 0.5 * submission.completion_rate + 0.5 * submission.submitted_valid


def s5(task_score: float, submission: SubmissionRecord, run: RunRecord, effect: EffectVerdict = "unclear") -> float:
    """Submission: ½ [task score > 0, unless the case has no effect on the outputs] + ½ [all valid and accepted]."""
    return 0.5 * (task_score > 0 and effect != "none") + 0.5 * (submission.all_valid and run.submitted)


def agentic(stages: Mapping[str, float]) -> float:
    """Weighted sum of the five stages (keys s1 … s5), four decimals; a missing stage is a KeyError, never a 0."""
    return round(sum(weight * stages[stage] for stage, weight in AGENTIC_WEIGHTS.items()), 4)


def overall(agentic_score: float, task_score: float) -> float:
    """Mean of both halves, four decimals."""
    return round(0.5 * agentic_score + 0.5 * task_score, 4)


def medal(medals: list[Medal], metrics: Mapping[str, float | None]) -> str:
    """The first medal whose thresholds are all reached, else ``fail``; an undefined metric reaches none."""

    def reached(item: Medal) -> bool:
        values = ((metrics.get(name), least) for name, least in item.at_least.items())
        return all(value is not None and value >= least for value, least in values)

    return next((item.name for item in medals if reached(item)), NO_MEDAL)


def decide_medal(detail: DetailReport, submission: SubmissionRecord, effect: EffectVerdict = "unclear") -> str:
    """The medal that counts: none for a run with a missing or invalid case, that a constant answer equals, or on whose
    outputs the case has no effect."""
    beats_prior = detail.prior is None or detail.task_score > detail.prior.value
    return detail.medal if submission.all_valid and beats_prior and effect != "none" else NO_MEDAL


def is_disqualified(run: RunRecord, audit: AuditRecord) -> bool:
    """Stopped for a second violation during the run, or found out by the audit afterwards; an operator may lift it."""
    lifted = audit.decision is not None and audit.decision.decision == "lift"
    return audit.verdict == DISQUALIFIED or (run.outcome == DISQUALIFIED and not lifted)


def is_failed(run: RunRecord, submission: SubmissionRecord, audit: AuditRecord) -> bool:
    """No complete final submission: not accepted, an expected output missing, or disqualified."""
    missing = any(case.status == "missing" for case in submission.cases)
    return not run.submitted or run.outcome != "submitted" or missing or is_disqualified(run, audit)


def case_scores(detail: DetailReport) -> list[float] | None:
    """Share of each expected case in the task score: its part of the quality, 0 where it is missing; four decimals.

    None where the task score is no mean over cases: mAP, a balanced accuracy, a macro Dice whose targets are undefined
    in some cases.
    """
    track = get_track(detail.track)
    name = track.metric_of_cases
    if not track.quality_is_mean or detail.quality_name != track.quality:
        return None
    if not any(name in case.metrics for case in detail.cases):
        return None
    values = [case.metrics.get(name) or 0.0 for case in detail.cases]
    is_mean = abs(fmean(values) - detail.task_score) <= _SAME_MEAN and 0 <= min(values) <= max(values) <= 1
    return [round(value, CASE_DIGITS) for value in values] if is_mean else None


def stage_scores(
    run: RunRecord,
    submission: SubmissionRecord,
    detail: DetailReport,
    judge: JudgeRecord,
    effect: EffectVerdict,
    *,
    method_at_work: bool,
) -> Scores:
    """All numbers of a run as earned, before any penalty; raises JudgeError when a stage was not judged.

    ``effect``: of the case, as it counts.
    """
    if missing := {"S1", "S2", "S3"} - set(judge.stages):
        raise JudgeError(
            f"No judgement of {', '.join(sorted(missing))} in judge.json; a missing judgement is never a number.\n"
            "Delete judge.json and run score_judge again."
        )
    computed: dict[Stage, float] = {"S4": s4(submission), "S5": s5(detail.task_score, submission, run, effect)}
    limited = limit_stages({**judge.stages, **computed}, effect, method_at_work)
    stages = {stage.lower(): earned for stage, earned in limited.items()}
    half = agentic(stages)
    return Scores(**stages, agentic=half, task=detail.task_score, overall=overall(half, detail.task_score))


def score_run(
    run: RunRecord,
    submission: SubmissionRecord,
    audit: AuditRecord,
    detail: DetailReport,
    judge: JudgeRecord,
    card: TaskCard,
    conversation: Conversation,
    sources: Mapping[str, str],
    effects: EffectRule = "counted",
) -> ScoreRecord:
    """One row of the leaderboard. A disqualified run has 0 everywhere; what it earned is kept in ``unpenalised``.

    ``sources`` are the digests of the files that the records were read from. ``effects``: whether a measured lack of
    effect counts; an operator's decision always does.

    Raises InfrastructureError when the records do not belong together, JudgeError when a stage was not judged.
    """
    from automedbench.scoring.codes import error_codes  # brings the judge along, which task metrics do not need

    _check_together(run, card, detail, submission, audit, judge, conversation)
    found, at_work = decide_effect(detail.effect.verdict, audit, conversation), is_method_at_work(conversation, audit)
    decided = audit.confirmed_no_inference is not None
    effect: EffectVerdict = found if effects == "counted" or decided else "unclear"
    earned = stage_scores(run, submission, detail, judge, effect, method_at_work=at_work)
    out = is_disqualified(run, audit)
    if audit.confirmed_no_inference:
        earned = earned.model_copy(update={"task": 0.0, "overall": 0.0})
    cases = case_scores(detail)
    return ScoreRecord(
        run=run.run,
        track=detail.track,
        model=run.model,
        outcome=run.outcome,
        disqualified=out,
        failed=is_failed(run, submission, audit),
        scores=ZERO if out else earned,
        unpenalised=earned if out else None,
        quality_name=detail.quality_name,
        quality=0.0 if out else detail.quality,
        completion_rate=submission.completion_rate,
        valid_rate=submission.valid_rate,
        medal=DISQUALIFIED if out else decide_medal(detail, submission, effect),
        effect=detail.effect,
        no_effect=found == "none",
        stage_limits=stage_limits(effect, at_work),
        contradicting=detail.contradicting,
        made_up=detail.made_up,
        model_lock=audit.model_lock,
        error_codes=[] if out else error_codes(run, submission, detail, card, conversation, judge, audit),
        n_findings=len(audit.findings),
        case_scores=[0.0] * len(cases) if out and cases is not None else cases,
        panel={f"{one.judge}#{one.repeat}": dict(one.stages) for one in judge.judgements},
        judge_spread=judge.spread,
        judge_tokens=judge.tokens.total,
        judge_cost_usd=judge.cost_usd,
        totals=run.totals,
        attempts=run.attempt,
        attempts_cost_usd=run.attempts_cost_usd,
        used=run.used,
        enforced=run.enforced,
        recipe=recipe(run, detail, judge, audit, effects),
        sources=dict(sources),
    )


def recipe(run: RunRecord, detail: DetailReport, judge: JudgeRecord, audit: AuditRecord, effects: EffectRule) -> Recipe:
    """Everything the score depends on."""
    return Recipe(
        **{name: getattr(run, name) for name in RunConditions.model_fields},
        track_version=detail.track_version,
        settings=detail.settings,
        rubric_version=judge.rubric_version,
        judge=judge.judge,
        judge_kind=judge.kind,
        prompt_version=judge.prompt_version,
        panel=judge.panel,
        policy_version=audit.policy_version,
        score_version=SCORE_VERSION,
        effects=effects,
        image_sha256=run.enforced.image_sha256,
        code_version=__version__,
        code=present_code(),
        run_code=run.code,
    )


_BEHIND = ("answer_judge.json", "decision.yaml")
"""Files of a run that led to its records; not every run has them."""


def score_from_files(card: TaskCard, file: Callable[[str], Path], effects: EffectRule = "counted") -> ScoreRecord:
    """The score of one run from its records, with the digest of each file that was read; raises as ``score_run``.

    ``file``: where the run has a record of this name. ``effects``: as in ``score_run``.
    """
    sources: dict[str, str] = {}

    def read(name: str, model: type[ModelT]) -> ModelT:
        record = read_record(file(name), model)
        sources[name] = sha256_file(file(name))
        return record

    return score_run(
        read("run.json", RunRecord),
        read("submission.json", SubmissionRecord),
        read("audit.json", AuditRecord),
        read("detail_report.json", DetailReport),
        read("judge.json", JudgeRecord),
        card,
        read("conversation.json", Conversation),
        sources | {name: sha256_file(path) for name in _BEHIND if (path := file("run.json").parent / name).is_file()},
        effects,
    )


def _check_together(
    run: RunRecord,
    card: TaskCard,
    detail: DetailReport,
    *others: SubmissionRecord | AuditRecord | JudgeRecord | Conversation,
) -> None:
    """All records are of one run, and of the card's task in one version."""
    for record in (detail, *others):
        if record.run != run.run:
            raise InfrastructureError(
                f"{record.schema_}: belongs to run {record.run.path}, not to {run.run.path}.\n"
                "Delete it and run its rule again."
            )
    versions = {run.task_version, detail.task_version, card.version}
    if run.run.task != card.id or len(versions) > 1:
        raise InfrastructureError(
            f"Run {run.run.path} was made for version {run.task_version} of {run.run.task} and scored with version "
            f"{detail.task_version}; the card is {card.id} version {card.version}.\n"
            "Scores of different task versions are not comparable: repeat the run, or use the card it was made with."
        )
