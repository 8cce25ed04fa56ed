"""Explanation of one error code in a campaign: how often it fired, what it cost, and its runs with evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from pydantic import Field

from automedbench.base.files import read_record
from automedbench.base.records import Model, Number, ScoreRecord, Stage
from automedbench.error_codes.taxonomy import TAXONOMY
from automedbench.leaderboard.entries import Entry, group_by, value_of
from automedbench.leaderboard.gather import gather_scores
from automedbench.leaderboard.plan import Plan
from automedbench.leaderboard.tables.error_codes import completed, error_atlas

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
        recovery=_recovery(scores, code),
        runs=_runs(scores, code),
    )


def _recovery(scores: Sequence[ScoreRecord], code: str) -> Recovery:
    several = [score for score in scores if len(codes_of(score)) >= 2]
    with_code = [score for score in several if code in codes_of(score)]
    return Recovery(
        n_two_or_more=len(several),
        n_recovered=sum(map(completed, several)),
        n_two_or_more_with_code=len(with_code),
        n_recovered_with_code=sum(map(completed, with_code)),
    )


def _runs(scores: Sequence[ScoreRecord], code: str) -> list[RunWithCode]:
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
