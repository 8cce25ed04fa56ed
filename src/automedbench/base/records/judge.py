"""Judgement of stages S1–S3, with its evidence."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from automedbench.base.records.base import JudgedStage, JudgeKind, Model, Money, Number, RunId, Score, Stage
from automedbench.base.records.run import Tokens

CodeName = Literal["E1", "E2", "E3", "E4", "E5"]


class Criterion(Model):
    """A judge's verdict on one criterion, with the evidence it rests on."""

    id: str
    stage: Stage
    verdict: Score
    auto: bool = Field(False, description="credited by the tier, not judged")
    valid: bool = True
    quote: str = Field("", max_length=600)
    turn: int | None = None
    reason: str = ""
    votes: list[Score] = Field(
        default_factory=list, description="verdicts of a panel's valid judgements, in their order; empty for one judge"
    )


class ErrorCode(Model):
    """One error code of taxonomy ``cause-v2`` with the line that shows it."""

    code: CodeName
    stage: Stage
    evidence: str = Field(max_length=300)
    source: Literal["rule", "judge"] = Field("rule", description="a deterministic detector, or a judge with a quote")
    detector: str = Field("", description="what found it, for example setup.unrepaired; of a judge its id")
    turn: int | None = None


class Injection(Model):
    """A passage of agent text that addresses the judge; it is masked and the judge asked again."""

    rule: str = Field(description="stable id of the pattern, for example judge.order")
    where: str = Field(description="what holds it: plan, note, code, stdout, stderr, file name, picture")
    turn: int | None = None
    passage: str = Field(max_length=300)


class Judgement(Model):
    """What one member of a panel said once about a run."""

    judge: str = Field(description="name of the member in the judges file")
    model: str
    repeat: int = Field(ge=1)
    criteria: list[Criterion] = Field(description="those it was asked; invalid ones kept with valid: false")
    stages: dict[JudgedStage, Score] = Field(description="stages with a valid answer, after needs and credits")
    invalid: dict[JudgedStage, str] = Field(default_factory=dict, description="stage → why there is no valid answer")
    error_codes: list[ErrorCode] = Field(default_factory=list)
    left_out: dict[JudgedStage, str] = Field(
        default_factory=dict, description="stage → what its window had no room for, as the judge was told"
    )
    saw_plot: bool = Field(False, description="plan.png was shown")
    masked: bool = Field(False, description="passages that address the judge were masked")
    requests: int = 0
    cached: int = Field(0, description="answers that came from the cache and cost nothing")
    tokens: Tokens = Tokens()
    cost_usd: Money | None = None


class JudgeRecord(Model):
    """``D/judge.json``: S1–S3 with evidence; kept apart from every number an agent can influence."""

    schema_: Literal["automedbench/judge/1"] = Field("automedbench/judge/1", alias="schema")
    run: RunId
    judge: str = Field(description="id of the judge or panel, for example heuristic-1")
    kind: JudgeKind
    rubric_version: int
    criteria: list[Criterion]
    stages: dict[JudgedStage, Score] = Field(description="of a panel the mean over its valid judgements")
    spread: dict[JudgedStage, Number | None] = Field(
        default_factory=dict, description="of a panel: sample standard deviation between judgements; null for one"
    )
    judgements: list[Judgement] = Field(default_factory=list, description="of a panel, one per member and repeat")
    injections: list[Injection] = Field(default_factory=list)
    error_codes: list[ErrorCode] = Field(default_factory=list, description="assigned by most of the judgements")
    tokens: Tokens = Tokens()
    cost_usd: Money | None = None
