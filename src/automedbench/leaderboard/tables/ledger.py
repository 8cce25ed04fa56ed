"""The ledger: one row per scored run, from which every other table can be recomputed."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from automedbench.base.files import digest_of
from automedbench.base.records import ScoreRecord
from automedbench.leaderboard.entries import has_failed, value_of
from automedbench.leaderboard.tables.columns import TABLES

_MICRO = Decimal("0.000001")


def ledger_row(score: ScoreRecord) -> dict[str, Any]:
    """One row of ``runs.csv``: what the record says under the column's name, or what stands here; money in USD."""
    found = dict(score) | dict(score.run) | dict(score.totals) | dict(score.recipe) | _computed(score)
    return {name: found[name] for name in TABLES["runs"].columns}


def _computed(score: ScoreRecord) -> dict[str, Any]:
    tokens, enforced, spread = score.totals.tokens, score.enforced, score.judge_spread
    return {
        **{name: value_of(score, name) for name in ("overall", "agentic", "s1", "s2", "s3", "s4", "s5")},
        "task_score": value_of(score, "task"),
        "failed": has_failed(score),
        "n_case_scores": len(score.case_scores or []),
        "error_codes": " ".join(sorted({error.code for error in score.error_codes})),
        **{f"tokens_{name}": value for name, value in tokens},
        "tokens_total": tokens.total,
        "cost_usd": _money(score.totals.cost_usd),
        "sandbox": enforced.backend,
        "network": enforced.network,
        "image_sha256": enforced.image_sha256,
        "n_judgements": len(score.panel) or 1,
        **{f"judge_spread_{stage.lower()}": spread.get(stage) for stage in ("S1", "S2", "S3")},
        "judge_cost_usd": _money(score.judge_cost_usd),
        "sources": digest_of(score.sources) if score.sources else None,
    }


def _money(usd: str | None) -> Decimal | None:
    return None if usd is None else Decimal(usd).quantize(_MICRO)
