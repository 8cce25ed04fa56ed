"""Compare two agents on the tasks and tiers that both have: differences, intervals, and what can be concluded.

Differences are A minus B, scores ×100. With --fresh B is the same agent on a fresh draw of cases. A variant and its
base (docs/treatments.md) are compared in stages, tokens, cost and time as well. Agents whose runs differ in a condition
that changes scores are not tested, unless --anyway. What the numbers mean is in docs/statistics.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.files import read_record
from automedbench.base.option_types import confidence, whole_number
from automedbench.base.plaintable import counted, table
from automedbench.base.records import HEADLINE_TIERS, TIERS, ScoreRecord
from automedbench.base.yamlfile import suggestion
from automedbench.campaign.treatments import FAULTS, find_base, find_fault, variant_name
from automedbench.commands._campaign import add_campaign_options, find_results
from automedbench.commands._output import show
from automedbench.leaderboard.conditions import BY_NAME, CHANGES, draw_name, find_differences, read_conditions
from automedbench.leaderboard.definitions import track_title
from automedbench.leaderboard.entries import BoardEntry, entry_cell, group_by, list_scores, make_samples, score_value
from automedbench.leaderboard.formats import QUANTITIES, UNKNOWN, change, percent, quantity, skill_use, span
from automedbench.leaderboard.skills import read_skill_use
from automedbench.leaderboard.tables.cells import pool_scores, tabulate_cells, tabulate_runs
from automedbench.leaderboard.tables.table import Row
from automedbench.leaderboard.tables.treatments import build_treatments
from automedbench.statistics.pairs import MIN_FLIPPED, compare_pairs, draw_gap
from automedbench.statistics.samples import MEASURES, Measure, PairedComparison, Sample, StatisticsMethod

MAX_CELLS = 3
MAX_VALUE = 60
OF_A_DRAW = ("cases", "draw", "brief", "agent's brief", "egress lists")
"""Conditions that other cases bring along."""
Comparison = dict[str, Any]
"""Of ``compare_agents``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: the agents, where the results are, which part of them, and how to pool."""
    parser.add_argument("a", metavar="A", help="an agent of the campaign")
    parser.add_argument("b", metavar="B", nargs="?", help="the agent that it is compared with; default: A with --fresh")
    parser.add_argument(
        "--fresh", type=Path, metavar="RESULTS", help="results of a fresh draw (cases.draw): the gap of A to B there"
    )
    parser.add_argument("--measure", choices=MEASURES, default="overall")
    parser.add_argument("--track", help="only this track")
    parser.add_argument("--task", help="only this task")
    parser.add_argument("--tier", choices=TIERS, help="only this tier; default: lite and standard")
    parser.add_argument("--pooling", choices=["tasks", "runs"], default="tasks")
    parser.add_argument("--confidence", type=confidence, default=0.95, help="of intervals, default 0.95")
    parser.add_argument("--resamples", type=whole_number(1), default=2000, help="of the tests, default 2000")
    parser.add_argument("--anyway", action="store_true", help="test agents whose runs differ in what changes scores")
    add_campaign_options(parser)


def main(options: argparse.Namespace) -> None:
    """Compare and print; raises ConfigError for an unknown agent and MissingDataError without a common cell."""
    from automedbench.judge.evidence import neutralise

    method = StatisticsMethod(options.pooling, options.confidence, options.resamples)
    if options.fresh is not None:
        a, b = _read_scores(options, options.a), _read_scores(options, options.b or options.a, options.fresh)
        found = compare_draws(a, b, options.measure, method, anyway=options.anyway)
        lines = gap_lines(found, method)
    elif options.b in (None, options.a):
        raise ConfigError([f"A and B are both '{options.a}'; name two agents, or --fresh with the results of a draw"])
    else:
        a, b = _read_scores(options, options.a), _read_scores(options, options.b)
        names = [name for name in _list_agents(options) if not find_fault(name) and name not in (options.a, options.b)]
        others = [_read_scores(options, name) for name in names]
        found = compare_agents(a, b, options.measure, method, others=others, anyway=options.anyway)
        lines = report_lines(found, method)
        if treatments := _compare_treatments(options, found, method):
            found["treatments"] = [row._asdict() for row in treatments]
            lines += treatment_lines(treatments, method)
    # Names and conditions come from records, which may be a third party's.
    show(options, found, [neutralise("\n".join(lines))])


def _read_scores(options: argparse.Namespace, agent: str, results: Path | None = None) -> list[ScoreRecord]:
    """The agent's scores in the part that was asked for."""
    runs, known = (results or find_results(options)) / "runs", _list_agents(options, results)
    if agent not in known:
        there = f"; there are {', '.join(known)}" if known else ""
        raise ConfigError([f"{runs}: no runs of agent '{agent}'{suggestion(agent, known)}{there}"])
    tiers = (options.tier,) if options.tier else HEADLINE_TIERS
    scores = [read_record(path, ScoreRecord) for path in sorted((runs / agent).glob("*/*/r*/score.json"))]
    return [
        score
        for score in scores
        if score.run.tier in tiers and options.track in (None, score.track) and options.task in (None, score.run.task)
    ]


def _list_agents(options: argparse.Namespace, results: Path | None = None) -> list[str]:
    """Agents with runs."""
    runs = (results or find_results(options)) / "runs"
    if not runs.is_dir():
        raise MissingDataError(f"{runs} is not a folder.\nGive the campaign's results folder with --results.")
    return sorted(folder.name for folder in runs.iterdir() if folder.is_dir())


def _compare_treatments(options: argparse.Namespace, found: Comparison, method: StatisticsMethod) -> list[Row]:
    """A variant against its base in all quantities, corrected for the base's others of its kind; nothing for others.

    A kind is all treatments, or all faults.
    """
    names = [options.a, options.b]
    variant = next((name for name in names if find_base(name) in names), None)
    if variant is None or (found["conflicts"] and not options.anyway):
        return []
    base, faulted = find_base(variant), bool(find_fault(variant))
    variants = [name for name in _list_agents(options) if find_base(name) == base and bool(find_fault(name)) == faulted]
    family = [base, *variants]
    scores = [score for name in family for score in _read_scores(options, name)]
    entries = [BoardEntry(score.run, score.track, score) for score in scores]
    rows = build_treatments(tabulate_runs(entries), read_skill_use(find_results(options), entries), method)
    return [row for row in rows if variant_name(base, row.treatment) == variant]


def _pair_runs(a: Sequence[ScoreRecord], b: Sequence[ScoreRecord]) -> list[list[BoardEntry]]:
    """Runs of both sides in the cells that both have, in a fixed order; raises MissingDataError without such a cell."""
    cells = [{(score.run.task, score.run.tier) for score in side} for side in (a, b)]
    common = cells[0] & cells[1]
    if not common:
        raise MissingDataError(
            f"A and B have no scored task and tier in common (A has {len(cells[0])}, B has {len(cells[1])}).\n"
            "Finish the same tasks for both, or choose another part (--track, --task, --tier)."
        )
    pairs = []
    for side in (a, b):
        kept = [score for score in side if (score.run.task, score.run.tier) in common]
        kept.sort(key=lambda score: (score.run.task, score.run.tier, score.run.repeat))
        pairs.append([BoardEntry(score.run, score.track, score) for score in kept])
    return pairs


def compare_draws(
    published: list[ScoreRecord],
    fresh: list[ScoreRecord],
    measure: Measure,
    method: StatisticsMethod,
    *,
    anyway: bool = False,
) -> Comparison:
    """Scores on the published draw and on a fresh one, and their gap: of all tasks, and of each, scores in [0, 1].

    Raises ConfigError for runs of the wrong draw, MissingDataError without a common cell.
    """
    for scores, draw in ((published, "published"), (fresh, "fresh")):
        if wrong := [score for score in scores if (score.recipe.draw is None) != (draw == "published")]:
            raise ConfigError(
                [f"{wrong[0].run.path} is of the {draw_name(wrong[0].recipe.draw)} draw; give results of a {draw} one"]
            )
    first, second = _pair_runs(published, fresh)
    conflicts, cautions = differences([*list_scores(first), *list_scores(second)], left_out=OF_A_DRAW)
    tasks = sorted({entry.run.task for entry in first})
    places: list[dict[str, Any]] = []
    for task in [None, *tasks] if len(tasks) > 1 else tasks:
        a, b = ([entry for entry in side if task in (None, entry.run.task)] for side in (first, second))
        gap = draw_gap(make_samples(a), make_samples(b), method, measure)
        if conflicts and not anyway:
            gap = replace(gap, low=None, high=None)
        means = {"published": _mean(a, measure, method), "fresh": _mean(b, measure, method)}
        places.append({"task": task, **means, "gap": gap})
    return {
        "measure": measure,
        "draws": sorted({draw_name(score.recipe.draw) for score in list_scores(second)}),
        "places": places,
        "conflicts": conflicts,
        "cautions": cautions,
        "conclusion": _gap_conclusion(places[0]["gap"], [] if anyway else conflicts),
    }


def gap_lines(found: Comparison, method: StatisticsMethod) -> list[str]:
    """The gap for a terminal, its conclusion last; ``found``: of ``compare_draws``."""
    rows = []
    for place in found["places"]:
        gap, both = place["gap"], (percent(place["published"]), percent(place["fresh"]))
        shown = *both, _signed(gap.difference or 0.0), span(gap.low, gap.high) or UNKNOWN
        rows.append((place["task"] or "all tasks", str(gap.n_cells), *shown))
    head = ("", "cells", "published", "fresh", "gap", f"{100 * method.confidence:g} % interval")
    return [
        f"Published draw minus {', '.join(found['draws'])}: {found['measure']} score, ×100, pooled by {method.pooling}",
        "",
        *_warnings(found),
        *table([head, *rows], right=range(1, 6)),
        "",
        found["conclusion"],
    ]


def _gap_conclusion(gap: PairedComparison, conflicts: Sequence[str]) -> str:
    if conflicts:
        return f"Conclusion: none. The runs differ in {_list_names(conflicts)}. --anyway compares them all the same."
    if not gap.sufficient:
        return (
            "Conclusion: none, the gap may be chance. An interval needs 3 repeats in each cell and, below 5 tasks, "
            "scores that are means over cases (not detection)."
        )
    if not gap.different:
        return "Conclusion: no gap is seen; one within the interval would go unnoticed."
    if (gap.difference or 0.0) > 0:
        return (
            "Conclusion: the published cases are easier for this agent than fresh ones; it may have seen them before."
        )
    return "Conclusion: the published cases are harder for this agent than fresh ones."


def report_lines(found: Comparison, method: StatisticsMethod) -> list[str]:
    """The comparison for a terminal, its conclusion last."""
    stages = [(name, percent(a), percent(b), _signed(a - b)) for name, (a, b) in found["stages"].items()]
    return [
        f"{found['a']} (A) minus {found['b']} (B): {found['measure']} score, ×100, pooled by {method.pooling}",
        "",
        *_warnings(found),
        *_place_table(found, method),
        "",
        f"Cells (task and tier): A better in {found['wins']}, equal in {found['ties']}, worse in {found['losses']}.",
        *_cell_lines(found),
        "",
        *table([("", "A", "B", "difference"), *stages], right=range(1, 4)),
        *_no_effect_line(found["no_effect"]),
        "",
        found["conclusion"],
    ]


def treatment_lines(rows: Sequence[Row], method: StatisticsMethod) -> list[str]:
    """A variant against its base for a terminal; ``rows``: of the table ``treatments``, first all tracks."""
    base, places = rows[0].agent, group_by(rows, lambda row: row.track)
    lines = ["", f"{variant_name(base, rows[0].treatment)} minus {base}, all runs, scores x100, per run:", ""]
    for track, own in list(places.items())[: 1 if len(places) == 2 else None]:  # one track is all
        head = (track_title(track) if track else "all", base, f"change [{100 * method.confidence:g} % interval]", "p")
        lines += [*table([head, *map(_treatment_cells, own)], right=range(1, 4)), ""]
    kind = "faults" if rows[0].treatment in FAULTS else "treatments"
    lines.append(f"Intervals and p of each line hold for all {kind} of the base together.")
    if used := skill_use(rows[0]):
        among = quantity("overall", rows[0].change_used, signed=True)
        lines.append(f"Used in {used} runs; overall of these alone {among}, which is not random.")
    return lines


def _treatment_cells(row: Row) -> tuple[str, str, str, str]:
    p = UNKNOWN if row.p is None else _p_text(row.p)
    return QUANTITIES[row.quantity], quantity(row.quantity, row.mean_base), change(row, row.quantity), p


def _no_effect_line(counts: Sequence[int]) -> list[str]:
    a, b = (counted(count, "run") for count in counts)
    return [f"Without effect of the case on the outputs: A {a}, B {b}."] if any(counts) else []


def _warnings(found: Comparison) -> list[str]:
    loud = [f"NOT COMPARABLE, other {reason}" for reason in found["conflicts"]]
    quiet = [f"Caution, other {reason}" for reason in found["cautions"]]
    return [*loud, *quiet, ""] if loud or quiet else []


def _list_names(reasons: Sequence[str]) -> str:
    """Conditions alone, without why they matter."""
    return ", ".join(reason.partition(":")[0].partition(" (")[0] for reason in reasons)


def _place_table(found: Comparison, method: StatisticsMethod) -> list[str]:
    level = f"{100 * method.confidence:g} % interval"
    head = ("", "cells", "A", "B", "difference", level, "p", "detectable", "p, tasks like these")
    rows = [
        (
            "all" if place["track"] is None else track_title(place["track"]),
            str(place["n_cells"]),
            percent(place["mean_a"]),
            percent(place["mean_b"]),
            _signed((place["mean_a"] or 0.0) - (place["mean_b"] or 0.0)),
            *_test_cells(place["compared"]),
        )
        for place in found["places"]
    ]
    note = (
        f"Intervals and p hold for {counted(found['family'], 'agent')} of the campaign together; interval, p and the "
        "smallest difference found with 80 % power (detectable) are about these tasks."
    )
    return [*table([head, *rows], right=range(1, 9)), note]


def _test_cells(pair: PairedComparison | None) -> tuple[str, str, str, str]:
    if pair is None or pair.p is None:
        return UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN
    like = UNKNOWN if pair.p_like is None else _p_text(pair.p_like)
    return span(pair.low, pair.high), _p_text(pair.p), percent(pair.sdd), like


def _p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _signed(value: float) -> str:
    """+4.2, -0.3, 0.0."""
    text = percent(value)
    return f"+{text}" if float(text) > 0 else text


def _cell_lines(found: Comparison) -> Iterator[str]:
    for title, cells in (
        ("A is ahead most in", [cell for cell in found["cells"] if cell["difference"] > 0][:MAX_CELLS]),
        ("B is ahead most in", [cell for cell in reversed(found["cells"]) if cell["difference"] < 0][:MAX_CELLS]),
    ):
        if cells:
            named = (f"{cell['task']}/{cell['tier']} {_signed(cell['difference'])}" for cell in cells)
            yield f"{title}: {', '.join(named)}"


def conclusion(found: Comparison, method: StatisticsMethod) -> str:
    """One sentence: what can be concluded, and what cannot."""
    pair, a, b = found["places"][0]["compared"], found["a"], found["b"]
    conflicts = _list_names(found["conflicts"])
    if pair is None:
        return f"Conclusion: none. {a} and {b} differ in {conflicts}. --anyway tests them all the same."
    if not pair.sufficient or pair.p is None:
        fewest = min(min(cell["n_a"], cell["n_b"]) for cell in found["cells"])
        return (
            f"Conclusion: insufficient for inference, because some cell has {counted(fewest, 'repeat')} and 3 "
            "are needed; the difference may be chance."
        )
    although = f", although they differ in {conflicts}" if conflicts else ""
    if not pair.different:
        return (
            f"Conclusion: {a} and {b} cannot be told apart on these tasks (p {_p_phrase(pair.p)}){although}; that does "
            f"not make them equal: a difference below {percent(pair.sdd)} points would mostly go unnoticed."
        )
    better, worse = (a, b) if (pair.difference or 0.0) > 0 else (b, a)
    low, high = sorted(abs(value) for value in (pair.low or 0.0, pair.high or 0.0))
    return (
        f"Conclusion: {better} scores higher than {worse} on these tasks, by {percent(abs(pair.difference or 0.0))} "
        f"points (interval {percent(low)} to {percent(high)}, p {_p_phrase(pair.p)}){although}; {_on_like_tasks(pair)}."
    )


def _p_phrase(p: float) -> str:
    text = _p_text(p)
    return text if text.startswith("<") else f"= {text}"


def _on_like_tasks(pair: PairedComparison) -> str:
    """What follows for tasks that the campaign does not have."""
    if pair.p_like is None:
        return f"{counted(pair.n_tasks, 'task')} cannot show it for tasks like these, {MIN_FLIPPED} are needed"
    shown = "this holds" if pair.generalises else "it is not shown"
    return f"{shown} for tasks like these (p {_p_phrase(pair.p_like)})"


STAGES = ("s1", "s2", "s3", "s4", "s5")
EQUAL = 0.0005
"""Cells that differ by less show the same number (one decimal of ×100)."""


def compare_agents(
    a: Sequence[ScoreRecord],
    b: Sequence[ScoreRecord],
    measure: Measure,
    method: StatisticsMethod,
    *,
    others: Sequence[Sequence[ScoreRecord]] = (),
    anyway: bool = False,
) -> Comparison:
    """Compare two agents on their common cells, scores in [0, 1]; raises MissingDataError where there is none.

    Agents whose runs differ in a condition that changes scores are not tested, unless ``anyway``. ``others``: scores
    of the campaign's other agents, so that the test is the leaderboard's. First in ``places`` stand all tracks, then
    each.
    """
    first, second = _pair_runs(a, b)
    conflicts, cautions = differences(list_scores([*first, *second]))
    refused = bool(conflicts) and not anyway
    tracks = sorted({entry.track for entry in first})
    family = [[BoardEntry(score.run, score.track, score) for score in side] for side in (a, b, *others) if side]
    places = [
        _place(track, first, second, None if refused else family, measure, method)
        for track in ([None, *tracks] if len(tracks) > 1 else [None])
    ]
    cells = _cells(first, second, measure)
    found = {
        "a": first[0].run.agent,
        "b": second[0].run.agent,
        "measure": measure,
        "family": len(family),
        "places": places,
        "cells": cells,
        "wins": sum(cell["difference"] >= EQUAL for cell in cells),
        "ties": sum(abs(cell["difference"]) < EQUAL for cell in cells),
        "losses": sum(cell["difference"] <= -EQUAL for cell in cells),
        "no_effect": [sum(score.no_effect for score in list_scores(side)) for side in (first, second)],
        "stages": {stage.upper(): (_mean(first, stage, method), _mean(second, stage, method)) for stage in STAGES},
        "conflicts": conflicts,
        "cautions": cautions,
    }
    return found | {"conclusion": conclusion(found, method)}


def differences(scores: Sequence[ScoreRecord], left_out: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Conditions that are not the same for these runs: those that change scores, and those that may change them.

    Each with why it matters, and with its values where these are the same for all tasks and agents.
    """
    found = [BY_NAME[name] for name in find_differences(map(read_conditions, scores)) if name not in left_out]
    split: tuple[list[str], list[str]] = ([], [])
    for one in found:
        values = sorted({str(one.value(score)) for score in scores}) if not one.same_for else []
        shown = f" ({', '.join(values)})" if values and all(len(value) <= MAX_VALUE for value in values) else ""
        split[one.effect != CHANGES].append(f"{one.name}{shown}: {one.why}")
    return split


def _place(
    track: str | None,
    first: Sequence[BoardEntry],
    second: Sequence[BoardEntry],
    family: Sequence[Sequence[BoardEntry]] | None,
    measure: Measure,
    method: StatisticsMethod,
) -> dict[str, Any]:
    """Both agents in all tracks (track null) or one; ``compared`` null without a family: the test was refused."""
    a, b = ([entry for entry in group if track in (None, entry.track)] for group in (first, second))
    agents = {
        own[0].run.agent: make_samples([entry for entry in own if track in (None, entry.track)]) for own in family or ()
    }
    return {
        "track": track,
        "n_cells": len({entry_cell(entry) for entry in a}),
        "mean_a": _mean(a, measure, method),
        "mean_b": _mean(b, measure, method),
        "compared": _compare(first[0].run.agent, second[0].run.agent, agents, measure, method) if family else None,
    }


def _compare(
    a: str, b: str, agents: Mapping[str, Sequence[Sample]], measure: Measure, method: StatisticsMethod
) -> PairedComparison:
    """The first agent minus the second, corrected for the comparisons of all agents."""
    others = [pair for pair in combinations(agents, 2) if {*pair} != {a, b}]
    return compare_pairs(agents, method, measure, pairs=[(a, b), *others])[0]


def _cells(first: Sequence[BoardEntry], second: Sequence[BoardEntry], measure: Measure) -> list[dict[str, Any]]:
    """Cells by difference, those that the first agent wins most clearly first."""
    a, b = group_by(first, entry_cell), group_by(second, entry_cell)
    rows = []
    for (task, tier), runs in a.items():
        others = b[task, tier]
        mean_a, mean_b = (
            fmean(score_value(score, measure) for score in list_scores(group)) for group in (runs, others)
        )
        row = {"track": runs[0].track, "task": task, "tier": tier, "n_a": len(runs), "n_b": len(others)}
        rows.append(row | {"mean_a": mean_a, "mean_b": mean_b, "difference": mean_a - mean_b})
    return sorted(rows, key=lambda row: (-row["difference"], row["task"], row["tier"]))


def _mean(entries: Sequence[BoardEntry], name: str, method: StatisticsMethod) -> float:
    """Pooled as in the ranking."""
    column = "task_score" if name == "task" else name
    return float(
        pool_scores(tabulate_cells(tabulate_runs(entries)), ["everything"], method.pooling, [column])[column].iloc[0]
    )
