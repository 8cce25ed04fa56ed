"""The numbers of the leaderboard: planned runs and scores in, rows out. Pure: reads and writes no file.

Scores are in [0, 1] and pooled as configured (``entries``). What a run used (turns, time, tokens, cost), failure rates
and medals are means over runs in either case. Nothing is imputed: a run without a score is in no mean, and its row is
provisional.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import fmean, stdev
from typing import Literal

from automedbench.base.records import TIERS
from automedbench.leaderboard.entries import (
    Entry,
    Method,
    Pooling,
    entries_of,
    group_by,
    has_failed,
    in_tiers,
    pooled_mean,
    scored,
    value_of,
)
from automedbench.leaderboard.tables.cells import Cell, by_task, cells_of, pooled_score
from automedbench.leaderboard.tables.conditions import differences, unequal_coverage, union, what_differs
from automedbench.leaderboard.tables.contest import Contest, hold_contest
from automedbench.leaderboard.tables.reliability import reliability
from automedbench.statistics import Interval

__all__ = [
    "Entry",
    "Method",
    "Place",
    "Pooling",
    "Row",
    "Scope",
    "build_places",
    "build_rows",
    "entries_of",
    "group_by",
    "has_failed",
    "in_tiers",
    "mean_cost",
    "pooled_mean",
    "rank_agents",
    "scored",
    "spread_over_repeats",
    "unequal_coverage",
    "value_of",
    "what_differs",
]

Scope = Literal["overall", "track", "task", "cell"]
Where = tuple[str | None, str | None, str | None]
_NO_INTERVAL = Interval(low=None, high=None, n_tasks=0, min_repeats=0, sufficient=False)


@dataclass(frozen=True)
class Row:
    """One row of a table: an agent, within a track, task or cell where these are set. null: not known."""

    agent: str
    track: str | None
    task: str | None
    tier: str | None
    rank: int | None
    rank_best: int | None
    rank_worst: int | None
    tie: str | None
    overall: float | None
    overall_low: float | None
    overall_high: float | None
    overall_sd: float | None
    sd_repeats: int
    agentic: float | None
    agentic_low: float | None
    agentic_high: float | None
    task_score: float | None
    task_low: float | None
    task_high: float | None
    s1: float | None
    s2: float | None
    s3: float | None
    s4: float | None
    s5: float | None
    k: int | None
    pass_k: float | None
    worst_k: float | None
    failure_rate: float | None
    no_medal_rate: float | None
    n_failed: int
    n_disqualified: int
    mean_turns: float | None
    mean_wall_s: float | None
    mean_tokens: float | None
    mean_cost_usd: Decimal | None
    n_priced: int
    judge_cost_usd: Decimal | None
    n_judge_priced: int
    n_scored: int
    n_planned: int
    cells_scored: int
    cells_planned: int
    min_repeats: int
    sufficient: bool
    provisional: bool
    sandbox: str
    judge: str
    mixed: str


@dataclass(frozen=True)
class Place:
    """Everything, a track, a task or a cell: its ranking, and its agents against each other."""

    track: str | None
    task: str | None
    tier: str | None
    rows: list[Row]
    contest: Contest


_IDENTITY: dict[Scope, Callable[[Cell], Where]] = {
    "overall": lambda cell: (None, None, None),
    "track": lambda cell: (cell.track, None, None),
    "task": lambda cell: (cell.track, cell.task, None),
    "cell": lambda cell: (cell.track, cell.task, cell.tier),
}


def build_rows(
    entries: Iterable[Entry],
    scope: Scope,
    pooling: Pooling = "tasks",
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
) -> list[Row]:
    """One row per agent and track, task or cell, ranked within it; in a fixed order for any order of ``entries``.

    Which tiers take part is the caller's choice (``in_tiers``); a cell row always stands for one.
    """
    method = Method(pooling, confidence, resamples)
    return [row for place in build_places(cells_of(entries), scope, method) for row in place.rows]


def build_places(cells: Iterable[Cell], scope: Scope, method: Method) -> list[Place]:
    """The places of a scope in order of track, task and tier."""
    places = group_by(cells, _IDENTITY[scope])
    return [_build_place(where, places[where], method) for where in sorted(places, key=_place_order)]


def rank_agents(overall: Mapping[str, float | None]) -> dict[str, int | None]:
    """Rank = 1 + number of agents that are better by more than rounding; null without a score."""
    values = {name: None if value is None else round(value, 9) for name, value in overall.items()}
    scored = [value for value in values.values() if value is not None]
    return {
        name: None if value is None else 1 + sum(other > value for other in scored) for name, value in values.items()
    }


def spread_over_repeats(cells: Sequence[Cell], pooling: Pooling) -> tuple[float | None, int]:
    """(sample standard deviation of the overall score between repeats, number of repeats it rests on).

    Each repeat that is scored in every planned cell gives one value, pooled like the row itself. Null below two.
    """
    complete = set(cells[0].by_repeat).intersection(*(cell.by_repeat for cell in cells[1:]))
    tasks = by_task(cells) if pooling == "tasks" else [[cell] for cell in cells]
    values = [
        fmean([fmean([cell.by_repeat[repeat] for cell in task]) for task in tasks]) for repeat in sorted(complete)
    ]
    return (stdev(values) if len(values) > 1 else None), len(values)


def mean_cost(costs: Sequence[Decimal]) -> tuple[Decimal | None, int]:
    """(mean of the known costs in USD, to the micro-dollar; their number). Unknown is never 0."""
    if not costs:
        return None, 0
    return (sum(costs, Decimal(0)) / len(costs)).quantize(Decimal("0.000001")), len(costs)


def _place_order(where: Where) -> tuple[str, str, int]:
    track, task, tier = where
    return track or "", task or "", ["", *TIERS].index(tier or "")


def _build_place(where: Where, cells: list[Cell], method: Method) -> Place:
    agents = group_by(cells, lambda cell: cell.agent)
    overall = {name: pooled_score(group, "overall", method.pooling) for name, group in agents.items()}
    ranks = rank_agents(overall)
    ranking = sorted(agents, key=lambda name: (ranks[name] or math.inf, name))
    contest = hold_contest(agents, ranking, method)
    rows = [_build_row(name, where, ranks[name], agents[name], contest, method.pooling) for name in ranking]
    return Place(*where, rows, contest)


def _build_row(
    agent: str, where: Where, rank: int | None, cells: list[Cell], contest: Contest, pooling: Pooling
) -> Row:
    n_scored, n_planned = sum(len(cell.scores) for cell in cells), sum(len(cell.entries) for cell in cells)
    spread, n_repeats = spread_over_repeats(cells, pooling)
    cost, n_priced = mean_cost([cost for cell in cells for cost in cell.costs])
    judge_cost, n_judge_priced = mean_cost([cost for cell in cells for cost in cell.judge_costs])
    spans = contest.intervals.get(agent, {})
    overall, agentic, task_half = (spans.get(name, _NO_INTERVAL) for name in ("overall", "agentic", "task"))
    possible = contest.ranks.get(agent)
    relied = reliability(cells, pooling)
    n_failed, n_medals = sum(cell.n_failed for cell in cells), sum(cell.n_medals for cell in cells)
    turns, seconds, tokens = (sum(used) for used in zip(*(cell.used for cell in cells), strict=True))
    found = [cell.conditions for cell in cells]
    track, task, tier = where

    def per_run(total: float) -> float | None:
        return total / n_scored if n_scored else None

    def pooled(name: str) -> float | None:
        return pooled_score(cells, name, pooling)

    return Row(
        agent=agent,
        track=track,
        task=task,
        tier=tier,
        rank=rank,
        rank_best=possible.best if possible and possible.sufficient else None,
        rank_worst=possible.worst if possible and possible.sufficient else None,
        tie=contest.ties.get(agent) or None,
        overall=pooled("overall"),
        overall_low=overall.low,
        overall_high=overall.high,
        overall_sd=spread,
        sd_repeats=n_repeats,
        agentic=pooled("agentic"),
        agentic_low=agentic.low,
        agentic_high=agentic.high,
        task_score=pooled("task"),
        task_low=task_half.low,
        task_high=task_half.high,
        s1=pooled("s1"),
        s2=pooled("s2"),
        s3=pooled("s3"),
        s4=pooled("s4"),
        s5=pooled("s5"),
        k=relied.k,
        pass_k=relied.pass_k,
        worst_k=relied.worst_k,
        failure_rate=per_run(n_failed),
        no_medal_rate=per_run(n_scored - n_medals),
        n_failed=n_failed,
        n_disqualified=sum(cell.n_disqualified for cell in cells),
        mean_turns=per_run(turns),
        mean_wall_s=per_run(seconds),
        mean_tokens=per_run(tokens),
        mean_cost_usd=cost,
        n_priced=n_priced,
        judge_cost_usd=judge_cost,
        n_judge_priced=n_judge_priced,
        n_scored=n_scored,
        n_planned=n_planned,
        cells_scored=sum(bool(cell.scores) for cell in cells),
        cells_planned=len(cells),
        min_repeats=relied.k or 0,
        sufficient=overall.sufficient,
        provisional=n_scored < n_planned,
        sandbox=_joined(union(found, "sandbox")),
        judge=_joined(union(found, "judge")),
        mixed=", ".join(differences({name: [cell.conditions for cell in group] for name, group in _tasks(cells)})),
    )


def _tasks(cells: list[Cell]) -> Iterable[tuple[str, list[Cell]]]:
    return group_by(cells, lambda cell: cell.task).items()


def _joined(classes: Iterable[object]) -> str:
    return " + ".join(sorted(map(str, classes)))
