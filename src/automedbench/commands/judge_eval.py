"""Measure a judge against the gold set: exactness, error and bias of stages, agreement, and each criterion's F1.

Without options the heuristic judge is measured, offline. A panel of language models is asked anew about every
transcript unless --cache holds its answers. Exit code 0 also for a bad judge: the figures are the result.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from automedbench.base.errors import ConfigError
from automedbench.base.option_types import whole_number
from automedbench.base.plaintable import counted, table
from automedbench.base.records import JudgedStage
from automedbench.base.untrusted.picture import small_picture
from automedbench.campaign.agents import load_judges
from automedbench.commands._output import add_json, show
from automedbench.judge import judge_run
from automedbench.judge.evidence import neutralise
from automedbench.judge.gold import (
    MIN_TRANSCRIPTS,
    SPLITS,
    CriterionFigures,
    Disagreement,
    Evaluation,
    GoldJudgement,
    GoldTranscript,
    LevelFigures,
    StageFigures,
    evaluate,
    judge_transcript,
    load_gold,
    member_ratings,
    scorer_pairs,
    verdict_pairs,
)
from automedbench.judge.panel import Panel, open_panel
from automedbench.judge.rubric import JUDGED_STAGES, load_rubric
from automedbench.judge.rules import HeuristicJudge
from automedbench.scoring.run import AGENTIC_WEIGHTS

WEIGHTS: dict[JudgedStage, float] = {stage: AGENTIC_WEIGHTS[stage.lower()] for stage in JUDGED_STAGES}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: the judge, the gold set, and where to write."""
    parser.add_argument("--panel", nargs="+", metavar="NAME", help="judges of the judges file; default: the rules")
    parser.add_argument("--judges", type=Path, default=Path("config/judges.yaml"), help="the judges file")
    parser.add_argument(
        "--repeats", type=whole_number(1), default=1, metavar="N", help="how often each judge is asked (1)"
    )
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="kept answers of judges")
    parser.add_argument("--gold", type=Path, default=Path("config/gold"), help="folder of the gold set")
    parser.add_argument("--rubrics", type=Path, default=Path("config/rubrics"), help="folder of the rubrics")
    parser.add_argument("--track", help="only transcripts of this track")
    parser.add_argument("--split", choices=["all", *SPLITS], default="all", help="part of the gold set (all)")
    parser.add_argument("--verbose", action="store_true", help="also print every verdict that differs")
    add_json(parser)


def main(options: argparse.Namespace) -> None:
    """Measure, print, write; raises ConfigError for wrong options or gold, InfrastructureError for a dead endpoint."""
    gold = load_gold(options.gold, options.track, options.split)
    if not gold:
        raise ConfigError(
            [f"--split {options.split}: {options.gold} has no such transcript; take another split or track"]
        )
    with ExitStack() as stack:
        judge = _open(options, stack)
        found = measure(gold, options.rubrics, judge, options.split)
    more = ["", *disagreement_lines(found.disagreements)] if options.verbose else []
    show(options, found, [neutralise("\n".join([*report_lines(found), *more]))])


def _open(options: argparse.Namespace, stack: ExitStack) -> HeuristicJudge | Panel:
    if not options.panel:
        return HeuristicJudge()
    panel = open_panel(load_judges(options.judges), options.panel, repeats=options.repeats, cache=options.cache)
    return stack.enter_context(panel)


def measure(gold: Sequence[GoldTranscript], rubrics: Path, judge: HeuristicJudge | Panel, split: str) -> Evaluation:
    """Ask the judge about every transcript and compare."""
    known = {track: load_rubric(rubrics, track) for track in sorted({item.track for item in gold})}
    judged = [
        judge_transcript(
            item,
            known[item.track],
            lambda conversation, rubric, tier, plot, effect: judge_run(
                conversation, rubric, tier, judge, small_picture(plot), effect
            ),
            judge.id,
        )
        for item in gold
    ]
    found = evaluate(judge.id, judged, WEIGHTS, split, load_rubric(rubrics, "skeleton-alone"))
    return found.model_copy(update={"stages": [_with_kappa(figures, judged) for figures in found.stages]})


def _with_kappa(figures: StageFigures, answers: Sequence[GoldJudgement]) -> StageFigures:
    """Agreement beyond chance over all verdicts of a stage: with the gold, of its readers, between the judge's members.

    The weighted sum of stages has none.
    """
    from automedbench.statistics.agreement import krippendorff_alpha, weighted_kappa

    stage = next((stage for stage in JUDGED_STAGES if stage == figures.stage), None)
    pairs = verdict_pairs(answers, stage) if stage else []
    if not pairs:
        return figures
    kappa = weighted_kappa([wanted for wanted, _ in pairs], [given for _, given in pairs])
    ends = {"kappa_low": kappa.low, "kappa_high": kappa.high} if figures.n >= MIN_TRANSCRIPTS else {}
    scored = scorer_pairs(answers, stage) if stage else []
    between = weighted_kappa([one for one, _ in scored], [other for _, other in scored]).value if scored else None
    ratings = member_ratings(answers, stage) if stage else []
    alpha = krippendorff_alpha(ratings).value if len(ratings) > 1 else None
    return figures.model_copy(update={"kappa": kappa.value, "kappa_scorers": between, "alpha": alpha, **ends})


# --- text ---------------------------------------------------------------------------------------------------------


def report_lines(found: Evaluation) -> Iterator[str]:
    """The figures as plain tables."""
    cost = "unknown" if found.cost_usd is None else f"{found.cost_usd} USD"
    yield f"{found.judge} against {counted(found.n_transcripts, 'transcript')} (split: {found.split})"
    asked, tokens = counted(found.n_asked, "stage"), counted(found.tokens.total, "token")
    each = _each(found.cost_usd, found.n_transcripts * max(1, len(found.members)))
    yield f"without valid answer: {found.n_invalid} of {asked}; {tokens}, cost {cost}{each}"
    if found.n_weak:
        yield f"weak quotes: {counted(found.n_weak, 'verdict')} not earned, asked twice"
    yield from (f"  {line}" for line in found.invalid)
    yield ""
    yield from table([STAGES_HEAD, *stage_rows(found.stages)], {1, 2, 3, 5, 7, 9, 10})
    for member in found.members:
        weak, each = counted(member.n_weak, "weak quote"), _each(member.cost_usd, found.n_transcripts)
        yield f"\n{member.judge}: {member.invalid_share:.1%} without valid answer, {weak}{each}"
        yield from table([STAGES_HEAD[:7], *(row[:7] for row in stage_rows(member.stages))], {1, 2, 3, 5})
    yield ""
    yield from table([CRITERIA_HEAD, *map(criterion_row, found.criteria)], range(2, 10))
    yield f"mean F1 {number(found.mean_f1)}"
    for level in found.levels:
        yield ""
        yield from _level_lines(level)


def _each(cost_usd: str | None, n_judgements: int) -> str:
    """Cost of one judgement of one transcript."""
    return f" ({float(cost_usd) / n_judgements:.4f} USD per judgement)" if cost_usd and float(cost_usd) else ""


STAGES_HEAD = ["stage", "n", "exact", "MAE", "95 %", "bias", "95 %", "kappa", "95 %", "readers", "alpha"]
CRITERIA_HEAD = ["id", "criterion", "n", "hits", "extra", "missed", "precision", "recall", "F1", "accuracy"]


def stage_rows(stages: Sequence[StageFigures]) -> list[list[str]]:
    """Cells below ``STAGES_HEAD``."""
    return [
        [
            each.stage,
            str(each.n),
            number(each.exact),
            number(each.mae),
            _range(each.mae_low, each.mae_high),
            number(each.bias, sign=True),
            _range(each.bias_low, each.bias_high, sign=True),
            number(each.kappa),
            _range(each.kappa_low, each.kappa_high),
            number(each.kappa_scorers),
            number(each.alpha),
        ]
        for each in stages
    ]


def criterion_row(each: CriterionFigures) -> list[str]:
    """Cells below ``CRITERIA_HEAD``."""
    counts = [str(count) for count in (each.n, each.hits, each.extra, each.missed)]
    return [each.id, each.title, *counts, *map(number, (each.precision, each.recall, each.f1, each.accuracy))]


def _level_lines(level: LevelFigures) -> Iterator[str]:
    yield f"{level.id}, {counted(level.n, 'verdict')}: exact {number(level.exact)}, MAE {number(level.mae)}"
    rows = [[f"expected {name}", *map(str, row)] for name, row in zip(("0", "0.5", "1"), level.confusion, strict=True)]
    yield from table([["", "given 0", "0.5", "1"], *rows], {1, 2, 3})


def disagreement_lines(found: Sequence[Disagreement]) -> Iterator[str]:
    """Every verdict that differs from the gold, with both reasons and the quote."""
    yield f"{counted(len(found), 'verdict')} differ{'s' * (len(found) == 1)}"
    for each in found:
        given = "no valid answer" if each.given is None else f"{each.given:g}"
        yield f"{each.transcript} {each.criterion}: expected {each.expected:g}, given {given}"
        yield f"    gold:  {each.gold_reason}"
        yield f"    judge: {each.reason}"
        if each.quote:
            yield f"    quote: {each.quote}" + (f" (turn {each.turn})" if each.turn is not None else "")


def number(value: float | None, *, sign: bool = False) -> str:
    """A figure for a table; nothing where there is none."""
    return "–" if value is None else f"{value:+.3f}" if sign else f"{value:.3f}"


def _range(low: float | None, high: float | None, *, sign: bool = False) -> str:
    return "" if low is None or high is None else f"{number(low, sign=sign)} to {number(high, sign=sign)}"
