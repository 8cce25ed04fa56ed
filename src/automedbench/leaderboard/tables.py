"""The numbers of the leaderboard: planned runs and scores in, rows out. Pure: reads and writes no file.

Scores are in [0, 1]. They are pooled as configured: ``tasks`` takes the mean over tasks of the mean over tiers of the
mean over repeats, ``runs`` the mean over all runs (as the paper's table 4). What a run used (turns, time, tokens, cost)
and failure rates are means over runs in either case. Nothing is imputed: a run without a score is in no mean, and its
row is provisional.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import fmean, stdev
from typing import Literal, TypeVar

from automedbench.records import TIERS, RunId, ScoreRecord, Tier

Pooling = Literal["tasks", "runs"]
Scope = Literal["overall", "track", "task", "cell"]
Nested = list[list[list[ScoreRecord]]]
ItemT = TypeVar("ItemT")
KeyT = TypeVar("KeyT")

HEADLINE_TIERS: tuple[Tier, ...] = ("lite", "standard")
"""Tiers that make the headline; pro never does (design.md section 7)."""


@dataclass(frozen=True)
class Entry:
    """One planned run and its score, if it has one."""

    run: RunId
    track: str
    score: ScoreRecord | None


@dataclass(frozen=True)
class Row:
    """One row of a table: an agent, within a track, task or cell where these are set. null: not known."""

    agent: str
    track: str | None
    task: str | None
    tier: str | None
    rank: int | None
    overall: float | None
    overall_sd: float | None
    sd_repeats: int
    agentic: float | None
    task_score: float | None
    s1: float | None
    s2: float | None
    s3: float | None
    s4: float | None
    s5: float | None
    failure_rate: float | None
    n_failed: int
    n_disqualified: int
    mean_turns: float | None
    mean_wall_s: float | None
    mean_tokens: float | None
    mean_cost_usd: Decimal | None
    n_priced: int
    n_scored: int
    n_planned: int
    cells_scored: int
    cells_planned: int
    provisional: bool
    sandbox: str
    judge: str
    mixed: str


_IDENTITY: dict[Scope, Callable[[Entry], tuple[str | None, str | None, str | None]]] = {
    "overall": lambda entry: (None, None, None),
    "track": lambda entry: (entry.track, None, None),
    "task": lambda entry: (entry.track, entry.run.task, None),
    "cell": lambda entry: (entry.track, entry.run.task, entry.run.tier),
}


def entries_of(planned: Iterable[RunId], scores: Iterable[ScoreRecord], tracks: Mapping[str, str]) -> list[Entry]:
    """Match scores to planned runs; ``tracks`` (task → track) serves tasks that have no score yet."""
    found = {score.run.path: score for score in scores}
    known = dict(tracks) | {score.run.task: score.track for score in found.values()}
    return [Entry(run, known.get(run.task, "unknown"), found.get(run.path)) for run in planned]


def in_tiers(entries: Iterable[Entry], tiers: Sequence[str]) -> list[Entry]:
    """The entries of these tiers."""
    return [entry for entry in entries if entry.run.tier in tiers]


def build_rows(entries: Iterable[Entry], scope: Scope, pooling: Pooling = "tasks") -> list[Row]:
    """One row per agent and track, task or cell, ranked within it; in a fixed order whatever the order of ``entries``.

    Which tiers take part is the caller's choice (``in_tiers``); a cell row always stands for one.
    """
    rows: list[Row] = []
    places = group_by(entries, _IDENTITY[scope])
    for place in sorted(places, key=_place_order):
        agents = group_by(places[place], lambda entry: entry.run.agent)
        overall = {name: pooled_mean(group, "overall", pooling) for name, group in agents.items()}
        ranks = rank_agents(overall)
        for name in sorted(agents, key=lambda name: (ranks[name] or math.inf, name)):
            rows.append(_build_row(name, place, ranks[name], agents[name], pooling))
    return rows


def group_by(items: Iterable[ItemT], key: Callable[[ItemT], KeyT]) -> dict[KeyT, list[ItemT]]:
    """Items by key; keys in order of first appearance."""
    groups: dict[KeyT, list[ItemT]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def rank_agents(overall: Mapping[str, float | None]) -> dict[str, int | None]:
    """Rank = 1 + number of agents that are better by more than rounding; null without a score."""
    values = {name: None if value is None else round(value, 9) for name, value in overall.items()}
    scored = [value for value in values.values() if value is not None]
    return {
        name: None if value is None else 1 + sum(other > value for other in scored) for name, value in values.items()
    }


def pooled_mean(entries: Iterable[Entry], name: str, pooling: Pooling) -> float | None:
    """Mean of a score over the scored entries; null when there is none. Disqualified runs count 0."""
    return nested_mean(nest(scored(entries), pooling), name)


def nest(scores: list[ScoreRecord], pooling: Pooling) -> Nested:
    """Scores as tasks of tiers of repeats, or all as one group."""
    if pooling == "runs" or not scores:
        return [[scores]] if scores else []
    tasks = group_by(scores, lambda score: score.run.task).values()
    return [list(group_by(group, lambda score: score.run.tier).values()) for group in tasks]


def nested_mean(nested: Nested, name: str) -> float | None:
    """Mean over tasks of the mean over tiers of the mean over repeats."""
    if not nested:
        return None
    return fmean([fmean([fmean([value_of(score, name) for score in tier]) for tier in task]) for task in nested])


def scored(entries: Iterable[Entry]) -> list[ScoreRecord]:
    """The scores that exist."""
    return [entry.score for entry in entries if entry.score is not None]


def value_of(score: ScoreRecord, name: str) -> float:
    """One of a run's scores; 0 when it was disqualified."""
    value: float = 0.0 if score.disqualified else getattr(score.scores, name)
    return value


def has_failed(score: ScoreRecord) -> bool:
    """No complete final submission; a disqualified run has none."""
    return score.failed or score.disqualified


def spread_over_repeats(entries: Sequence[Entry], pooling: Pooling) -> tuple[float | None, int]:
    """(sample standard deviation of the overall score between repeats, number of repeats it rests on).

    Each repeat that is scored in every planned cell gives one value, pooled like the row itself. Null below two.
    """
    n_cells = len({_cell(entry) for entry in entries})
    repeats = group_by([entry for entry in entries if entry.score], lambda entry: entry.run.repeat)
    complete = [group for group in repeats.values() if len(group) == n_cells]
    values = [value for group in complete if (value := pooled_mean(group, "overall", pooling)) is not None]
    return (stdev(values) if len(values) > 1 else None), len(values)


def mean_cost(scores: Iterable[ScoreRecord]) -> tuple[Decimal | None, int]:
    """(mean cost in USD over runs with a known price, to the micro-dollar; their number). Unknown is never 0."""
    costs = [Decimal(score.totals.cost_usd) for score in scores if score.totals.cost_usd is not None]
    if not costs:
        return None, 0
    return (sum(costs, Decimal(0)) / len(costs)).quantize(Decimal("0.000001")), len(costs)


def sandbox_class(score: ScoreRecord) -> str:
    """What isolated the run, for example ``apptainer/sealed``."""
    return f"{score.enforced.backend}/{score.enforced.network}"


def judge_class(score: ScoreRecord) -> str:
    """Who judged the run, for example ``heuristic (heuristic-1)``."""
    return f"{score.recipe.judge_kind} ({score.recipe.judge})"


def what_differs(scores: Sequence[ScoreRecord]) -> list[str]:
    """Conditions that are not the same for all these runs, so that their scores should not be compared silently."""
    versions: dict[str, Callable[[ScoreRecord], object]] = {
        "sandbox": sandbox_class,
        "judge": judge_class,
        "task version": lambda score: (score.recipe.task_version, score.recipe.track_version),
        "cases": lambda score: score.recipe.cases_sha256,
        "rubric version": lambda score: score.recipe.rubric_version,
    }
    per_task = group_by(scores, lambda score: score.run.task).values()
    across = [name for name in ("sandbox", "judge") if len({versions[name](score) for score in scores}) > 1]
    within = [
        name
        for name in ("task version", "cases", "rubric version")
        if any(len({versions[name](score) for score in group}) > 1 for group in per_task)
    ]
    return across + within


def unequal_coverage(entries: Iterable[Entry]) -> bool:
    """Agents are planned on different cells, so that their means rest on different tasks or tiers."""
    agents = group_by(entries, lambda entry: entry.run.agent).values()
    return len({frozenset(map(_cell, group)) for group in agents}) > 1


def _cell(entry: Entry) -> tuple[str, str]:
    return entry.run.task, entry.run.tier


def _place_order(place: tuple[str | None, str | None, str | None]) -> tuple[str, str, int]:
    track, task, tier = place
    return track or "", task or "", ["", *TIERS].index(tier or "")


def _build_row(
    agent: str,
    place: tuple[str | None, str | None, str | None],
    rank: int | None,
    entries: list[Entry],
    pooling: Pooling,
) -> Row:
    scores = scored(entries)
    nested = nest(scores, pooling)
    spread, n_repeats = spread_over_repeats(entries, pooling)
    cost, n_priced = mean_cost(scores)
    track, task, tier = place
    return Row(
        agent=agent,
        track=track,
        task=task,
        tier=tier,
        rank=rank,
        overall=nested_mean(nested, "overall"),
        overall_sd=spread,
        sd_repeats=n_repeats,
        agentic=nested_mean(nested, "agentic"),
        task_score=nested_mean(nested, "task"),
        s1=nested_mean(nested, "s1"),
        s2=nested_mean(nested, "s2"),
        s3=nested_mean(nested, "s3"),
        s4=nested_mean(nested, "s4"),
        s5=nested_mean(nested, "s5"),
        failure_rate=_mean(has_failed(score) for score in scores),
        n_failed=sum(has_failed(score) for score in scores),
        n_disqualified=sum(score.disqualified for score in scores),
        mean_turns=_mean(score.totals.turns for score in scores),
        mean_wall_s=_mean(score.totals.wall_s for score in scores),
        mean_tokens=_mean(score.totals.tokens.total for score in scores),
        mean_cost_usd=cost,
        n_priced=n_priced,
        n_scored=len(scores),
        n_planned=len(entries),
        cells_scored=len({_cell(entry) for entry in entries if entry.score}),
        cells_planned=len({_cell(entry) for entry in entries}),
        provisional=len(scores) < len(entries),
        sandbox=" + ".join(sorted({sandbox_class(score) for score in scores})),
        judge=" + ".join(sorted({judge_class(score) for score in scores})),
        mixed=", ".join(what_differs(scores)),
    )


def _mean(values: Iterable[float]) -> float | None:
    numbers = [float(value) for value in values]
    return fmean(numbers) if numbers else None
