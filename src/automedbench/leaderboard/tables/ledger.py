"""The ledger: one row per scored run, from which every other table can be recomputed."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from automedbench.base.files import digest_of
from automedbench.base.records import ScoreRecord
from automedbench.leaderboard.entries import has_failed, value_of

_MICRO = Decimal("0.000001")


@dataclass(frozen=True)
class RunRow:
    """One run with its scores, what it used, and the recipe of its scores."""

    agent: str
    track: str
    task: str
    tier: str
    repeat: int
    model: str
    outcome: str
    disqualified: bool
    failed: bool
    overall: float
    agentic: float
    task_score: float
    s1: float
    s2: float
    s3: float
    s4: float
    s5: float
    quality_name: str
    quality: float
    completion_rate: float
    valid_rate: float
    medal: str
    n_case_scores: int
    error_codes: str
    n_findings: int
    turns: int
    wall_s: float
    api_s: float
    exec_s: float
    n_exec: int
    n_exec_failed: int
    tokens_prompt: int
    tokens_cached: int
    tokens_completion: int
    tokens_reasoning: int
    tokens_total: int
    tokens_estimated: bool
    cost_usd: Decimal | None
    sandbox: str
    network: str
    image_sha256: str | None
    judge: str
    judge_kind: str
    n_judgements: int
    judge_spread_s1: float | None
    judge_spread_s2: float | None
    judge_spread_s3: float | None
    judge_tokens: int
    judge_cost_usd: Decimal | None
    task_version: int
    cases_sha256: str
    track_version: int
    rubric_version: int
    code_version: str
    sources: str | None


def ledger_row(score: ScoreRecord) -> RunRow:
    """One row of ``runs.csv``; money to the micro-dollar."""
    totals, tokens, recipe = score.totals, score.totals.tokens, score.recipe
    return RunRow(
        agent=score.run.agent,
        track=score.track,
        task=score.run.task,
        tier=score.run.tier,
        repeat=score.run.repeat,
        model=score.model,
        outcome=score.outcome,
        disqualified=score.disqualified,
        failed=has_failed(score),
        overall=value_of(score, "overall"),
        agentic=value_of(score, "agentic"),
        task_score=value_of(score, "task"),
        s1=value_of(score, "s1"),
        s2=value_of(score, "s2"),
        s3=value_of(score, "s3"),
        s4=value_of(score, "s4"),
        s5=value_of(score, "s5"),
        quality_name=score.quality_name,
        quality=score.quality,
        completion_rate=score.completion_rate,
        valid_rate=score.valid_rate,
        medal=score.medal,
        n_case_scores=len(score.case_scores or []),
        error_codes=" ".join(sorted({error.code for error in score.error_codes})),
        n_findings=score.n_findings,
        turns=totals.turns,
        wall_s=totals.wall_s,
        api_s=totals.api_s,
        exec_s=totals.exec_s,
        n_exec=totals.n_exec,
        n_exec_failed=totals.n_exec_failed,
        tokens_prompt=tokens.prompt,
        tokens_cached=tokens.cached,
        tokens_completion=tokens.completion,
        tokens_reasoning=tokens.reasoning,
        tokens_total=tokens.total,
        tokens_estimated=tokens.estimated,
        cost_usd=_money(totals.cost_usd),
        sandbox=score.enforced.backend,
        network=score.enforced.network,
        image_sha256=score.enforced.image_sha256,
        judge=recipe.judge,
        judge_kind=recipe.judge_kind,
        n_judgements=len(score.panel) or 1,
        judge_spread_s1=score.judge_spread.get("S1"),
        judge_spread_s2=score.judge_spread.get("S2"),
        judge_spread_s3=score.judge_spread.get("S3"),
        judge_tokens=score.judge_tokens,
        judge_cost_usd=_money(score.judge_cost_usd),
        task_version=recipe.task_version,
        cases_sha256=recipe.cases_sha256,
        track_version=recipe.track_version,
        rubric_version=recipe.rubric_version,
        code_version=recipe.code_version,
        sources=digest_of(score.sources) if score.sources else None,
    )


def _money(usd: str | None) -> Decimal | None:
    return None if usd is None else Decimal(usd).quantize(_MICRO)
