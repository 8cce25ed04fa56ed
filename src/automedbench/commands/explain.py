"""Explain an error code: meaning, frequency, cost, and its runs, each with the line that shows it.

Shares of all five are on the leaderboard's page. Lines of evidence come from agents: characters that a terminal would
act on are shown by their names.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.files import read_record
from automedbench.base.option_types import whole_number
from automedbench.base.plaintable import counted, table
from automedbench.base.records import HEADLINE_TIERS, TIERS, ScoreRecord
from automedbench.base.yamlfile import suggestion
from automedbench.commands._campaign import add_campaign_options, find_results
from automedbench.commands._output import add_json, show
from automedbench.judge.evidence import neutralise
from automedbench.leaderboard.definitions import track_title
from automedbench.leaderboard.entries import BoardEntry, group_by, score_value
from automedbench.leaderboard.formats import percent
from automedbench.leaderboard.plan import Plan, gather_scores
from automedbench.leaderboard.tables.error_codes import error_tables
from automedbench.scoring.codes import detectors
from automedbench.scoring.codes.taxonomy import CODES, TAXONOMY
from automedbench.tracks import get_track, track_names

WIDTH = 110
DEFAULT_LIMIT = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: the code, where the results are, which runs, and how many."""
    parser.add_argument("code", metavar="CODE", help="E1, E2, E3, E4 or E5")
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
    add_json(parser)
    add_campaign_options(parser)


def main(options: argparse.Namespace) -> None:
    """Print the explanation; raises ConfigError for an unknown code or name, MissingDataError without results."""
    code = _code(options.code)
    found = explain(_entries(options), code)
    show(options, found, explanation_lines(found, options.track, options.limit))


def _code(text: str) -> str:
    if text.upper() in CODES:
        return text.upper()
    titles = [content.title for content in CODES.values()]
    known = ", ".join(map(" ".join, zip(CODES, titles, strict=True)))
    near = suggestion(text.capitalize(), titles)
    raise ConfigError([f"CODE: no error code '{plain(text)}'{near}; there are {known}"])


def _entries(options: argparse.Namespace) -> list[BoardEntry]:
    """The runs asked for; raises ConfigError for a name that no scored run has."""
    results = find_results(options)
    try:
        plan = read_record(results / "plan.json", Plan)
    except MissingDataError as error:
        raise MissingDataError(
            f"{results} holds no plan of a campaign.\nGive the results folder with --results."
        ) from error
    scores = gather_scores(results, plan, partial=True).scores
    entries = [BoardEntry(score.run, score.track, score) for score in scores]
    names = {
        "agent": {entry.run.agent for entry in entries},
        "track": {entry.track for entry in entries},
        "task": {entry.run.task for entry in entries},
    }
    problems = [
        f"--{name}: no scored run of '{plain(asked)}'{suggestion(asked, sorted(known))}"
        for name, known in names.items()
        if (asked := getattr(options, name)) is not None and asked not in known
    ]
    if problems:
        raise ConfigError(problems)
    tiers = (options.tier,) if options.tier else HEADLINE_TIERS
    return [
        entry
        for entry in entries
        if entry.run.tier in tiers
        and options.agent in (None, entry.run.agent)
        and options.track in (None, entry.track)
        and options.task in (None, entry.run.task)
    ]


def explain(entries: Sequence[BoardEntry], code: str) -> dict[str, Any]:
    """Everything that is told of one code over these runs, scores and shares in [0, 1], the most costly runs first.

    ``cost``: overall of the runs with the code minus that of those without; within: over agent × task × tier.
    """
    tables = error_tables(entries)
    scores = [entry.score for entry in entries if entry.score is not None and not entry.score.disqualified]
    counts = {
        (row.track, row.agent): {name: getattr(row, name) for name in _NO_COUNT}
        for row in tables["errors"]
        if row.code == code and row.stage is None
    }
    costs = (row for row in tables["error_costs"] if (row.track, row.agent, row.code) == (None, None, code))
    cost = next(({name: getattr(row, name) for name in _NO_COST} for row in costs), _NO_COST)
    return {
        "code": code,
        "n_disqualified": sum(entry.score is not None and entry.score.disqualified for entry in entries),
        "count": counts.get((None, None), _NO_COUNT),
        "by_agent": {agent: count for (track, agent), count in counts.items() if track is None and agent is not None},
        "by_track": {track: count for (track, agent), count in counts.items() if agent is None and track is not None},
        "cost": cost,
        "runs": _runs_with(scores, code),
    }


_NO_COUNT = {"n_runs": 0, "n_with_code": 0, "run_share": None, "n_fired": 0, "fired_share": None}
_NO_COST = {"difference": None, "within_difference": None, "low": None, "high": None, "n_cells": 0}


def _runs_with(scores: Sequence[ScoreRecord], code: str) -> list[dict[str, Any]]:
    """Runs with the code: the most lost first, then those that nothing can be compared with, the poorest first.

    ``lost`` is by how much a run is below those without the code: of the same agent, task and tier, else of any agent
    on the same task and tier; None without such runs.
    """
    without = [score for score in scores if code not in _codes_of(score)]
    same_cell = _means(group_by(without, lambda score: (score.run.agent, score.run.task, score.run.tier)))
    same_task = _means(group_by(without, lambda score: (score.run.task, score.run.tier)))
    rows = []
    for score in scores:
        if code in _codes_of(score):
            run, overall = score.run, score_value(score, "overall")
            usual = same_cell.get((run.agent, run.task, run.tier), same_task.get((run.task, run.tier)))
            row = {
                "run": run.path,
                "track": score.track,
                "overall": overall,
                "lost": None if usual is None else usual - overall,
                "other_codes": sorted(_codes_of(score) - {code}),
                "lines": [error.model_dump(exclude={"code"}) for error in score.error_codes if error.code == code],
            }
            rows.append(row)
    return sorted(rows, key=lambda row: (row["lost"] is None, -(row["lost"] or 0.0), row["overall"], row["run"]))


def _means(groups: Mapping[tuple[str, ...], Sequence[ScoreRecord]]) -> dict[tuple[str, ...], float]:
    return {key: fmean(score_value(score, "overall") for score in group) for key, group in groups.items()}


def _codes_of(score: ScoreRecord) -> set[str]:
    return {error.code for error in score.error_codes}


def explanation_lines(found: Mapping[str, Any], track: str | None, limit: int) -> list[str]:
    """Definition, counts, cost, recovery, and the runs with their evidence; ``found``: of ``explain``."""
    return [
        *_definition(found["code"], track),
        "",
        *_counts(found),
        "",
        *_cost(found["cost"]),
        "",
        *_runs(found["runs"], limit),
    ]


def _definition(code: str, track: str | None) -> Iterator[str]:
    text = CODES[code]
    yield f"{code} {text.title} (taxonomy {TAXONOMY})"
    yield from textwrap.wrap(text.meaning, WIDTH)
    yield ""
    yield from table([(f"  {stage}", words) for stage, words in text.stages.items()])
    yield ""
    tracks = [name for name in track_names() if track in (None, name)]
    examples = {name: get_track(name).mishaps.get(code, "") for name in tracks}
    yield from table([(f"  {track_title(name)}", words) for name, words in examples.items() if words])
    yield ""
    known: dict[tuple[str, str], list[str]] = {}
    for detector in detectors(*tracks):
        if detector.code == code:
            known.setdefault((detector.id, detector.looks_at), []).append(detector.track)
    if known:
        yield from table(
            [
                (f"  {name}", ", ".join(map(track_title, filter(None, found))) or "every track", looks_at)
                for (name, looks_at), found in known.items()
            ]
        )
    else:
        yield "  No rule gives this code, only a judge."


def _counts(found: Mapping[str, Any]) -> Iterator[str]:
    count, n_out = found["count"], found["n_disqualified"]
    out = f"; {counted(n_out, 'disqualified run')} without codes" if n_out else ""
    yield (
        f"Fired in {count['n_with_code']} of {counted(count['n_runs'], 'scored run')} "
        f"({percent(count['run_share'])} %), {percent(count['fired_share'])} % of "
        f"{counted(count['n_fired'], 'fired code')}{out}"
    )
    for title, counts in (("by agent", found["by_agent"]), ("by track", found["by_track"])):
        if len(counts) > 1 and count["n_with_code"]:
            yield from _wrapped(f"{title}: {_shares(counts)}")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _shares(counts: Mapping[str, dict[str, Any]]) -> str:
    fired = sorted(counts.items(), key=lambda item: (-(item[1]["run_share"] or 0.0), item[0]))
    return ", ".join(f"{plain(name)} {count['n_with_code']} of {count['n_runs']}" for name, count in fired)


def _cost(cost: Mapping[str, Any]) -> Iterator[str]:
    if cost["within_difference"] is not None:
        low, high = cost["low"], cost["high"]
        interval = "" if low is None or high is None else f", 95 % {_points(low)} to {_points(high)}"
        place = f"within {counted(cost['n_cells'], 'cell')} of agent, task and tier"
        yield f"Cost: {_points(cost['within_difference'])} points of Overall {place}{interval}"
    else:
        yield "Cost: no cell of agent, task and tier has runs both with the code and without it"
    if cost["difference"] is not None:
        yield f"  not adjusted: {_points(cost['difference'])} points between runs with the code and runs without it"


def _points(value: float) -> str:
    return ("+" if value > 0 else "−" if value < 0 else "") + percent(abs(value))


def _runs(runs: Sequence[Mapping[str, Any]], limit: int) -> Iterator[str]:
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
