"""The heuristic judge: deterministic rules over plan, code, exit codes and files. For tests, demos and key-less use.

It believes files and executed code, never claims: printed text, comments, failed or refused code, code that may fail
unseen, and plan lines that stand in the brief earn nothing. Its verdicts are labelled and never mixed with those of a
language model; how far they agree with the gold set stands in docs/judge-evaluation.md.
Rules: track-segmentation.md H.5 and track-detection.md H (ours; the public implementation has no such judge).
"""

from __future__ import annotations

from automedbench.base.records import Criterion, JudgeKind, Stage, Tier, Tokens
from automedbench.judge.evidence import Evidence, quote_exists
from automedbench.judge.heuristic import plan_rules, setup_rules
from automedbench.judge.heuristic.view import Judgement, Verdict, View, code_line
from automedbench.judge.rubric import Rubric
from automedbench.judge.trace import Event, find_check, find_checks, find_pilot, full_run, words_of
from automedbench.reading.code import Spot

HEURISTIC = "heuristic-2"
"""Raised when a verdict could change: every run is then judged again."""


class HeuristicJudge:
    """The rules as a judge."""

    id = HEURISTIC
    kind: JudgeKind = "heuristic"
    tokens = Tokens()
    cost_usd: str | None = "0"

    def judge(self, evidence: Evidence, rubric: Rubric, tier: Tier) -> list[Criterion]:
        """One verdict per judged criterion; a criterion without a rule here is not earned."""
        view = View(evidence, rubric.vocabulary)
        return [
            _criterion(item.id, item.stage, _quotable(_rule(item.id)(view), evidence)) for item in rubric.judged(tier)
        ]


def _criterion(name: str, stage: Stage, verdict: Verdict) -> Criterion:
    return Criterion(
        id=name, stage=stage, verdict=verdict.value, quote=verdict.quote, turn=verdict.turn, reason=verdict.reason
    )


def _quotable(verdict: Verdict, evidence: Evidence) -> Verdict:
    """Nothing is earned on a line that is too short or too odd to be quoted."""
    if verdict.value == 0 or quote_exists(evidence, verdict.quote, verdict.turn):
        return verdict
    return Verdict(0, f"{verdict.reason}, but no line can be quoted for it")


# --- S3 ---------------------------------------------------------------------------------------------------------


def validated(view: View) -> Verdict:
    """1: one case, its output read back and checked, then at least two further cases; ½: one of the two; else 0.

    Where a track asks for more than form (``vocabulary.form``), a check of nothing but form leaves it at ½.
    """
    words = view.vocabulary.validation
    start = find_pilot(view.events, words)
    end = full_run(view.events, start, view.evidence.n_cases) if start is not None else None
    if start is None or end is None:
        return _check_only(view, words)
    between = view.events[start:end]
    if check := _full_check(between, view):
        return view.found(1.0, "one case first, its output read back and checked, then the full run", *check)
    if check := find_check(between, words):
        return view.found(0.5, "one case first, but only the form of its output was checked", *check)
    pilot = view.events[start]
    quote = code_line(pilot.call.code, " ".join(sorted(pilot.cases)))
    return Verdict(0.5, "one case first, but its output was not read back and checked", quote, pilot.call.turn)


def _full_check(events: list[Event], view: View) -> tuple[Event, Spot] | None:
    """The first check that looks at more than form."""
    content = frozenset(view.vocabulary.validation) - frozenset(view.vocabulary.form)
    for event, spot in find_checks(events, view.vocabulary.validation):
        if spot in event.facts.shell_checks or words_of(spot) & content:
            return event, spot
    return None


def _check_only(view: View, words: list[str]) -> Verdict:
    if check := find_check(view.events, words):
        return view.found(0.5, "outputs were read back and checked, but no case was run on its own first", *check)
    return Verdict(0.0, "neither a case on its own nor a check that reads an output back")


RULES: dict[str, Judgement] = {
    "s1a": plan_rules.plan_written,
    "s1b": plan_rules.pipeline_described,
    "s1c": plan_rules.method_fits,
    "s1d": plan_rules.three_candidates,
    "s1e": plan_rules.plot_exists,
    "s1f": plan_rules.plot_shows_pipeline,
    "s2a": setup_rules.weights_obtained,
    "s2b": setup_rules.input_inspected,
    "s2c": setup_rules.environment_works,
    "s2d": setup_rules.few_setup_failures,
    "s2e": setup_rules.model_on_gpu,
    "s3": validated,
}


def _rule(name: str) -> Judgement:
    return RULES.get(name, lambda _view: Verdict(0, f"the heuristic judge has no rule for {name}"))
