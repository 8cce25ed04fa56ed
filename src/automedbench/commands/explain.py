"""Explain an error code: meaning, frequency, cost, and its runs, each with the line that shows it.

Shares of all five are on the leaderboard's page. Lines of evidence come from agents: characters that a terminal would
act on are shown by their names.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from automedbench.base.errors import ConfigError
from automedbench.base.files import read_record
from automedbench.base.option_types import whole_number
from automedbench.base.plaintable import counted, table
from automedbench.base.records import HEADLINE_TIERS, TIERS, ScoreRecord
from automedbench.base.yamlfile import suggestion
from automedbench.campaign.treatments import find_fault
from automedbench.commands._campaign import add_campaign_options, find_results
from automedbench.commands._output import show
from automedbench.judge.evidence import neutralise
from automedbench.leaderboard.definitions import track_title
from automedbench.leaderboard.entries import BoardEntry, group_by, score_value
from automedbench.leaderboard.formats import percent
from automedbench.leaderboard.plan import Plan, gather_scores
from automedbench.leaderboard.tables.error_codes import error_tables
from automedbench.scoring.codes import detectors
from automedbench.scoring.codes.taxonomy import CODES, TAXONOMY
from automedbench.tracks import track_names

WIDTH = 110
DEFAULT_LIMIT = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: the code, where the results are, which runs, and how many."""
    parser.add_argument("code", choices=list(CODES), type=str.upper, help="code of the taxonomy")
    for name in ("agent", "track", "task"):
        parser.add_argument(f"--{name}", help=f"only runs of this {name}")
    parser.add_argument("--tier", choices=TIERS, help="only runs of this tier; default: lite and standard")
    parser.add_argument(
        "--limit",
        type=whole_number(0),
        default=DEFAULT_LIMIT,
        metavar="N",
        help=f"runs to list, 0 for all ({DEFAULT_LIMIT}); JSON has all",
    )
    add_campaign_options(parser)


def main(options: argparse.Namespace) -> None:
    """Print the explanation; raises ConfigError for an unknown name, MissingDataError without results."""
    found = explain(_select_entries(options), options.code)
    show(options, found, explanation_lines(found, options.track, options.limit))


def _select_entries(options: argparse.Namespace) -> list[BoardEntry]:
    """Scored runs that the options select; raises ConfigError for a name that none has."""
    results = find_results(options)
    scores = gather_scores(results, read_record(results / "plan.json", Plan), partial=True).scores
    faulted = options.agent and find_fault(options.agent)
    kept = [score for score in scores if faulted or not find_fault(score.run.agent)]
    entries = [BoardEntry(score.run, score.track, score) for score in kept]
    names: dict[str, Callable[[BoardEntry], str]] = {
        "agent": lambda entry: entry.run.agent,
        "track": lambda entry: entry.track,
        "task": lambda entry: entry.run.task,
    }
    tiers, problems = (options.tier,) if options.tier else HEADLINE_TIERS, []
    chosen = [entry for entry in entries if entry.run.tier in tiers]
    for name, read in names.items():
        wanted, known = getattr(options, name), sorted(set(map(read, entries)))
        if wanted is None:
            continue
        if wanted not in known:
            problems.append(f"--{name}: no scored run of '{plain(wanted)}'{suggestion(wanted, known)}")
        chosen = [entry for entry in chosen if read(entry) == wanted]
    if problems:
        raise ConfigError(problems)
    return chosen


def explain(entries: Sequence[BoardEntry], code: str) -> dict[str, Any]:
    """Frequency, cost and runs of one code over these runs, scores and shares in [0, 1], the most costly runs first.

    ``cost``: overall of the runs with the code minus that of those without; within: over agent × task × tier.
    """
    tables = error_tables(entries)
    scores = [entry.score for entry in entries if entry.score is not None and not entry.score.disqualified]
    everywhere = [
        row for row in tables["errors"] if (row.track, row.agent, row.code, row.stage) == (None, None, code, None)
    ]
    costs = [row for row in tables["error_costs"] if (row.track, row.agent, row.code) == (None, None, code)]
    return {
        "code": code,
        "n_disqualified": sum(entry.score is not None and entry.score.disqualified for entry in entries),
        "count": {name: getattr(row, name) for row in everywhere for name in _NO_COUNT} or _NO_COUNT,
        "cost": {name: getattr(row, name) for row in costs for name in _NO_COST} or _NO_COST,
        "runs": _find_runs(scores, code),
    }


_NO_COUNT = {"n_runs": 0, "n_with_code": 0, "run_share": None, "n_fired": 0, "fired_share": None}
_NO_COST = {"difference": None, "within_difference": None, "low": None, "high": None, "n_cells": 0}


def _find_runs(scores: Sequence[ScoreRecord], code: str) -> list[dict[str, Any]]:
    """Runs with the code: the most lost first, then those that nothing can be compared with, the poorest first.

    ``lost`` is by how much a run is below those without the code: of the same agent, task and tier, else of any agent
    on the same task and tier; None without such runs.
    """
    without = [score for score in scores if code not in _list_codes(score)]
    same_cell = _average_overall(group_by(without, lambda score: (score.run.agent, score.run.task, score.run.tier)))
    same_task = _average_overall(group_by(without, lambda score: (score.run.task, score.run.tier)))
    rows = []
    for score in scores:
        if code in _list_codes(score):
            run, overall = score.run, score_value(score, "overall")
            usual = same_cell.get((run.agent, run.task, run.tier), same_task.get((run.task, run.tier)))
            row = {
                "run": run.path,
                "track": score.track,
                "overall": overall,
                "lost": None if usual is None else usual - overall,
                "other_codes": sorted(_list_codes(score) - {code}),
                "lines": [error.model_dump(exclude={"code"}) for error in score.error_codes if error.code == code],
            }
            rows.append(row)
    return sorted(rows, key=lambda row: (row["lost"] is None, -(row["lost"] or 0.0), row["overall"], row["run"]))


def _average_overall(groups: Mapping[tuple[str, ...], Sequence[ScoreRecord]]) -> dict[tuple[str, ...], float]:
    return {key: fmean(score_value(score, "overall") for score in group) for key, group in groups.items()}


def _list_codes(score: ScoreRecord) -> set[str]:
    return {error.code for error in score.error_codes}


def explanation_lines(found: Mapping[str, Any], track: str | None, limit: int) -> list[str]:
    """Definition, counts, cost, recovery, and the runs with their evidence; ``found``: of ``explain``."""
    return [
        *_define_code(found["code"], track),
        "",
        _describe_count(found),
        "",
        *_describe_cost(found["cost"]),
        "",
        *_list_runs(found["runs"], limit),
    ]


def _define_code(code: str, track: str | None) -> Iterator[str]:
    text = CODES[code]
    yield f"{code} {text.title} (taxonomy {TAXONOMY})"
    yield from textwrap.wrap(text.meaning, WIDTH)
    yield ""
    yield from table([(f"  {stage}", words) for stage, words in text.stages.items()])
    yield ""
    tracks = [name for name in track_names() if track in (None, name)]
    rules: dict[tuple[str, str], list[str]] = {}
    for detector in detectors(*tracks):
        if detector.code == code:
            rules.setdefault((detector.id, detector.looks_at), []).append(detector.track)
    rows = [
        (f"  {name}", ", ".join(map(track_title, filter(None, found))) or "every track", looks_at)
        for (name, looks_at), found in rules.items()
    ]
    yield from table(rows) or ["  No rule gives this code, only a judge."]


def _describe_count(found: Mapping[str, Any]) -> str:
    count, n_out = found["count"], found["n_disqualified"]
    out = f"; {counted(n_out, 'disqualified run')} without codes" if n_out else ""
    return (
        f"Fired in {count['n_with_code']} of {counted(count['n_runs'], 'scored run')} "
        f"({percent(count['run_share'])} %), {percent(count['fired_share'])} % of "
        f"{counted(count['n_fired'], 'fired code')}{out}"
    )


def _describe_cost(cost: Mapping[str, Any]) -> Iterator[str]:
    if cost["within_difference"] is not None:
        low, high = cost["low"], cost["high"]
        interval = "" if low is None or high is None else f", 95 % {_format_points(low)} to {_format_points(high)}"
        place = f"within {counted(cost['n_cells'], 'cell')} of agent, task and tier"
        yield f"Cost: {_format_points(cost['within_difference'])} points of Overall {place}{interval}"
    else:
        yield "Cost: no cell of agent, task and tier has runs both with the code and without it"
    if cost["difference"] is not None:
        points = _format_points(cost["difference"])
        yield f"  not adjusted: {points} points between runs with the code and runs without it"


def _format_points(value: float) -> str:
    return ("+" if value > 0 else "−" if value < 0 else "") + percent(abs(value))


def _list_runs(runs: Sequence[Mapping[str, Any]], limit: int) -> Iterator[str]:
    if not runs:
        yield "No run has it."
        return
    yield f"{counted(len(runs), 'run')}, the most costly first (points of Overall; lost: against runs without the code)"
    shown = runs[:limit] if limit else runs
    for run in shown:
        lost = "" if run["lost"] is None else f", lost {percent(run['lost'])}"
        others = f", also {' '.join(run['other_codes'])}" if run["other_codes"] else ""
        yield f"  {plain(run['run'])}: {percent(run['overall'])}{lost}{others}"
        for line in run["lines"]:
            turn = "" if line["turn"] is None else f" turn {line['turn']}"
            yield f"    {line['stage']}{turn} {plain(line['detector'] or line['source'])}: {plain(line['evidence'])}"
    if len(shown) < len(runs):
        yield f"  … {len(runs) - len(shown)} more; --limit 0 lists all"


def plain(text: str) -> str:
    """Agent-influenced text as one harmless line: no control, no invisible, no direction-changing character."""
    return " ".join(neutralise(text).split())
