"""Panels: several language models, each asked several times, and what they agree on.

Each stage is asked about alone. Where no member has a valid answer about a stage, each is asked about a run that did
nothing: one that judges that is able to, so what the run holds is the cause, and the stage is 0. Else the judgement
fails: what no member could judge is never a number. Where a text of the run addresses the judge, each is asked a second
time with such passages masked, and the lower result counts (docs/specification.md, 9.6).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from automedbench.base.closing import Closing
from automedbench.base.endpoint.usage import tokens_in
from automedbench.base.errors import ConfigError, JudgeError
from automedbench.base.records import (
    Conversation,
    Criterion,
    Effect,
    ErrorCode,
    JudgedStage,
    Judgement,
    JudgeRecord,
    Money,
    PanelMember,
    Tier,
    Tokens,
)
from automedbench.base.yamlfile import suggestion
from automedbench.campaign.agents import JudgeModel
from automedbench.campaign.prices import compute_cost, format_money, sum_costs
from automedbench.judge.evidence import blind, collect_agent_texts, collect_evidence, mask_evidence, one_line
from automedbench.judge.panel.member import (
    TRIES,
    AnswerCache,
    Bill,
    CachedAnswer,
    JudgedRun,
    JudgeEndpoint,
    Member,
    Question,
    StageAnswer,
)
from automedbench.judge.panel.structured import MAX_REASON
from automedbench.judge.prompt import PROMPT_VERSION
from automedbench.judge.rubric import (
    JUDGED_STAGES,
    Rubric,
    RubricCriterion,
    apply_needs,
    credit_criterion,
    settle_verdicts,
    stage_score,
)
from automedbench.reading.injection import find_injections

DECIMALS = 4
UNJUDGEABLE = "no judge could judge this stage because of what the run contains"


class NoValidAnswer(JudgeError):
    """No member has a valid answer about a stage; what asking cost until then is told too."""

    def __init__(self, message: str, stage: JudgedStage, tokens: Tokens, cost_usd: Money | None) -> None:
        super().__init__(message)
        self.stage, self.tokens, self.cost_usd = stage, tokens, cost_usd


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


def _common(rule: RubricCriterion, judgements: Sequence[Judgement]) -> Criterion:
    """The mean verdict of valid judgements, all votes, and the words of one nearest to the mean."""
    given = [item for judgement in judgements for item in judgement.criteria if item.id == rule.id and item.valid]
    mean = _mean([item.verdict for item in given])
    nearest = min(given, key=lambda item: (abs(item.verdict - mean), mean > 0 and not item.quote))
    votes = [item.verdict for item in given] if len(given) > 1 else []
    return nearest.model_copy(update={"verdict": mean, "votes": votes})


def _mean(values: Sequence[float]) -> float:
    return round(math.fsum(values) / len(values), DECIMALS)


def panel_id(names: Sequence[str], repeats: int) -> str:
    """Name of a panel in records, for example ``panel:a+b*2``."""
    return f"panel:{'+'.join(names)}{f'*{repeats}' if repeats > 1 else ''}"


OpenEndpoint = Callable[[str, JudgeModel, Path | None], JudgeEndpoint]


class Panel(Closing):
    """Members and how often each judges; a context manager that closes connections."""

    def __init__(self, members: Sequence[Member], repeats: int) -> None:
        self.members, self.repeats = tuple(members), repeats

    def close(self) -> None:
        """Close the members' connections."""
        for member in self.members:
            member.close()

    @property
    def id(self) -> str:
        """Its name in records."""
        return panel_id([member.name for member in self.members], self.repeats)


def open_panel(
    judges: Mapping[str, JudgeModel],
    names: Sequence[str],
    *,
    repeats: int = 1,
    cache: Path | None = None,
    open_endpoint: OpenEndpoint = JudgeEndpoint,
) -> Panel:
    """The panel of these judges; no key is read and nothing is sent before the first question.

    ``cache``: folder of answers, outside every run; None keeps none. Raises ConfigError with every problem.
    """
    there = f"; there are {', '.join(judges)}" if judges else "; the judges file contains none"
    problems = [
        f"--panel {name}: no such judge{suggestion(name, list(judges))}{there}" for name in names if name not in judges
    ]
    problems += ["--panel: names a judge twice; use --repeats"] if len(set(names)) < len(names) else []
    if problems:
        raise ConfigError(problems)
    shared = cache / "endpoints" if cache is not None else None
    answers = AnswerCache(cache, CachedAnswer)
    members = [Member(name, judges[name], open_endpoint(name, judges[name], shared), answers) for name in names]
    return Panel(members, repeats)


def judge_by_panel(
    conversation: Conversation, rubric: Rubric, tier: Tier, panel: Panel, plot: bytes | None, effect: Effect
) -> JudgeRecord:
    """Judge a run by a panel; ``plot`` holds plan.png as the import role wrote it anew, ``effect`` is that of the case.

    Raises JudgeError when no member can judge a stage of any run, InfrastructureError when an endpoint fails,
    ConfigError.
    """
    evidence = blind(collect_evidence(conversation), conversation.run)
    injections = find_injections(collect_agent_texts(evidence))
    masked = mask_evidence(evidence) if injections else None
    sessions = [PanelSession(member, repeat) for member in panel.members for repeat in range(1, panel.repeats + 1)]
    picture = plot if any(member.judge.images for member in panel.members) else None
    run = JudgedRun(evidence, rubric, tier, conversation.run.task, picture, conversation.gpu, effect)
    again = None if masked is None else replace(run, evidence=masked)
    for stage in JUDGED_STAGES:
        for session in sessions:
            session.decide(Question(run, stage), Question(again, stage) if again else None)
        _require_one(Question(run, stage), sessions, panel)
    judgements = [session.judgement(rubric, tier, conversation.gpu) for session in sessions]
    return JudgeRecord(
        run=conversation.run,
        judge=panel.id,
        kind="llm",
        prompt_version=PROMPT_VERSION,
        panel=[
            PanelMember(name=member.name, digest=member.judge.digest(), settings=member.judge.settings)
            for member in panel.members
        ],
        rubric_version=rubric.version,
        judgements=judgements,
        injections=injections,
        **combine_judgements(judgements, rubric, tier, panel.id),
    )


def combine_judgements(judgements: Sequence[Judgement], rubric: Rubric, tier: Tier, panel: str) -> dict[str, Any]:
    """Fields of ``judge.json`` that follow from a panel's judgements.

    Stages are means over the judgements with a valid answer about them, four decimals; spread is their sample standard
    deviation, None below two.
    """
    found = {stage: [item.stages[stage] for item in judgements if stage in item.stages] for stage in JUDGED_STAGES}
    scores = {stage: values for stage, values in found.items() if values}
    return {
        "criteria": [
            credit_criterion(rule, tier) if tier in rule.auto_tiers else _common(rule, judgements)
            for rule in rubric.criteria
        ],
        "stages": {stage: _mean(values) for stage, values in scores.items()},
        "spread": {
            stage: round(statistics.stdev(values), DECIMALS) if len(values) > 1 else None
            for stage, values in scores.items()
        },
        "error_codes": common_codes(judgements, panel),
        "tokens": sum((judgement.tokens for judgement in judgements), Tokens()),
        "cost_usd": sum_costs([judgement.cost_usd for judgement in judgements]),
    }


@dataclass
class PanelSession:
    """One member judging once: its answers so far."""

    member: Member
    repeat: int
    bill: Bill = field(default_factory=Bill)
    answers: dict[JudgedStage, StageAnswer] = field(default_factory=dict)
    masked: bool = False

    def decide(self, question: Question, again: Question | None) -> None:
        """Ask about a stage, and again where masking changes what this judge is shown; the lower result counts."""
        if not question.criteria:
            self.answers[question.stage] = StageAnswer()
            return
        answer = self.member.ask(question, self.repeat, self.bill)
        shown = self.member.messages
        if again is not None and not answer.problem and shown(question)[0] != shown(again)[0]:
            self.masked = True
            masked = self.member.ask(again, self.repeat, self.bill)
            # Without a valid result on masked evidence there is none, for the other may be bought.
            if masked.problem or _earned(question, masked) < _earned(question, answer):
                answer = masked
        self.answers[question.stage] = answer

    def judgement(self, rubric: Rubric, tier: Tier, gpu: bool) -> Judgement:
        """Record of the session; ``gpu``: whether the run had one."""
        invalid = {stage: answer.problem for stage, answer in self.answers.items() if answer.problem}
        valid = {stage: answer for stage, answer in self.answers.items() if not answer.problem}
        judged = {item.id: item for answer in valid.values() for item in answer.criteria}
        criteria = settle_verdicts(judged, rubric, tier, gpu=gpu)
        rejected = [
            item.model_copy(update={"valid": False}) for stage in invalid for item in self.answers[stage].criteria
        ]
        return Judgement(
            judge=self.member.name,
            model=self.member.judge.model,
            repeat=self.repeat,
            criteria=_in_order([item for item in criteria if not item.auto] + rejected, rubric),
            stages={stage: stage_score(criteria, stage) for stage in valid},
            invalid=invalid,
            error_codes=_once([code for answer in valid.values() for code in answer.codes], self.member.name),
            n_weak=sum(item.weak for item in judged.values()),
            left_out={stage: answer.left_out for stage, answer in self.answers.items() if answer.left_out},
            saw_plot=any(answer.saw_plot for answer in self.answers.values()),
            masked=self.masked,
            requests=self.bill.requests,
            cached=self.bill.cached,
            tokens=tokens_in(self.bill.spent),
            cost_usd=format_money(compute_cost(self.bill.spent, self.member.judge.pricing)),
            wasted_tokens=tokens_in(self.bill.wasted),
            wasted_usd=format_money(compute_cost(self.bill.wasted, self.member.judge.pricing)),
        )


def _earned(question: Question, answer: StageAnswer) -> float:
    verdicts = apply_needs({item.id: item for item in answer.criteria}, question.run.rubric)
    return sum(item.verdict for item in verdicts.values())


def _require_one(question: Question, sessions: Sequence[PanelSession], panel: Panel) -> None:
    """Require a valid answer: where none is, judges that can judge an empty run give 0, with the reason.

    Raises JudgeError when there is none.
    """
    stage = question.stage
    if not all(session.answers[stage].problem for session in sessions):
        return
    blank = Question(question.run.blank, stage)
    able = [session for session in sessions if not session.member.ask(blank, session.repeat, session.bill).problem]
    for session in able:
        session.answers[stage] = _unjudgeable(question, str(session.answers[stage].problem))
    if not able:
        problems = [f"{session.member.name}#{session.repeat}: {session.answers[stage].problem}" for session in sessions]
        cost = sum_costs([format_money(compute_cost(one.bill.spent, one.member.judge.pricing)) for one in sessions])
        paid = "" if cost is None else f", at {cost} USD"
        raise NoValidAnswer(
            f"No judge of {panel.id} gave a valid answer about {stage} in {TRIES} tries{paid}. {problems[0]}\n"
            "No score was written, and valid answers are kept. Run the same command again, or choose another judge.",
            stage,
            sum((tokens_in(session.bill.spent) for session in sessions), Tokens()),
            cost,
        )


def _unjudgeable(question: Question, problem: str) -> StageAnswer:
    """0 for every criterion: the judge answers about other runs, so what this one holds is the cause."""
    reason = one_line(f"0: {UNJUDGEABLE} ({problem})")[:MAX_REASON]
    criteria = [Criterion(id=rule.id, stage=rule.stage, verdict=0.0, reason=reason) for rule in question.criteria]
    return StageAnswer(criteria)


def _in_order(criteria: Sequence[Criterion], rubric: Rubric) -> list[Criterion]:
    places = {rule.id: place for place, rule in enumerate(rubric.criteria)}
    return sorted(criteria, key=lambda item: places[item.id])


def _once(codes: Sequence[ErrorCode], judge: str) -> list[ErrorCode]:
    """The first of each code and stage, signed by the judge."""
    found: dict[tuple[str, str], ErrorCode] = {}
    for code in codes:
        found.setdefault((code.code, code.stage), code.model_copy(update={"detector": judge}))
    return sorted(found.values(), key=lambda code: (code.stage, code.code))
