"""Verdicts as stage scores: criteria that need others, credits of a tier, and the mean of a stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from automedbench.base.records import Criterion, JudgedStage, Tier
from automedbench.judge.evidence import Evidence, quote_exists
from automedbench.judge.rubric import Rubric, RubricCriterion


def stage_score(criteria: Iterable[Criterion], stage: JudgedStage) -> float:
    """Mean verdict of a stage, two decimals (track-detection.md E: S1 = round(sum/6, 2), S2 = round(sum/5, 2)).

    S3 has one criterion, so its score is that level.
    """
    verdicts = [criterion.verdict for criterion in criteria if criterion.stage == stage]
    return round(sum(verdicts) / len(verdicts), 2)


def settled(verdicts: Mapping[str, Criterion], rubric: Rubric, tier: Tier) -> list[Criterion]:
    """All criteria in the rubric's order: a criterion is 0 without the one it needs; then the tier's credits."""
    return apply_credits(apply_needs(verdicts, rubric), rubric, tier)


def apply_needs(verdicts: Mapping[str, Criterion], rubric: Rubric) -> dict[str, Criterion]:
    """A criterion is 0 without the one it needs."""
    needs = {rule.id: rule.needs for rule in rubric.criteria if rule.needs}
    return {
        name: _withdraw(criterion, needs[name])
        if name in needs and needs[name] in verdicts and verdicts[needs[name]].verdict == 0
        else criterion
        for name, criterion in verdicts.items()
    }


def apply_credits(verdicts: Mapping[str, Criterion], rubric: Rubric, tier: Tier) -> list[Criterion]:
    """The criteria that there are verdicts on and those that the tier credits, which are 1; in the rubric's order."""
    return [
        credited(rule, tier) if tier in rule.auto_tiers else verdicts[rule.id]
        for rule in rubric.criteria
        if tier in rule.auto_tiers or rule.id in verdicts
    ]


def credited(rule: RubricCriterion, tier: Tier) -> Criterion:
    """A criterion that the tier grants without judging."""
    return Criterion(
        id=rule.id, stage=rule.stage, verdict=max(rule.values), auto=True, reason=f"credited in the {tier} tier"
    )


def answer_problems(answer: list[Criterion], evidence: Evidence, rubric: Rubric, tier: Tier) -> list[str]:
    """What makes a judge's answer invalid, one line each; empty when it is valid."""
    asked = {criterion.id: criterion for criterion in rubric.judged(tier)}
    given = [criterion.id for criterion in answer]
    problems = [f"{name}: no verdict" for name in asked if name not in given]
    problems += [f"{name}: answered twice" for name in sorted({name for name in given if given.count(name) > 1})]
    for criterion in answer:
        rule = asked.get(criterion.id)
        problem = "was not asked" if rule is None else _verdict_problem(criterion, rule, evidence)
        problems += [f"{criterion.id}: {problem}"] if problem else []
    return problems


def _verdict_problem(criterion: Criterion, rule: RubricCriterion, evidence: Evidence) -> str | None:
    if criterion.stage != rule.stage:
        return f"belongs to stage {rule.stage}, not {criterion.stage}"
    if criterion.verdict not in rule.values:
        return f"verdict {criterion.verdict:g} is none of {', '.join(f'{value:g}' for value in rule.values)}"
    if criterion.verdict > 0 and not quote_exists(evidence, criterion.quote, criterion.turn):
        return f"its evidence is not in the run: '{criterion.quote[:60]}' (turn {criterion.turn})"
    return None


def _withdraw(criterion: Criterion, needed: str) -> Criterion:
    if criterion.verdict == 0:
        return criterion
    reason = f"0 because {needed} is 0; judged {criterion.verdict:g} by itself: {criterion.reason}"
    return criterion.model_copy(update={"verdict": 0.0, "reason": reason})
