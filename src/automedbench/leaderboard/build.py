"""Build the leaderboard: read the scores of a campaign once, write tables, charts and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from automedbench import __version__
from automedbench.base.cards import TaskCard, find_cards, load_card
from automedbench.base.files import read_record, remove_temporaries, write_text
from automedbench.base.records import HEADLINE_TIERS, JudgeKind, Model, RunId, Tier
from automedbench.campaign.config import RUBRICS, CampaignConfig
from automedbench.campaign.treatments import find_base, find_fault
from automedbench.judge.rubric import load_rubric
from automedbench.leaderboard import definitions
from automedbench.leaderboard.board import Board
from automedbench.leaderboard.charts import export_charts
from automedbench.leaderboard.conditions import find_outdated, is_judged_by, judge_class
from automedbench.leaderboard.entries import list_scores, match_scores
from automedbench.leaderboard.page.board_page import write_board, write_comparison
from automedbench.leaderboard.page.run_pages import page_processes, write_run_pages
from automedbench.leaderboard.papers import export_paper_tables
from automedbench.leaderboard.plan import Plan, PlannedAgent, gather_scores
from automedbench.leaderboard.reliability import judge_faults, read_confidences, read_faulted
from automedbench.leaderboard.skills import read_skill_use
from automedbench.leaderboard.tables.columns import COLUMNS, TABLES
from automedbench.leaderboard.tables.table import export_table, json_rows, plain_json
from automedbench.statistics.intervals import method_text
from automedbench.statistics.samples import Pooling, StatisticsMethod


class FileTable(Model):
    """One table: what it is, its columns, and rows in their order."""

    title: str
    columns: list[str]
    rows: list[list[Any]]


class FileTask(Model):
    """A planned task; title and data set from its card."""

    track: str
    title: str
    dataset: str | None
    licence: str | None


class LeaderboardFile(Model):
    """``results/leaderboard/leaderboard.json``."""

    schema_: Literal["automedbench/leaderboard/1"] = Field("automedbench/leaderboard/1", alias="schema")
    code_version: str
    pooling: Pooling
    confidence: float
    resamples: int
    intervals: str = Field(description="how they are made, in a sentence")
    headline_tiers: list[Tier]
    judge_kind: JudgeKind
    judges: list[str] = Field(description="kind (id) of every judge")
    sandboxes: list[str] = Field(description="backend/network of every run")
    signature: str = Field(description="of all runs of the headline; mixed where they differ in a condition")
    differs: list[str] = Field(description="conditions that are not the same for all runs of the headline")
    n_scored: int
    n_planned: int
    unreadable: dict[str, str] = Field(description="scores that count as missing: path → why")
    outdated: dict[str, list[str]] = Field(
        description="runs that were not made or scored as the campaign asks now: path → conditions"
    )
    agents: dict[str, PlannedAgent]
    tracks: dict[str, str] = Field(description="track → title")
    tasks: dict[str, FileTask]
    stages: dict[str, str] = Field(description="stage → title")
    definitions: dict[str, str] = Field(description="column → what it means; the same in every table")
    tables: dict[str, FileTable]


def export_tables(board: Board, folder: Path) -> None:
    """Write all of them into ``folder``."""
    for table in board.tables.values():
        export_table(table, folder)
    for name in TABLES.keys() - board.tables.keys():
        for suffix in ("csv", "parquet"):
            (folder / f"{name}.{suffix}").unlink(missing_ok=True)
    # On one line: indented, ten thousand runs would take several times the space.
    record = leaderboard_file(board).model_dump(mode="json", by_alias=True)
    write_text(folder / "leaderboard.json", plain_json(record) + "\n")
    export_paper_tables(board, folder)


def leaderboard_file(board: Board) -> LeaderboardFile:
    """Everything of a board; scores in [0, 1], money as decimal strings."""
    found = list_scores(board.entries)
    shown = {name for table in board.tables.values() for name in table.kinds}
    return LeaderboardFile(
        code_version=__version__,
        pooling=board.method.pooling,
        confidence=board.method.confidence,
        resamples=board.method.resamples,
        intervals=method_text(board.method),
        headline_tiers=list(HEADLINE_TIERS),
        judge_kind=board.plan.judge_kind,
        judges=sorted({judge_class(score) for score in found}),
        sandboxes=sorted({score.enforced.isolation for score in found}),
        signature=board.signature,
        differs=board.differs,
        n_scored=len(found),
        n_planned=len(board.entries),
        unreadable=board.unreadable,
        outdated={path: list(names) for path, names in board.outdated.items()},
        agents=board.plan.agents,
        tracks={track: definitions.track_title(track) for track in board.tracks},
        tasks={entry.run.task: _task(entry.run.task, entry.track, board) for entry in board.entries},
        stages={stage.id: stage.title for stage in definitions.STAGES},
        definitions={name: column.meaning for name, column in COLUMNS.items() if name in shown},
        tables={
            # Cells are plain values already: validating hundreds of thousands of them says nothing.
            table.name: FileTable.model_construct(
                title=TABLES[table.name].title, columns=list(table.kinds), rows=json_rows(table)
            )
            for table in board.tables.values()
        },
    )


def _task(task: str, track: str, board: Board) -> FileTask:
    card = board.cards.get(task)
    if card is None:
        return FileTask(track=track, title=task, dataset=None, licence=None)
    return FileTask(track=track, title=card.title, dataset=card.dataset.title, licence=card.dataset.licence)


def statistics_method(settings: CampaignConfig) -> StatisticsMethod:
    """Pooling, confidence and resamples of a campaign."""
    shown = settings.leaderboard
    return StatisticsMethod(settings.pooling, shown.confidence, shown.resamples)


RequestedConditions = Callable[[RunId], Mapping[str, object]]
"""Values that a campaign requests for a run, by name of ``conditions.CONDITIONS``, as scores hold them."""


def build_leaderboard(
    results: Path,
    cards: Sequence[str],
    method: StatisticsMethod,
    *,
    partial: bool = False,
    requested: Callable[[dict[str, TaskCard]], RequestedConditions] = lambda _cards: lambda _run: {},
) -> Board:
    """Read every planned run's score, write ``<results>/leaderboard/``: pages, charts, tables; returns what they show.

    Runs that were not made or scored as ``requested`` (by the cards of the planned tasks) are outdated. Raises
    InfrastructureError when a planned run has no score, unless ``partial``.
    """
    out, plan = results / "leaderboard", read_record(results / "plan.json", Plan)
    # Processes of their own write the pages of runs: they start while scores are read, and a thread waits for them.
    with page_processes(len(plan.runs)) as write_all, ThreadPoolExecutor(1, "run-pages") as beside:
        gathered = gather_scores(results, plan, partial=partial)
        known = _load_cards(cards, {run.task for run in plan.runs})
        tracks, requested_of = {task: card.track for task, card in known.items()}, requested(known)
        entries = [
            replace(
                entry,
                outdated=find_outdated(entry.score, requested_of(entry.run)),
                other_judge=bool(plan.pinned_judge) and not is_judged_by(entry.score, plan.pinned_judge),
            )
            if entry.score
            else entry
            for entry in match_scores(plan.runs, gathered.scores, tracks)
        ]
        faulted = [entry for entry in entries if find_fault(entry.run.agent)]
        ranked = [entry for entry in entries if not find_fault(entry.run.agent)]
        texts = {track: load_rubric(Path(RUBRICS), track) for track in sorted({entry.track for entry in entries})}
        remove_temporaries(out)
        pages = beside.submit(write_run_pages, results, out, entries, known, texts, write_all)
        use, verdicts = read_skill_use(results, ranked), judge_faults(read_faulted(results, faulted), ranked)
        sure = read_confidences(results, ranked, {find_base(entry.run.agent) for entry in faulted})
        plan = plan.without_faults()
        board = Board(plan, ranked, known, texts, method, gathered.unreadable, use, verdicts, sure)
        export_tables(board, out)
        export_charts(out / "charts", board)
        write_comparison(out / "beside.html", board)
        write_board(out / "index.html", board, pages.result())
    return board


def _load_cards(folders: Sequence[str], tasks: set[str]) -> dict[str, TaskCard]:
    """Cards of the planned tasks; a card file is named after its task."""
    paths = [path for path in find_cards(list(folders)) if path.stem in tasks]
    return {card.id: card for card in map(load_card, paths)}
