"""Task metrics, and the row of the leaderboard."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from automedbench.base.records.base import JudgedStage, JudgeKind, Model, Money, Number, Outcome, RunId, Score, Sha256
from automedbench.base.records.judge import ErrorCode
from automedbench.base.records.run import Enforced, Totals


class CaseScore(Model):
    """Metrics of one case; ``detail`` is track-specific and meant for the case viewer."""

    case: str
    status: Literal["valid", "malformed", "missing"]
    metrics: dict[str, Number | None]
    detail: dict[str, Any] = Field(default_factory=dict)


class Verification(Model):
    """Result of computing the same metric with an independent library."""

    library: str
    value: Number
    difference: Number
    tolerance: Number


class DetailReport(Model):
    """``D/detail_report.json``: task metrics per case, per group and in aggregate."""

    schema_: Literal["automedbench/detail-report/1"] = Field("automedbench/detail-report/1", alias="schema")
    run: RunId
    track: str
    track_version: int
    task_version: int
    settings: dict[str, Any] = Field(description="metric settings of the card, complete")
    quality_name: str
    quality: Score = Field(description="the track's metric over all expected cases")
    completion_rate: Score
    task_score: Score
    medal: str
    metrics: dict[str, Number | None] = Field(description="aggregate diagnostics; null where undefined")
    groups: dict[str, dict[str, Number | None]] = Field(description="per class, target or question type")
    cases: list[CaseScore]
    notes: list[str] = Field(default_factory=list, description="what a reader of the numbers must know")
    verification: Verification | None = None


class Recipe(Model):
    """Everything a score depends on."""

    task_version: int
    cases_sha256: Sha256
    track_version: int
    settings: dict[str, Any]
    rubric_version: int
    judge: str
    judge_kind: JudgeKind
    image_sha256: Sha256 | None
    code_version: str


class Scores(Model):
    """The numbers of one run, before or after the penalty of a disqualification."""

    s1: Score
    s2: Score
    s3: Score
    s4: Score
    s5: Score
    agentic: Score
    task: Score
    overall: Score


class ScoreRecord(Model):
    """``D/score.json``: one row of the leaderboard."""

    schema_: Literal["automedbench/score/1"] = Field("automedbench/score/1", alias="schema")
    run: RunId
    track: str
    model: str
    outcome: Outcome
    disqualified: bool
    failed: bool = Field(description="no complete final submission")
    scores: Scores
    unpenalised: Scores | None = Field(description="of a disqualified run, for the record only")
    quality_name: str
    quality: Score
    completion_rate: Score
    valid_rate: Score
    medal: str
    taxonomy: Literal["cause-v2"] = "cause-v2"
    error_codes: list[ErrorCode]
    n_findings: int
    case_scores: list[Score] | None = Field(
        None,
        description="what each expected case adds to the task score, in manifest order, four decimals; null where "
        "it is no mean over cases",
    )
    panel: dict[str, dict[JudgedStage, Score]] = Field(
        default_factory=dict, description="<judge>#<repeat> → its valid stage scores, for agreement"
    )
    judge_spread: dict[JudgedStage, Number | None] = Field(default_factory=dict)
    judge_tokens: int = Field(0, description="apart from what the run used")
    judge_cost_usd: Money | None = Field(None, description="apart from what the run cost; null when unknown")
    totals: Totals
    enforced: Enforced
    recipe: Recipe
    sources: dict[str, Sha256] = Field(
        default_factory=dict, description="record of the run (run.json …) → digest of the file that was scored"
    )
