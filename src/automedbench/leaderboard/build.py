"""Build the leaderboard: read the scores of a campaign once, write tables, charts and pages."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from automedbench.base.cards import TaskCard, find_cards, load_card
from automedbench.base.files import read_record, remove_temporaries
from automedbench.judge.rubric import Rubric, load_rubric
from automedbench.leaderboard.board import Board, build_tables
from automedbench.leaderboard.charts import export_charts
from automedbench.leaderboard.entries import Entry, Method, Pooling, entries_of, scored
from automedbench.leaderboard.files import export_tables
from automedbench.leaderboard.gather import gather_scores
from automedbench.leaderboard.page.board_page import write_board
from automedbench.leaderboard.page.run_pages import write_run_pages
from automedbench.leaderboard.plan import Plan
from automedbench.leaderboard.tables.table import Table

__all__ = ["Built", "build_leaderboard"]


@dataclass(frozen=True)
class Built:
    """What was built: the headline ranking and how it came about, the page, and scores not counted (path → why)."""

    ranking: Table
    method: Method
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
    confidence: float = 0.95,
    resamples: int = 2000,
    partial: bool = False,
) -> Built:
    """Read every planned run's score and write pages, charts and tables into ``out``.

    Raises InfrastructureError when a planned run has no score, unless ``partial``.
    """
    with _uncollected():
        return _build(results, planned, cards, rubrics, out, Method(pooling, confidence, resamples), partial)


def _build(
    results: Path, planned: Path, cards: Sequence[str], rubrics: Path, out: Path, method: Method, partial: bool
) -> Built:
    plan = read_record(planned, Plan)
    gathered = gather_scores(results, plan, partial=partial)
    known = _load_cards(cards, {run.task for run in plan.runs})
    entries = entries_of(plan.runs, gathered.scores, {task: card.track for task, card in known.items()})
    texts = _load_rubrics(rubrics, entries)
    remove_temporaries(out, also=".html.tmp")
    # Pages of runs are written by processes of their own: the thread waits for them while the tables are computed.
    with ThreadPoolExecutor(1, "run-pages") as beside:
        pages = beside.submit(write_run_pages, results, out / "runs", scored(entries), known, texts)
        board = Board(plan, entries, known, texts, method, build_tables(entries, method), gathered.unreadable)
        export_tables(board, out)
        export_charts(out / "charts", board)
        page = out / "index.html"
        write_board(page, board)
        pages.result()
    return Built(board.tables.overall, method, page, gathered.unreadable)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without the search for reference cycles: all records live to the end, and looking through them takes seconds."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _load_cards(folders: Sequence[str], tasks: set[str]) -> dict[str, TaskCard]:
    """Cards of the planned tasks; a card file is named after its task."""
    paths = [path for path in find_cards(list(folders)) if path.stem in tasks]
    return {card.id: card for card in map(load_card, paths)}


def _load_rubrics(folder: Path, entries: Sequence[Entry]) -> dict[str, Rubric]:
    """Rubrics of the planned tracks."""
    tracks = sorted({entry.track for entry in entries})
    return {track: load_rubric(folder, track) for track in tracks}
