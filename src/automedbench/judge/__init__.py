"""Judging stages S1–S3: a rubric, the evidence of a run, and judges that must quote it.

A judgement is valid only as a whole: every criterion answered once, with an allowed verdict, and every verdict above 0
with a quote that stands in the evidence. Anything else is asked again and then fails the job, never becoming a number.
"""

from __future__ import annotations

from pathlib import Path

from automedbench.errors import ConfigError, JudgeError
from automedbench.files import read_record, write_record
from automedbench.judge.evidence import Evidence, collect_evidence, quote_exists
from automedbench.judge.heuristic import HeuristicJudge
from automedbench.judge.protocol import Judge
from automedbench.judge.rubric import JUDGED_STAGES, Rubric, RubricCriterion, load_rubric
from automedbench.records import Conversation, Criterion, JudgedStage, JudgeRecord, Tier
from automedbench.yamlfile import suggestion

__all__ = ["Judge", "get_judge", "judge_conversation", "judge_run", "load_rubric", "stage_score"]

TRIES = 3
"""How often a judge is asked before the job fails (the first answer and two more)."""

_JUDGES: dict[str, type[HeuristicJudge]] = {"heuristic": HeuristicJudge}


def get_judge(name: str) -> Judge:
    """The judge of that name; raises ConfigError when there is none."""
    try:
        return _JUDGES[name]()
    except KeyError as error:
        raise ConfigError([f"judge: no judge '{name}'{suggestion(name, list(_JUDGES))}"]) from error


def judge_conversation(conversation: Path, rubrics: Path, track: str, judge: str, out: Path) -> None:
    """Judge one run from its files and write ``judge.json``; raises ConfigError or JudgeError."""
    rubric, record = load_rubric(rubrics, track), read_record(conversation, Conversation)
    write_record(out, judge_run(record, rubric, record.run.tier, get_judge(judge)))


def judge_run(conversation: Conversation, rubric: Rubric, tier: Tier, judge: Judge) -> JudgeRecord:
    """Ask ``judge`` until its answer is valid, then apply dependencies and the tier's credits (in this order).

    Raises JudgeError when no answer is valid.
    """
    verdicts = _ask(judge, collect_evidence(conversation), rubric, tier)
    criteria = _apply_credits(_apply_needs(verdicts, rubric), rubric, tier)
    return JudgeRecord(
        run=conversation.run,
        judge=judge.id,
        kind=judge.kind,
        rubric_version=rubric.version,
        criteria=criteria,
        stages={stage: stage_score(criteria, stage) for stage in JUDGED_STAGES},
        tokens=judge.tokens,
        cost_usd=judge.cost_usd,
    )


def stage_score(criteria: list[Criterion], stage: JudgedStage) -> float:
    """Mean verdict of a stage, two decimals (track-detection.md E: S1 = round(sum/6, 2), S2 = round(sum/5, 2)).

    S3 has one criterion, so its score is that level.
    """
    verdicts = [criterion.verdict for criterion in criteria if criterion.stage == stage]
    return round(sum(verdicts) / len(verdicts), 2)


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


def _ask(judge: Judge, evidence: Evidence, rubric: Rubric, tier: Tier) -> dict[str, Criterion]:
    problems: list[str] = []
    for _ in range(TRIES):
        answer = judge.judge(evidence, rubric, tier)
        problems = answer_problems(answer, evidence, rubric, tier)
        if not problems:
            return {criterion.id: criterion for criterion in answer}
    raise JudgeError(
        f"Judge {judge.id} gave no valid answer in {TRIES} tries; the last had {len(problems)} problems.\n"
        f"First: {problems[0]}\nNo score was written. Run the same command again, or choose another judge."
    )


def _apply_needs(verdicts: dict[str, Criterion], rubric: Rubric) -> dict[str, Criterion]:
    """A criterion is 0 without the one it needs."""
    needs = {rule.id: rule.needs for rule in rubric.criteria if rule.needs}
    return {
        name: _withdraw(criterion, needs[name])
        if name in needs and needs[name] in verdicts and verdicts[needs[name]].verdict == 0
        else criterion
        for name, criterion in verdicts.items()
    }


def _withdraw(criterion: Criterion, needed: str) -> Criterion:
    if criterion.verdict == 0:
        return criterion
    reason = f"0 because {needed} is 0; judged {criterion.verdict:g} by itself: {criterion.reason}"
    return criterion.model_copy(update={"verdict": 0.0, "reason": reason})


def _apply_credits(verdicts: dict[str, Criterion], rubric: Rubric, tier: Tier) -> list[Criterion]:
    """All criteria in the rubric's order; those the tier credits are 1."""
    return [_credited(rule, tier) if tier in rule.auto_tiers else verdicts[rule.id] for rule in rubric.criteria]


def _credited(rule: RubricCriterion, tier: Tier) -> Criterion:
    return Criterion(
        id=rule.id, stage=rule.stage, verdict=max(rule.values), auto=True, reason=f"credited in the {tier} tier"
    )
