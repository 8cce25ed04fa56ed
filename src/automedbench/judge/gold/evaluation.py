"""Evaluation of a judge by the gold set: errors of stage scores, precision and recall of each criterion.

A judge that gives no valid answer is counted as invalid: in the ``n`` of every figure and in the share of invalid
answers. It is never taken for a 0 and never left out silently. Bias is given minus expected: above 0 the judge is too
generous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from automedbench.base.errors import JudgeError
from automedbench.base.records import (
    Conversation,
    Criterion,
    JudgedStage,
    JudgeKind,
    JudgeRecord,
    Model,
    Money,
    Number,
    Score,
    Tier,
    Tokens,
)
from automedbench.judge.gold import GoldTranscript, picture
from automedbench.judge.panel.consensus import total_cost
from automedbench.judge.panel.llm import sum_of
from automedbench.judge.rubric import JUDGED_STAGES, Rubric
from automedbench.judge.verdicts import settled, stage_score

LEVELS = (0.0, 0.5, 1.0)
JUDGED = "S1–S3"
"""Name of the judged part of the agentic score in tables: the weighted sum of the three stages."""
RESAMPLES = 2000
MIN_TRANSCRIPTS = 10
"""No interval below: a few transcripts, resampled, look surer than they are, and one alone looks certain."""

AskJudge = Callable[[Conversation, Rubric, Tier, bytes | None], JudgeRecord]
"""``judge_run`` with its judge filled in."""


@dataclass(frozen=True)
class Answer:
    """What one judge said about one transcript; ``problems``: stage → why it has no valid answer."""

    judge: str
    gold: GoldTranscript
    rubric: Rubric
    criteria: Mapping[str, Criterion]
    stages: Mapping[JudgedStage, float]
    problems: Mapping[JudgedStage, str]


@dataclass(frozen=True)
class Sitting:
    """One transcript put to a judge: its answer, and of a panel those of its members."""

    answer: Answer
    members: tuple[Answer, ...] = ()
    kind: JudgeKind | None = None
    tokens: Tokens = field(default_factory=Tokens)
    cost_usd: str | None = None


class StageFigures(Model):
    """Error of a stage score over transcripts; intervals are 95 % bootstrap intervals over transcripts,
    from ``MIN_TRANSCRIPTS`` on."""

    stage: str = Field(description="S1, S2, S3, or S1–S3: their weighted part of the agentic score")
    n: int = Field(description="transcripts with a valid answer")
    mae: Number | None
    mae_low: Number | None = None
    mae_high: Number | None = None
    bias: Number | None = Field(description="mean of given minus expected")
    bias_low: Number | None = None
    bias_high: Number | None = None
    kappa: Number | None = Field(None, description="quadratically weighted, over the verdicts of the stage")
    kappa_low: Number | None = None
    kappa_high: Number | None = None


class CriterionFigures(Model):
    """A criterion that is earned or not, as a detector of what earns it; null where nothing can be divided."""

    id: str
    title: str
    n: int
    hits: int = Field(description="earned, and given")
    extra: int = Field(description="not earned, but given")
    missed: int = Field(description="earned, but not given")
    right_zeros: int
    precision: Number | None
    recall: Number | None
    f1: Number | None
    accuracy: Number | None


class LevelFigures(Model):
    """A criterion of three levels; ``confusion[i][j]``: level i expected, level j given."""

    id: str
    title: str
    n: int
    exact: Number | None
    mae: Number | None
    confusion: list[list[int]]


class Disagreement(Model):
    """One verdict that differs from the gold."""

    transcript: str
    criterion: str
    expected: Score
    given: Score | None = Field(description="null: no valid answer")
    gold_reason: str
    reason: str
    quote: str = ""
    turn: int | None = None


class MemberFigures(Model):
    """One member and repeat of a panel by itself."""

    judge: str
    stages: list[StageFigures]
    invalid_share: Number


class Evaluation(Model):
    """A judge measured against the gold set."""

    schema_: Literal["automedbench/judge-eval/1"] = Field("automedbench/judge-eval/1", alias="schema")
    judge: str
    kind: JudgeKind | None = Field(description="null when no answer was valid")
    split: str
    rubric_versions: dict[str, int]
    n_transcripts: int
    n_asked: int = Field(description="stages asked: three per transcript")
    n_invalid: int = Field(description="of them without a valid answer")
    invalid_share: Number
    invalid: list[str] = Field(description="transcript, stage and reason of each")
    stages: list[StageFigures]
    criteria: list[CriterionFigures]
    levels: list[LevelFigures]
    mean_f1: Number | None = Field(description="mean over the criteria that have one")
    disagreements: list[Disagreement]
    members: list[MemberFigures] = Field(default_factory=list)
    tokens: Tokens = Tokens()
    cost_usd: Money | None = None


# --- asking -------------------------------------------------------------------------------------------------------


def sit(gold: GoldTranscript, rubric: Rubric, ask: AskJudge, judge: str) -> Sitting:
    """Put one transcript to a judge; a JudgeError becomes an answer without valid stages, others are raised."""
    try:
        record = ask(gold.conversation, rubric, gold.tier, picture(gold))
    except JudgeError as error:
        problems = dict.fromkeys(JUDGED_STAGES, str(error).partition("\n")[0])
        return Sitting(Answer(judge, gold, rubric, {}, {}, problems))
    members = tuple(
        Answer(
            f"{one.judge} #{one.repeat}",
            gold,
            rubric,
            _by_id(item for item in one.criteria if item.valid and item.stage not in one.invalid),
            one.stages,
            one.invalid,
        )
        for one in record.judgements
    )
    answer = Answer(judge, gold, rubric, _by_id(record.criteria), record.stages, {})
    return Sitting(answer, members, record.kind, record.tokens, record.cost_usd)


def _by_id(criteria: Iterable[Criterion]) -> dict[str, Criterion]:
    return {criterion.id: criterion for criterion in criteria if not criterion.auto}


# --- measuring ----------------------------------------------------------------------------------------------------


def evaluate(
    judge: str, sittings: Sequence[Sitting], weights: Mapping[JudgedStage, float], split: str, common: Rubric
) -> Evaluation:
    """All figures of one judge; ``weights`` are those of the stages in the agentic score.

    ``common``: the skeleton, whose titles name a criterion that tracks word differently.
    """
    answers = [sitting.answer for sitting in sittings]
    members = [answer for sitting in sittings for answer in sitting.members]
    voices = [voice for sitting in sittings for voice in sitting.members or (sitting.answer,)]
    invalid = [f"{one.gold.id} {stage}: {why}" for one in voices for stage, why in one.problems.items()]
    criteria = list(_criteria_figures(answers, common))
    scores = [figures.f1 for figures in criteria if figures.f1 is not None]
    return Evaluation(
        judge=judge,
        kind=next((sitting.kind for sitting in sittings if sitting.kind), None),
        split=split,
        rubric_versions={answer.rubric.track: answer.rubric.version for answer in answers},
        n_transcripts=len(answers),
        n_asked=3 * len(voices),
        n_invalid=len(invalid),
        invalid_share=len(invalid) / max(1, 3 * len(voices)),
        invalid=invalid,
        stages=stage_figures(answers, weights),
        criteria=criteria,
        levels=list(_level_figures(answers, common)),
        mean_f1=sum(scores) / len(scores) if scores else None,
        disagreements=list(_disagreements(answers)),
        members=list(_member_figures(members, weights)),
        tokens=sum_of([sitting.tokens for sitting in sittings]),
        cost_usd=total_cost([sitting.cost_usd for sitting in sittings]),
    )


def expected_stages(gold: GoldTranscript, rubric: Rubric) -> dict[JudgedStage, float]:
    """Stage scores of the gold verdicts, with what the tier credits."""
    verdicts = {
        rule.id: Criterion(id=rule.id, stage=rule.stage, verdict=gold.expected[rule.id].verdict)
        for rule in rubric.judged(gold.tier)
    }
    criteria = settled(verdicts, rubric, gold.tier)
    return {stage: stage_score(criteria, stage) for stage in JUDGED_STAGES}


def verdict_pairs(answers: Iterable[Answer], stage: JudgedStage) -> list[tuple[float, float]]:
    """(expected, given) of every judged criterion of a stage that has an answer."""
    return [
        (wanted.verdict, answer.criteria[name].verdict)
        for answer in answers
        for name, wanted in answer.gold.expected.items()
        if name in answer.criteria and answer.criteria[name].stage == stage
    ]


def stage_figures(answers: Sequence[Answer], weights: Mapping[JudgedStage, float]) -> list[StageFigures]:
    """Errors of S1, S2, S3 and of their weighted sum, each over the transcripts that have a valid score."""
    errors: dict[str, list[float]] = {stage: [] for stage in (*JUDGED_STAGES, JUDGED)}
    for answer in answers:
        wanted = expected_stages(answer.gold, answer.rubric)
        differences = {stage: answer.stages[stage] - wanted[stage] for stage in JUDGED_STAGES if stage in answer.stages}
        for stage, difference in differences.items():
            errors[stage].append(difference)
        if len(differences) == len(JUDGED_STAGES):
            errors[JUDGED].append(sum(weights[stage] * difference for stage, difference in differences.items()))
    return [_figures_of(stage, values) for stage, values in errors.items()]


def _figures_of(stage: str, errors: list[float]) -> StageFigures:
    if not errors:
        return StageFigures(stage=stage, n=0, mae=None, bias=None)
    import numpy as np

    values = np.asarray(errors)
    figures = StageFigures(stage=stage, n=len(errors), mae=float(np.abs(values).mean()), bias=float(values.mean()))
    if len(errors) < MIN_TRANSCRIPTS:
        return figures
    drawn = values[np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))]
    mae_low, mae_high = np.percentile(np.abs(drawn).mean(axis=1), [2.5, 97.5])
    bias_low, bias_high = np.percentile(drawn.mean(axis=1), [2.5, 97.5])
    ends = {"mae_low": mae_low, "mae_high": mae_high, "bias_low": bias_low, "bias_high": bias_high}
    return figures.model_copy(update={name: float(end) for name, end in ends.items()})


def _pairs_of(answers: Iterable[Answer], name: str) -> list[tuple[float, float]]:
    return [
        (answer.gold.expected[name].verdict, answer.criteria[name].verdict)
        for answer in answers
        if name in answer.gold.expected and name in answer.criteria
    ]


def _criteria_figures(answers: Sequence[Answer], common: Rubric) -> Iterator[CriterionFigures]:
    for rule in common.criteria:
        if len(rule.values) == 2:
            yield binary_figures(rule.id, rule.title, _pairs_of(answers, rule.id))


def binary_figures(name: str, title: str, pairs: Sequence[tuple[float, float]]) -> CriterionFigures:
    """Figures of one criterion; a panel's mean verdict counts as given from 0.5 on."""
    outcomes = [(wanted > 0, given >= 0.5) for wanted, given in pairs]
    hits, extra = outcomes.count((True, True)), outcomes.count((False, True))
    missed, zeros = outcomes.count((True, False)), outcomes.count((False, False))
    return CriterionFigures(
        id=name,
        title=title,
        n=len(pairs),
        hits=hits,
        extra=extra,
        missed=missed,
        right_zeros=zeros,
        precision=_share(hits, hits + extra),
        recall=_share(hits, hits + missed),
        f1=_share(2 * hits, 2 * hits + extra + missed),
        accuracy=_share(hits + zeros, len(pairs)),
    )


def _level_figures(answers: Sequence[Answer], common: Rubric) -> Iterator[LevelFigures]:
    for rule in common.criteria:
        if len(rule.values) > 2:
            yield level_figures(rule.id, rule.title, _pairs_of(answers, rule.id))


def level_figures(name: str, title: str, pairs: Sequence[tuple[float, float]]) -> LevelFigures:
    """Figures of one criterion of three levels; a panel's mean is put to the nearest level, ties to the lower."""
    confusion = [[0] * len(LEVELS) for _ in LEVELS]
    for wanted, given in pairs:
        confusion[_nearest(wanted)][_nearest(given)] += 1
    return LevelFigures(
        id=name,
        title=title,
        n=len(pairs),
        exact=_share(sum(confusion[i][i] for i in range(len(LEVELS))), len(pairs)),
        mae=sum(abs(given - wanted) for wanted, given in pairs) / len(pairs) if pairs else None,
        confusion=confusion,
    )


def _nearest(value: float) -> int:
    return min(range(len(LEVELS)), key=lambda i: abs(LEVELS[i] - value))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _disagreements(answers: Iterable[Answer]) -> Iterator[Disagreement]:
    for answer in answers:
        for name, wanted in answer.gold.expected.items():
            given = answer.criteria.get(name)
            if given is not None and given.verdict == wanted.verdict:
                continue
            stage = next(rule.stage for rule in answer.rubric.criteria if rule.id == name)
            yield Disagreement(
                transcript=answer.gold.id,
                criterion=name,
                expected=wanted.verdict,
                given=given.verdict if given else None,
                gold_reason=wanted.reason,
                reason=given.reason if given else answer.problems.get(stage, "no valid answer"),
                quote=given.quote if given else "",
                turn=given.turn if given else None,
            )


def _member_figures(members: Sequence[Answer], weights: Mapping[JudgedStage, float]) -> Iterator[MemberFigures]:
    for name in dict.fromkeys(answer.judge for answer in members):
        own = [answer for answer in members if answer.judge == name]
        yield MemberFigures(
            judge=name,
            stages=stage_figures(own, weights),
            invalid_share=sum(len(answer.problems) for answer in own) / (3 * len(own)),
        )
