"""Boards without files: scores in, tables out. Resampling is kept small; what it finds is tested elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from factories import make_plan, make_run, make_score, make_scores

from automedbench.base.cards import find_cards, load_card
from automedbench.base.records import RunId, ScoreRecord, Tier
from automedbench.judge.rubric import load_rubric
from automedbench.leaderboard.board import Board
from automedbench.leaderboard.entries import BoardEntry, match_scores
from automedbench.leaderboard.tables.cells import tabulate_runs
from automedbench.leaderboard.tables.ranking import Scope, build_ranking
from automedbench.leaderboard.tables.table import Row
from automedbench.statistics.samples import Pooling, StatisticsMethod

ROOT = Path(__file__).resolve().parents[1]
TIERS: tuple[Tier, ...] = ("lite", "standard")


def make_board(
    scores: Sequence[ScoreRecord],
    planned: Sequence[RunId] = (),
    *,
    pooling: Pooling = "tasks",
    resamples: int = 200,
    unreadable: Mapping[str, str] | None = None,
) -> Board:
    """The board of these scores; ``planned``: all planned runs, default those that are scored."""
    plan = make_plan(list(planned) or [score.run for score in scores])
    tasks = {run.task for run in plan.runs}
    paths = [path for path in find_cards([str(ROOT / "config" / "tasks")]) if path.stem in tasks]
    cards = {card.id: card for card in map(load_card, paths)}
    entries = match_scores(plan.runs, scores, {task: card.track for task, card in cards.items()})
    method = StatisticsMethod(pooling, 0.95, resamples)
    tracks = sorted({entry.track for entry in entries} - {"unknown"})
    rubrics = {track: load_rubric(ROOT / "config" / "rubrics", track) for track in tracks}
    return Board(plan, entries, cards, rubrics, method, dict(unreadable or {}))


def build_rows(
    entries: Iterable[BoardEntry],
    scope: Scope,
    pooling: Pooling = "tasks",
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
) -> list[Row]:
    """One row per agent and track, task or cell, ranked within it."""
    return list(build_ranking(tabulate_runs(entries), scope, StatisticsMethod(pooling, confidence, resamples)).rows)


def make_campaign(
    agents: Iterable[str], tasks: Mapping[str, str], *, repeats: int = 3, tiers: Sequence[Tier] = TIERS
) -> list[ScoreRecord]:
    """Complete runs of every agent on every task (task → track): each next agent scores less, repeats differ."""
    scores = []
    for place, agent in enumerate(agents):
        for number, (task, track) in enumerate(tasks.items()):
            for tier in tiers:
                for repeat in range(1, repeats + 1):
                    value = max(0.0, 0.9 - 0.1 * place - 0.02 * repeat - 0.01 * number)
                    run = make_run(agent, task, tier, repeat)
                    scores.append(make_score(run, make_scores((value,) * 5, task=value), track=track))
    return scores
