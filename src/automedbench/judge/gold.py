"""The gold set: transcripts scored by hand, against which judges are measured (``config/gold``).

One YAML file is one transcript: what an agent planned, ran, wrote and left, as far as a judge may see it, and for every
criterion that its tier judges the verdict a person gave, why, and the line it rests on. The verdicts come from reading
the rubric; where a judge disagrees, the judge is wrong. Two readers scored each transcript without seeing each other's
verdicts, the rules, or how a judge decided; where they differ a third decided by the rubric's words.

A judge that gives no valid answer is counted as invalid: in the ``n`` of every figure and in the share of invalid
answers. It is never taken for a 0 and never left out silently. Bias is given minus expected: above 0 the judge is too
generous.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field

from automedbench.base.errors import ConfigError, JudgeError
from automedbench.base.records import (
    CodeCall,
    Conversation,
    Criterion,
    Effect,
    JudgedStage,
    JudgeKind,
    JudgeRecord,
    Message,
    Model,
    Money,
    Number,
    RunId,
    Score,
    Stage,
    Tier,
    Tokens,
)
from automedbench.base.yamlfile import load_yaml, suggestion, validate
from automedbench.campaign.prices import sum_costs
from automedbench.judge.panel import NoValidAnswer
from automedbench.judge.rubric import JUDGED_STAGES, Rubric, settle_verdicts, stage_score

Quality = Literal["good", "medium", "bad"]
Split = Literal["dev", "held_out", "fresh"]
SPLITS: tuple[Split, ...] = get_args(Split)
"""dev: rules may be made on it; held_out: never looked at; fresh: looked at once, when the rules were finished."""
Plot = Literal["none", "broken", "blank", "unrelated", "pipeline"]
DEFAULT_BRIEF = "default"
UNLISTED_BYTES = 2_000
"""Size of a file that calls made and ``files`` does not list."""

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


class GoldCall(Model):
    """One code call, with defaults for one that went well."""

    turn: int | None = Field(None, description="default: the number of the call")
    stage: Stage
    lang: Literal["python", "bash"] = "python"
    code: str
    out: str = ""
    err: str = ""
    status: Literal["ok", "error", "timeout", "refused", "killed"] = "ok"
    new: list[str] = Field(default_factory=list, description="files created or changed; {0001..0012} stands for many")
    seconds: float = 1.0


class Expected(Model):
    """The verdict on one criterion, after ``needs`` were applied."""

    verdict: Score
    scorers: list[Score] = Field(
        default_factory=list, description="what readers gave who saw neither each other's verdicts nor any judge's"
    )
    reason: Annotated[str, Field(min_length=8)]
    evidence: list[str] = Field(default_factory=list, description="lines of the run that show it, word for word")
    turn: int | None = Field(None, description="where the evidence stands; null for plan and files")


class GoldTranscript(Model):
    """One transcript and what it is worth."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    track: str
    tier: Tier
    quality: Quality
    split: Split
    traps: list[str] = Field(default_factory=list)
    why: Annotated[str, Field(min_length=20, description="what the transcript tests")]
    n_cases: int = Field(ge=1)
    effect: Literal["shown", "none", "unclear"] = Field(description="of the case on the outputs, as it would measure")
    gpu: bool = Field(True, description="whether the run had a GPU")
    brief: str = Field(DEFAULT_BRIEF, description="an excerpt of the brief, or 'default': the track's in briefs/")
    plan: str | None = None
    plot: Plot = "none"
    plot_steps: list[str] = Field(default_factory=list, description="what stands in the boxes of plan.png")
    notes: dict[int, str] = Field(default_factory=dict, description="turn → what the agent wrote beside its code")
    calls: list[GoldCall]
    files: dict[str, int] = Field(default_factory=dict, description="bytes at the end; 2000 for files not listed")
    expected: dict[str, Expected]

    @property
    def conversation(self) -> Conversation:
        """The record that a judge is given."""
        return Conversation(
            run=RunId(agent="agent-under-test", task=f"{self.track.replace('_', '-')}-task", tier=self.tier, repeat=1),
            n_cases=self.n_cases,
            gpu=self.gpu,
            messages=[
                Message(turn=0, role="system", content=self.brief),
                *(Message(turn=turn, role="assistant", content=text) for turn, text in sorted(self.notes.items())),
            ],
            calls=[_code_call(number, call) for number, call in enumerate(self.calls, start=1)],
            plan=self.plan,
            has_plot=self.plot in ("blank", "unrelated", "pipeline"),
            workspace_files=self._workspace(),
        )

    @property
    def measured(self) -> Effect:
        """The measurement that a judge is given."""
        return Effect(verdict=self.effect, reason="as the outputs of this transcript would measure")

    def _workspace(self) -> dict[str, int]:
        made = [path for call in self.calls for path in expand(call.new)]
        listed = {path: size for pattern, size in self.files.items() for path in expand([pattern])}
        if self.plan is not None:
            listed.setdefault("plan/plan.md", len(self.plan.encode()))
        return dict.fromkeys(made, UNLISTED_BYTES) | listed


def _code_call(number: int, call: GoldCall) -> CodeCall:
    return CodeCall(
        turn=call.turn or number,
        call=number,
        language=call.lang,
        code=call.code,
        status=call.status,
        exit_code={"ok": 0, "error": 1, "killed": 137}.get(call.status),
        elapsed_s=call.seconds,
        stdout=call.out,
        stderr=call.err,
        stage=call.stage,
        new_files=list(expand(call.new)),
    )


def expand(patterns: Iterable[str]) -> Iterator[str]:
    """Paths with ``{0001..0012}`` replaced by every number between, with the same number of digits."""
    for pattern in patterns:
        mark = _RANGE.search(pattern)
        if mark is None:
            yield pattern
            continue
        first, last = mark.groups()
        numbers = (f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))
        yield from (pattern[: mark.start()] + number + pattern[mark.end() :] for number in numbers)


def load_gold(folder: Path, track: str | None = None, split: Split | Literal["all"] = "all") -> list[GoldTranscript]:
    """All transcripts below ``folder``, by track and name; raises ConfigError with every problem."""
    paths = sorted(Path(folder).glob("*/*.yaml"))
    problems = [] if paths else [f"{folder}: contains no <track>/<id>.yaml"]
    found = []
    for path in paths:
        try:
            found.append(_load(path, Path(folder)))
        except ConfigError as error:
            problems += error.problems
    tracks = sorted({item.track for item in found})
    if track is not None and found and track not in tracks:
        problems.append(f"{folder}: no transcript of track '{track}'{suggestion(track, tracks)}")
    if problems:
        raise ConfigError(problems)
    return [item for item in found if track in (None, item.track) and split in ("all", item.split)]


def _load(path: Path, folder: Path) -> GoldTranscript:
    found = validate(load_yaml(path), GoldTranscript, str(path))
    if (found.track, found.id) != (path.parent.name, path.stem):
        raise ConfigError([f"{path}: must lie at {found.track}/{found.id}.yaml, as its track and id say"])
    if found.brief != DEFAULT_BRIEF:
        return found
    try:
        texts = [(folder / "briefs" / f"{name}.md").read_text(encoding="utf-8") for name in ("common", found.track)]
    except OSError as error:
        raise ConfigError([f"{path}: brief: {error.filename} cannot be read"]) from error
    return found.model_copy(update={"brief": "\n".join(texts)})


def picture(gold: GoldTranscript) -> bytes | None:
    """``plan.png`` as a judge that takes images is shown it; null when there is none or it does not open."""
    if gold.plot in ("none", "broken"):
        return None
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (900, 240), "white")
    draw = ImageDraw.Draw(image)
    if gold.plot == "pipeline":
        width = 880 // max(1, len(gold.plot_steps))
        for number, step in enumerate(gold.plot_steps):
            left = 10 + number * width
            draw.rectangle((left, 80, left + width - 30, 160), outline="black", width=2)
            draw.multiline_text((left + 8, 100), step.replace(", ", ",\n"), fill="black")
            if number + 1 < len(gold.plot_steps):
                draw.line((left + width - 30, 120, left + width, 120), fill="black", width=2)
                draw.polygon([(left + width, 120), (left + width - 8, 115), (left + width - 8, 125)], fill="black")
    elif gold.plot == "unrelated":
        draw.line([(x, 200 - (x * 37) % 160) for x in range(40, 860, 20)], fill="blue", width=2)
        draw.text((380, 10), " ".join(gold.plot_steps) or "values", fill="black")
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


LEVELS = (0.0, 0.5, 1.0)
JUDGED = "S1–S3"
"""Name of the judged part of the agentic score in tables: the weighted sum of the three stages."""
RESAMPLES = 2000
EXACT = 1e-9
"""Errors below are rounding of sums."""
MIN_TRANSCRIPTS = 10
"""No interval below: a few transcripts, resampled, look surer than they are, and one alone looks certain."""

AskJudge = Callable[[Conversation, Rubric, Tier, bytes | None, Effect], JudgeRecord]
"""``judge_run`` with its judge filled in."""


@dataclass(frozen=True)
class GoldJudgement:
    """Judgement of one judge on one transcript, and of a panel those of its members.

    ``problems``: stage → why it has no valid answer.
    """

    judge: str
    gold: GoldTranscript
    rubric: Rubric
    criteria: Mapping[str, Criterion] = field(default_factory=dict)
    stages: Mapping[JudgedStage, float] = field(default_factory=dict)
    problems: Mapping[JudgedStage, str] = field(default_factory=dict)
    members: tuple[GoldJudgement, ...] = ()
    kind: JudgeKind | None = None
    tokens: Tokens = field(default_factory=Tokens)
    cost_usd: str | None = None

    @property
    def n_weak(self) -> int:
        """Verdicts that were not earned because their quotes stayed weak."""
        return sum(criterion.weak for criterion in self.criteria.values())


class StageFigures(Model):
    """Error of a stage score over transcripts; intervals are 95 % bootstrap intervals over transcripts,
    from ``MIN_TRANSCRIPTS`` on."""

    stage: str = Field(description="S1, S2, S3, or S1–S3: their weighted part of the agentic score")
    n: int = Field(description="transcripts with a valid answer")
    exact: Number | None = Field(None, description="share of them whose score is the expected one")
    mae: Number | None
    mae_low: Number | None = None
    mae_high: Number | None = None
    bias: Number | None = Field(description="mean of given minus expected")
    bias_low: Number | None = None
    bias_high: Number | None = None
    kappa: Number | None = Field(None, description="quadratically weighted, over the verdicts of the stage")
    kappa_low: Number | None = None
    kappa_high: Number | None = None
    kappa_scorers: Number | None = Field(None, description="the same between the first two readers of the gold set")
    alpha: Number | None = Field(None, description="Krippendorff's, between a panel's members and repeats")


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
    n_weak: int = Field(0, description="verdicts that were not earned because their quotes stayed weak")
    cost_usd: Money | None = Field(None, description="of all its judgements; null where one's is not known")


class Evaluation(Model):
    """A judge measured against the gold set."""

    schema_: Literal["automedbench/judge-eval/1"] = Field("automedbench/judge-eval/1", alias="schema")
    judge: str
    kind: JudgeKind | None = Field(description="null when no answer was valid")
    split: str
    rubric_versions: dict[str, int]
    n_transcripts: int
    n_asked: int = Field(description="stages asked, three per transcript; none after one without a valid answer")
    n_invalid: int = Field(description="of them without a valid answer")
    invalid_share: Number
    n_weak: int = Field(0, description="verdicts that were not earned because their quotes stayed weak")
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


def judge_transcript(gold: GoldTranscript, rubric: Rubric, ask: AskJudge, judge: str) -> GoldJudgement:
    """Put one transcript to a judge; a JudgeError becomes an answer without valid stages, others are raised."""
    empty = GoldJudgement(judge, gold, rubric)
    try:
        record = ask(gold.conversation, rubric, gold.tier, picture(gold), gold.measured)
    except JudgeError as error:
        why = str(error).partition("\n")[0]
        if isinstance(error, NoValidAnswer):
            return replace(empty, problems={error.stage: why}, kind="llm", tokens=error.tokens, cost_usd=error.cost_usd)
        return replace(empty, problems=dict.fromkeys(JUDGED_STAGES, why))
    members = tuple(
        GoldJudgement(
            f"{one.judge} #{one.repeat}",
            gold,
            rubric,
            _index_criteria(item for item in one.criteria if item.valid and item.stage not in one.invalid),
            one.stages,
            one.invalid,
            cost_usd=one.cost_usd,
        )
        for one in record.judgements
    )
    criteria, stages = _index_criteria(record.criteria), record.stages
    return GoldJudgement(
        judge, gold, rubric, criteria, stages, {}, members, record.kind, record.tokens, record.cost_usd
    )


def _index_criteria(criteria: Iterable[Criterion]) -> dict[str, Criterion]:
    return {criterion.id: criterion for criterion in criteria if not criterion.auto}


# --- measuring ----------------------------------------------------------------------------------------------------


def evaluate(
    judge: str, answers: Sequence[GoldJudgement], weights: Mapping[JudgedStage, float], split: str, common: Rubric
) -> Evaluation:
    """All figures of one judge; ``weights`` are those of the stages in the agentic score.

    ``common``: the skeleton, whose titles name a criterion that tracks word differently.
    """
    members = [member for answer in answers for member in answer.members]
    voices = [voice for answer in answers for voice in answer.members or (answer,)]
    invalid = [f"{one.gold.id} {stage}: {why}" for one in voices for stage, why in one.problems.items()]
    n_stages = sum(len(voice.stages.keys() | voice.problems.keys()) for voice in voices)
    pairs = [(rule, verdict_pairs(answers, rule.id)) for rule in common.criteria]
    criteria = [binary_figures(rule.id, rule.title, given) for rule, given in pairs if len(rule.values) == 2]
    levels = [level_figures(rule.id, rule.title, given) for rule, given in pairs if len(rule.values) > 2]
    scores = [figures.f1 for figures in criteria if figures.f1 is not None]
    return Evaluation(
        judge=judge,
        kind=next((answer.kind for answer in answers if answer.kind), None),
        split=split,
        rubric_versions={answer.rubric.track: answer.rubric.version for answer in answers},
        n_transcripts=len(answers),
        n_asked=n_stages,
        n_invalid=len(invalid),
        invalid_share=len(invalid) / max(1, n_stages),
        n_weak=sum(voice.n_weak for voice in voices),
        invalid=invalid,
        stages=stage_figures(answers, weights),
        criteria=criteria,
        levels=levels,
        mean_f1=sum(scores) / len(scores) if scores else None,
        disagreements=list(_disagreements(answers)),
        members=list(_member_figures(members, weights)),
        tokens=sum((answer.tokens for answer in answers), Tokens()),
        cost_usd=sum_costs([answer.cost_usd for answer in answers]),
    )


def expected_stages(gold: GoldTranscript, rubric: Rubric) -> dict[JudgedStage, float]:
    """Stage scores of the gold verdicts, with what the tier credits."""
    verdicts = {
        rule.id: Criterion(id=rule.id, stage=rule.stage, verdict=gold.expected[rule.id].verdict)
        for rule in rubric.judged(gold.tier)
    }
    criteria = settle_verdicts(verdicts, rubric, gold.tier, gpu=gold.gpu)
    return {stage: stage_score(criteria, stage) for stage in JUDGED_STAGES}


def verdict_pairs(answers: Iterable[GoldJudgement], of: str) -> list[tuple[float, float]]:
    """(expected, given) of every answer about a criterion, or about the criteria of a stage that a judge decides."""
    return [
        (wanted.verdict, given.verdict)
        for answer in answers
        for name, wanted in answer.gold.expected.items()
        if (given := answer.criteria.get(name)) and of in (name, given.stage)
    ]


def scorer_pairs(answers: Iterable[GoldJudgement], stage: JudgedStage) -> list[tuple[float, float]]:
    """Verdicts of the first two readers on every judged criterion of a stage that both scored."""
    stages = {rule.id: rule.stage for answer in answers for rule in answer.rubric.criteria}
    return [
        (wanted.scorers[0], wanted.scorers[1])
        for answer in answers
        for name, wanted in answer.gold.expected.items()
        if len(wanted.scorers) > 1 and stages.get(name) == stage
    ]


def member_ratings(answers: Sequence[GoldJudgement], stage: JudgedStage) -> list[list[float]]:
    """Verdicts of each member and repeat on every criterion of a stage, NaN where it gave none."""
    names = dict.fromkeys(member.judge for answer in answers for member in answer.members)
    return [
        [
            given.verdict if (given := voices.get(name, {}).get(rule.id)) else math.nan
            for answer in answers
            for voices in [{member.judge: member.criteria for member in answer.members}]
            for rule in answer.rubric.judged(answer.gold.tier)
            if rule.stage == stage
        ]
        for name in names
    ]


def stage_figures(answers: Sequence[GoldJudgement], weights: Mapping[JudgedStage, float]) -> list[StageFigures]:
    """Errors of S1, S2, S3 and of their weighted sum, each over the transcripts that have a valid score."""
    errors: dict[str, list[float]] = {stage: [] for stage in (*JUDGED_STAGES, JUDGED)}
    for answer in answers:
        wanted = expected_stages(answer.gold, answer.rubric)
        differences = {stage: answer.stages[stage] - wanted[stage] for stage in JUDGED_STAGES if stage in answer.stages}
        for stage, difference in differences.items():
            errors[stage].append(difference)
        if len(differences) == len(JUDGED_STAGES):
            errors[JUDGED].append(sum(weights[stage] * difference for stage, difference in differences.items()))
    return [_stage_figures(stage, values) for stage, values in errors.items()]


def _stage_figures(stage: str, errors: list[float]) -> StageFigures:
    if not errors:
        return StageFigures(stage=stage, n=0, mae=None, bias=None)
    import numpy as np

    values = np.asarray(errors)
    sizes = np.abs(values)
    figures = StageFigures(
        stage=stage,
        n=len(errors),
        exact=float((sizes < EXACT).mean()),
        mae=float(sizes.mean()),
        bias=float(values.mean()),
    )
    if len(errors) < MIN_TRANSCRIPTS:
        return figures
    drawn = values[np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))]
    ends = np.percentile([np.abs(drawn).mean(axis=1), drawn.mean(axis=1)], [2.5, 97.5], axis=1).tolist()
    names = (("mae_low", "bias_low"), ("mae_high", "bias_high"))
    return figures.model_copy(update=dict(zip(chain(*names), chain(*ends), strict=True)))


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


def _disagreements(answers: Iterable[GoldJudgement]) -> Iterator[Disagreement]:
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


def _member_figures(members: Sequence[GoldJudgement], weights: Mapping[JudgedStage, float]) -> Iterator[MemberFigures]:
    for name in dict.fromkeys(answer.judge for answer in members):
        own = [answer for answer in members if answer.judge == name]
        yield MemberFigures(
            judge=name,
            stages=stage_figures(own, weights),
            invalid_share=sum(len(answer.problems) for answer in own) / (3 * len(own)),
            n_weak=sum(answer.n_weak for answer in own),
            cost_usd=sum_costs([answer.cost_usd for answer in own]),
        )
