"""The leaderboard: scores of a campaign as tables, as a ranking on the console and as one self-contained page."""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedbench.cards import TaskCard, find_cards, load_card
from automedbench.files import read_record
from automedbench.judge.rubric import Rubric, load_rubric
from automedbench.leaderboard.details import Budget, read_detail
from automedbench.leaderboard.export import Table, export_table
from automedbench.leaderboard.gather import gather_scores, run_folder
from automedbench.leaderboard.ledger import RunRow, ledger_row
from automedbench.leaderboard.page import Board, embed_detail, write_page
from automedbench.leaderboard.plan import Plan
from automedbench.leaderboard.tables import (
    HEADLINE_TIERS,
    Entry,
    Pooling,
    Row,
    build_rows,
    entries_of,
    in_tiers,
    scored,
)
from automedbench.records import ScoreRecord

__all__ = ["Built", "build_leaderboard"]

_MANY_RUNS = 1000


@dataclass(frozen=True)
class Built:
    """What was built: the headline ranking, the page, and scores that could not be read (path → why)."""

    ranking: list[Row]
    page: Path
    unreadable: dict[str, str]


def build_leaderboard(
    results: Path,
    planned: Path,
    cards: Sequence[str],
    rubrics: Path,
    out: Path,
    *,
    pooling: Pooling = "tasks",
    partial: bool = False,
    budget: Budget | None = None,
) -> Built:
    """Read every planned run's score and write page and tables into ``out``.

    Raises InfrastructureError when a planned run has no score, unless ``partial``.
    """
    plan = read_record(planned, Plan)
    gathered = gather_scores(results, plan, partial=partial)
    known = _load_cards(cards, {run.task for run in plan.runs})
    entries = entries_of(plan.runs, gathered.scores, {task: card.track for task, card in known.items()})
    board = Board(plan, entries, known, _load_rubrics(rubrics, entries), pooling, gathered.unreadable)
    for table in leaderboard_tables(entries, pooling):
        export_table(table, out, pooling)
    page = out / "index.html"
    write_page(page, board, _details(results, out, entries, budget or Budget()))
    return Built(build_rows(in_tiers(entries, HEADLINE_TIERS), "overall", pooling), page, gathered.unreadable)


def leaderboard_tables(entries: Sequence[Entry], pooling: Pooling) -> list[Table]:
    """The tables that are exported; pro is in ``runs`` and ``cells`` only."""
    headline = in_tiers(entries, HEADLINE_TIERS)
    return [
        Table("runs", RunRow, [ledger_row(score) for score in scored(entries)]),
        Table("overall", Row, build_rows(headline, "overall", pooling), omit=("track", "task", "tier")),
        Table("tracks", Row, build_rows(headline, "track", pooling), omit=("task", "tier")),
        Table("tasks", Row, build_rows(headline, "task", pooling), omit=("tier",)),
        Table("cells", Row, build_rows(entries, "cell", pooling)),
    ]


def _details(results: Path, out: Path, entries: Sequence[Entry], budget: Budget) -> Iterator[tuple[str, str]]:
    """(run path, embedded record) of every scored run, each read when it is written."""
    scores = scored(entries)
    folders = [run_folder(results, score.run) for score in scores]
    share = budget.transcript_share([_size(folder / "conversation.json") for folder in folders])
    n_cases = budget.cases_per_run(len(scores))
    seen_from_page = [Path(os.path.relpath(folder, out)).as_posix() for folder in folders]
    embed = functools.partial(_embedded_detail, transcript_chars=share, n_cases=n_cases)
    texts = _map_in_processes(embed, scores, folders, seen_from_page)
    yield from zip((score.run.path for score in scores), texts, strict=True)


def _embedded_detail(score: ScoreRecord, folder: Path, shown_as: str, *, transcript_chars: int, n_cases: int) -> str:
    detail = read_detail(folder, score, shown_as=shown_as, transcript_chars=transcript_chars, n_cases=n_cases)
    return embed_detail(detail)


def _map_in_processes(
    function: Callable[..., str], scores: list[ScoreRecord], *arguments: Sequence[Any]
) -> Iterator[str]:
    """``map`` in order; over a few processes where there is so much to read that starting them pays."""
    if len(scores) < _MANY_RUNS:
        yield from map(function, scores, *arguments)
        return
    workers = min(4, len(os.sched_getaffinity(0)))
    # Not fork: libraries that are loaded by now may have started threads.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(function, scores, *arguments, chunksize=50)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _load_cards(folders: Sequence[str], tasks: set[str]) -> dict[str, TaskCard]:
    """Cards of the planned tasks; a card file is named after its task."""
    paths = [path for path in find_cards(list(folders)) if path.stem in tasks]
    return {card.id: card for card in map(load_card, paths)}


def _load_rubrics(folder: Path, entries: Sequence[Entry]) -> dict[str, Rubric]:
    """Rubrics of the planned tracks."""
    tracks = sorted({entry.track for entry in entries})
    return {track: load_rubric(folder, track) for track in tracks}
