"""Consensus of a panel's judgements: means, spread, common criteria and error codes. Pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from decimal import Decimal

from automedbench.base.records import Criterion, ErrorCode, JudgedStage, Judgement, Money, Tier
from automedbench.campaign.agents import as_money
from automedbench.judge.rubric import JUDGED_STAGES, Rubric, RubricCriterion
from automedbench.judge.verdicts import credited

DECIMALS = 4


def mean_stages(judgements: Sequence[Judgement]) -> dict[JudgedStage, float]:
    """Mean of each stage over the judgements with a valid answer about it, four decimals."""
    scores = {stage: [item.stages[stage] for item in judgements if stage in item.stages] for stage in JUDGED_STAGES}
    return {stage: _mean(values) for stage, values in scores.items() if values}


def spread_of(judgements: Sequence[Judgement], stage: JudgedStage) -> float | None:
    """Sample standard deviation of a stage between valid judgements, four decimals; None below two."""
    values = [item.stages[stage] for item in judgements if stage in item.stages]
    return round(statistics.stdev(values), DECIMALS) if len(values) > 1 else None


def consensus(judgements: Sequence[Judgement], rubric: Rubric, tier: Tier) -> list[Criterion]:
    """One criterion each: the mean verdict of valid judgements, all votes, and the words of one nearest to the mean."""
    return [
        credited(rule, tier) if tier in rule.auto_tiers else _common(rule, _valid(rule, judgements))
        for rule in rubric.criteria
    ]


def common_codes(judgements: Sequence[Judgement], panel: str) -> list[ErrorCode]:
    """Error codes that more than half of the judgements assign to the same stage, with the first one's evidence."""
    voting = [item for item in judgements if item.stages]
    found: dict[tuple[str, str], list[ErrorCode]] = {}
    for judgement in voting:
        for code in judgement.error_codes:
            found.setdefault((code.stage, code.code), []).append(code)
    return [
        codes[0].model_copy(update={"detector": panel})
        for _, codes in sorted(found.items())
        if len(codes) * 2 > len(voting)
    ]


def total_cost(costs: Sequence[Money | None]) -> Money | None:
    """USD of all of them; unknown when one is."""
    return None if None in costs else as_money(sum((Decimal(cost or "0") for cost in costs), Decimal(0)))


def _valid(rule: RubricCriterion, judgements: Sequence[Judgement]) -> list[Criterion]:
    return [item for judgement in judgements for item in judgement.criteria if item.id == rule.id and item.valid]


def _common(rule: RubricCriterion, given: Sequence[Criterion]) -> Criterion:
    mean = _mean([item.verdict for item in given])
    nearest = min(given, key=lambda item: (abs(item.verdict - mean), mean > 0 and not item.quote))
    votes = [item.verdict for item in given] if len(given) > 1 else []
    return nearest.model_copy(update={"verdict": mean, "votes": votes})


def _mean(values: Sequence[float]) -> float:
    return round(math.fsum(values) / len(values), DECIMALS)
