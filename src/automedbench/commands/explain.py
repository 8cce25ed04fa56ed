"""What an error code means, how often it fired, what it cost, and in which runs, with the line that shows it.

Without a code: all five with their counts. Lines of evidence come from agents: characters that a terminal would act on
are shown by their names.
"""

from __future__ import annotations

import argparse
import difflib
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.files import read_record
from automedbench.base.option_types import whole_number
from automedbench.base.plaintable import counted, table
from automedbench.base.records import TIERS, Model, Number, ScoreRecord, Stage
from automedbench.base.yamlfile import suggestion
from automedbench.error_codes.taxonomy import TAXONOMY
from automedbench.leaderboard.entries import Entry, group_by, value_of
from automedbench.leaderboard.plan import Plan, gather_scores
from automedbench.leaderboard.tables.error_codes import completed, error_atlas

if TYPE_CHECKING:
    from automedbench.leaderboard.entries import Entry


WIDTH = 110
DEFAULT_LIMIT = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: the code, where the results are, which runs, how many, and a file for a program."""
    parser.add_argument("code", nargs="?", metavar="CODE", help="E1, E2, E3, E4 or E5; without: all with their counts")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the campaign's results folder")
    for name in ("agent", "track", "task"):
        parser.add_argument(f"--{name}", help=f"only runs of this {name}")
    parser.add_argument("--tier", choices=TIERS, help="only runs of this tier; default: lite and standard")
    parser.add_argument(
        "--limit",
        type=whole_number(0),
        default=DEFAULT_LIMIT,
        metavar="N",
        help=f"runs to list, 0 for all ({DEFAULT_LIMIT})",
    )
    parser.add_argument(
        "--json", type=Path, metavar="OUT", help="also write everything to this file, all runs included"
    )


def main(options: argparse.Namespace) -> None:
    """Print the explanation; raises ConfigError for an unknown code or name, MissingDataError without results."""
    from automedbench.commands.explain import explain

    code = _code(options.code)
    entries = _entries(options)
    if code is None:
        print("\n".join(overview_lines(entries)))
        return
    found = explain(entries, code)
    if options.json is not None:
        from automedbench.base.files import write_record

        write_record(options.json, found)
    print("\n".join(explanation_lines(found, options.track, options.limit)))


def _code(text: str | None) -> str | None:
    from automedbench.error_codes.taxonomy import CODES

    if text is None or text.upper() in CODES:
        return text.upper() if text else None
    near = _nearest(text, {content.title.lower(): code for code, content in CODES.items()})
    known = ", ".join(f"{code} {content.title}" for code, content in CODES.items())
    raise ConfigError(
        [f"CODE: no error code '{plain(text)}'{near and f' (did you mean {near!r}?)'}; there are {known}"]
    )


def _nearest(text: str, titles: Mapping[str, str]) -> str:
    """The code whose number or title is nearest; empty when nothing is near."""
    codes = sorted(titles.values())
    if number := re.fullmatch(r"\D?(\d{1,3})", text.strip()):
        return codes[min(max(int(number.group(1)), 1), len(codes)) - 1]
    near = difflib.get_close_matches(text.lower(), titles, n=1)
    return titles[near[0]] if near else ""


def _entries(options: argparse.Namespace) -> list[Entry]:
    """The runs asked for; raises ConfigError for a name that no scored run has."""
    from automedbench.base.records import HEADLINE_TIERS
    from automedbench.commands.explain import Wanted, read_entries

    try:
        entries = read_entries(options.results)
    except MissingDataError as error:
        raise MissingDataError(
            f"{options.results} holds no plan of a campaign.\nGive the results folder with --results."
        ) from error
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
    wanted = Wanted(options.agent, options.track, options.task, options.tier)
    return [entry for entry in entries if wanted.takes(entry, HEADLINE_TIERS)]


# --- all codes ------------------------------------------------------------------------------------------------


def overview_lines(entries: Sequence[Entry]) -> list[str]:
    """The five codes with their shares."""
    from automedbench.error_codes.taxonomy import CODES, TAXONOMY
    from automedbench.leaderboard.tables.error_codes import error_rows

    rows = {row.code: row for row in error_rows(entries) if (row.track, row.agent, row.stage) == (None, None, None)}
    head = ("code", "", "runs", "% of runs", "% of fired codes")
    body = [
        (
            code,
            text.title,
            str(rows[code].n_with_code) if rows else "0",
            _percent(rows[code].run_share if rows else None),
            _percent(rows[code].fired_share if rows else None),
        )
        for code, text in CODES.items()
    ]
    n_runs = next((row.n_runs for row in rows.values()), 0)
    return [
        f"Error codes, taxonomy {TAXONOMY}: {counted(n_runs, 'scored run')}. They explain runs and change no score.",
        "",
        *table([head, *body], right=(2, 3, 4)),
        "",
        "A code fires once per run, a run may have several. More: automedbench explain E3",
    ]


# --- one code -------------------------------------------------------------------------------------------------


def explanation_lines(found: Explanation, track: str | None, limit: int) -> list[str]:
    """Definition, counts, cost, recovery, and the runs with their evidence."""
    return [
        *_definition(found.code, track),
        "",
        *_counts(found),
        "",
        *_cost(found),
        *_recovery(found),
        "",
        *_runs(found.runs, limit),
    ]


def _definition(code: str, track: str | None) -> Iterator[str]:
    from automedbench.error_codes import detectors
    from automedbench.error_codes.taxonomy import CODES, TAXONOMY
    from automedbench.leaderboard.definitions import track_title
    from automedbench.tracks import get_track, track_names

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


def _counts(found: Explanation) -> Iterator[str]:
    count = found.count
    out = f"; {counted(found.n_disqualified, 'disqualified run')} without codes" if found.n_disqualified else ""
    yield (
        f"Fired in {count.n_with_code} of {counted(count.n_runs, 'scored run')} ({_percent(count.run_share)} %), "
        f"{_percent(count.fired_share)} % of {counted(count.n_fired, 'fired code')}{out}"
    )
    for title, counts in (("by agent", found.by_agent), ("by track", found.by_track)):
        if len(counts) > 1 and count.n_with_code:
            yield from _wrapped(f"{title}: {_shares(counts)}")
    if found.by_detector:
        detectors = ", ".join(f"{plain(name)} {n}" for name, n in found.by_detector.items())
        yield from _wrapped(f"by detector: {detectors}")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _shares(counts: Mapping[str, CodeCount]) -> str:
    fired = sorted(counts.items(), key=lambda item: (-(item[1].run_share or 0.0), item[0]))
    return ", ".join(f"{plain(name)} {count.n_with_code} of {count.n_runs}" for name, count in fired)


def _cost(found: Explanation) -> Iterator[str]:
    cost = found.cost
    if cost.within_difference is not None:
        interval = (
            "" if cost.low is None or cost.high is None else f", 95 % {_points(cost.low)} to {_points(cost.high)}"
        )
        place = f"within {counted(cost.n_cells, 'cell')} of agent, task and tier"
        yield f"Cost: {_points(cost.within_difference)} points of Overall {place}{interval}"
    else:
        yield "Cost: no cell of agent, task and tier has runs both with the code and without it"
    if cost.difference is not None:
        yield f"  not adjusted: {_points(cost.difference)} points between runs with the code and runs without it"


def _points(value: float) -> str:
    return ("+" if value > 0 else "−" if value < 0 else "") + _percent(abs(value))


def _recovery(found: Explanation) -> Iterator[str]:
    shown = found.recovery
    if shown.n_two_or_more:
        yield (
            f"Recovery: {shown.n_recovered} of {counted(shown.n_two_or_more, 'run')} with two or more codes ended "
            "complete and scored; with this code among them "
            f"{shown.n_recovered_with_code} of {shown.n_two_or_more_with_code}"
        )


def _runs(runs: Sequence[RunWithCode], limit: int) -> Iterator[str]:
    if not runs:
        yield "No run has it."
        return
    yield f"{counted(len(runs), 'run')}, the most costly first (points of Overall; lost: against runs without the code)"
    shown = runs[:limit] if limit else runs
    for run in shown:
        lost = "" if run.lost is None else f", lost {_percent(run.lost)}"
        others = f", also {' '.join(run.other_codes)}" if run.other_codes else ""
        yield f"  {plain(run.run)}: {_percent(run.overall)}{lost}{others}"
        for line in run.lines:
            turn = "" if line.turn is None else f" turn {line.turn}"
            yield f"    {line.stage}{turn} {plain(line.detector or line.source)}: {plain(line.evidence)}"
    if len(shown) < len(runs):
        yield f"  … {len(runs) - len(shown)} more; --limit 0 lists all"


def _percent(value: float | None) -> str:
    from automedbench.leaderboard.formats import percent

    return percent(value)


def plain(text: str) -> str:
    """Agent-influenced text as one harmless line: no control, no invisible, no direction-changing character."""
    from automedbench.judge.fencing import neutralise

    return " ".join(neutralise(text).split())


PLAN = "plan.json"


class Line(Model):
    """One line of evidence of a run."""

    stage: Stage
    detector: str
    source: Literal["rule", "judge"]
    turn: int | None
    evidence: str


_OF_A_LINE = set(Line.model_fields)


class RunWithCode(Model):
    """A run with the code. ``lost``: by how much it is below the runs it can be compared with."""

    run: str = Field(description="path below <results>/runs")
    track: str
    overall: Number
    lost: Number | None = Field(
        description="mean overall of runs without the code − this run's: of the same agent, task and tier, else of any "
        "agent on the same task and tier; null without such runs"
    )
    other_codes: list[str]
    lines: list[Line]


class CodeCount(Model):
    """How often a code fired among some runs."""

    n_runs: int
    n_with_code: int
    run_share: Number | None
    n_fired: int
    fired_share: Number | None


class Cost(Model):
    """Overall of the runs with the code minus that of those without; within: over agent × task × tier."""

    difference: Number | None
    within_difference: Number | None
    low: Number | None
    high: Number | None
    n_cells: int


NO_COST = Cost(difference=None, within_difference=None, low=None, high=None, n_cells=0)


class Recovery(Model):
    """Complete, scored submissions among runs with two or more codes: of all such runs, and of those with this code."""

    n_two_or_more: int
    n_recovered: int
    n_two_or_more_with_code: int
    n_recovered_with_code: int


class Explanation(Model):
    """Everything that ``automedbench explain CODE`` tells of a campaign, scores and shares in [0, 1]."""

    schema_: Literal["automedbench/explanation/1"] = Field("automedbench/explanation/1", alias="schema")
    taxonomy: str = TAXONOMY
    code: str
    n_disqualified: int
    count: CodeCount
    by_agent: dict[str, CodeCount]
    by_track: dict[str, CodeCount]
    by_detector: dict[str, int]
    cost: Cost
    recovery: Recovery
    runs: list[RunWithCode] = Field(description="the most costly first")


@dataclass(frozen=True)
class Wanted:
    """Which runs are looked at; None: all (tiers: those of the headline)."""

    agent: str | None = None
    track: str | None = None
    task: str | None = None
    tier: str | None = None

    def takes(self, entry: Entry, headline: Sequence[str]) -> bool:
        """Whether a run is one of them."""
        run = entry.run
        asked = (self.agent, run.agent), (self.track, entry.track), (self.task, run.task), (self.tier, run.tier)
        return all(name in (None, value) for name, value in asked) and (self.tier is not None or run.tier in headline)


def read_entries(results: Path) -> list[Entry]:
    """The scored runs of a campaign's plan; raises MissingDataError where there is no plan."""
    gathered = gather_scores(results, read_record(results / PLAN, Plan), partial=True)
    return [Entry(score.run, score.track, score) for score in gathered.scores]


def explain(entries: Sequence[Entry], code: str) -> Explanation:
    """The explanation of one code over these runs."""
    atlas = error_atlas(entries)
    scores = [entry.score for entry in entries if entry.score is not None and not entry.score.disqualified]
    counts = {
        (row.track, row.agent): CodeCount(**{name: getattr(row, name) for name in CodeCount.model_fields})
        for row in atlas.rows
        if row.code == code and row.stage is None
    }
    nothing = CodeCount(n_runs=0, n_with_code=0, run_share=None, n_fired=0, fired_share=None)
    cost = next((row for row in atlas.costs if (row.track, row.agent, row.code) == (None, None, code)), None)
    return Explanation(
        code=code,
        n_disqualified=sum(entry.score is not None and entry.score.disqualified for entry in entries),
        count=counts.get((None, None), nothing),
        by_agent={agent: count for (track, agent), count in counts.items() if track is None and agent is not None},
        by_track={track: count for (track, agent), count in counts.items() if agent is None and track is not None},
        by_detector={row.detector: row.n_runs for row in atlas.detectors if row.code == code and row.track is None},
        cost=Cost(**{name: getattr(cost, name) for name in Cost.model_fields}) if cost else NO_COST,
        recovery=_recovery_of(scores, code),
        runs=_runs_with(scores, code),
    )


def _recovery_of(scores: Sequence[ScoreRecord], code: str) -> Recovery:
    several = [score for score in scores if len(codes_of(score)) >= 2]
    with_code = [score for score in several if code in codes_of(score)]
    return Recovery(
        n_two_or_more=len(several),
        n_recovered=sum(map(completed, several)),
        n_two_or_more_with_code=len(with_code),
        n_recovered_with_code=sum(map(completed, with_code)),
    )


def _runs_with(scores: Sequence[ScoreRecord], code: str) -> list[RunWithCode]:
    """Runs with the code: the most lost first, then those that nothing can be compared with, the poorest first."""
    without = [score for score in scores if code not in codes_of(score)]
    same_cell = _means(group_by(without, lambda score: (score.run.agent, score.run.task, score.run.tier)))
    same_task = _means(group_by(without, lambda score: (score.run.task, score.run.tier)))
    rows = []
    for score in scores:
        if code in codes_of(score):
            run = score.run
            usual = same_cell.get((run.agent, run.task, run.tier), same_task.get((run.task, run.tier)))
            rows.append(_row(score, code, usual))
    return sorted(rows, key=lambda row: (row.lost is None, -(row.lost or 0.0), row.overall, row.run))


def _means(groups: Mapping[tuple[str, ...], Sequence[ScoreRecord]]) -> dict[tuple[str, ...], float]:
    return {key: fmean(value_of(score, "overall") for score in group) for key, group in groups.items()}


def _row(score: ScoreRecord, code: str, usual: float | None) -> RunWithCode:
    overall = value_of(score, "overall")
    return RunWithCode(
        run=score.run.path,
        track=score.track,
        overall=overall,
        lost=None if usual is None else usual - overall,
        other_codes=sorted(codes_of(score) - {code}),
        lines=[
            Line(**error.model_dump(include=set(Line.model_fields)))
            for error in score.error_codes
            if error.code == code
        ],
    )


def codes_of(score: ScoreRecord) -> set[str]:
    """The different codes of a run."""
    return {error.code for error in score.error_codes}
