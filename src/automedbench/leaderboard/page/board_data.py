"""Data of the board's script: tables without repeated keys, texts, compiled charts. Nothing of it is markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from decimal import Decimal
from typing import Any, Literal

from automedbench.base.records import HEADLINE_TIERS, Model
from automedbench.error_codes.taxonomy import CODES, TAXONOMY
from automedbench.judge.rubric import Rubric
from automedbench.leaderboard import definitions
from automedbench.leaderboard.board import HEADLINE, Board, tier_choices
from automedbench.leaderboard.charts import compiled_charts, paper_charts
from automedbench.leaderboard.charts.theme import DARK, LIGHT, PAGE_FONT, SERIES_DARK, SERIES_LIGHT, SHAPES
from automedbench.leaderboard.entries import Entry, Pooling, group_by, in_tiers, pooled_mean, scored
from automedbench.leaderboard.page.details import CompactTable
from automedbench.leaderboard.tables.ledger import RunRow
from automedbench.leaderboard.tables.ranking import rank_agents

_DIGITS = 5
RUN_COLUMNS = (
    *("agent", "track", "task", "tier", "repeat", "outcome", "disqualified", "failed", "overall", "agentic"),
    *(
        "task_score",
        "s1",
        "s2",
        "s3",
        "s4",
        "s5",
        "medal",
        "error_codes",
        "turns",
        "wall_s",
        "tokens_total",
        "cost_usd",
    ),
    *("task_version", "track_version", "rubric_version", "code_version"),
)
_CODED = {
    *("agent", "track", "task", "tier", "outcome", "medal", "error_codes"),
    *("task_version", "track_version", "rubric_version", "code_version"),
}
"""Columns of few different values: each is stored once."""


class PageTask(Model):
    """A task in the pickers."""

    id: str
    title: str
    track: str


class PageCriterion(Model):
    """A criterion of a rubric as a reader needs it."""

    id: str
    stage: str
    title: str
    earned_when: str
    levels: list[str]
    auto_tiers: list[str]


class PageCode(Model):
    """An error code."""

    title: str
    meaning: str


class PageTheme(Model):
    """Colours of charts by token, and those of agents."""

    colours: dict[str, str]
    series: list[str]


class Column(Model):
    """A column of the ledger: its values, or its levels and which of them each run has."""

    values: list[Any] | None = None
    levels: list[Any] | None = None
    codes: list[int] | None = None


class PageRuns(Model):
    """The ledger by columns."""

    n: int
    columns: dict[str, Column]


class PageData(Model):
    """Everything but the runs; ``views``: tier choice → track → ranking."""

    agents: list[str]
    models: dict[str, str]
    tiers: dict[str, str]
    tier_choices: dict[str, list[str]]
    tracks: dict[str, str]
    short: dict[str, str]
    tasks: list[PageTask]
    views: dict[str, dict[str, CompactTable]]
    tables: dict[str, CompactTable]
    rubrics: dict[str, list[PageCriterion]]
    rubric_versions: dict[str, int]
    outcomes: dict[str, str]
    errors: dict[str, PageCode]
    taxonomy: str
    stages: dict[str, str]
    pooling: Pooling
    pooling_text: str
    confidence: float
    resamples: int
    one_judge: str
    charts: dict[str, dict[str, Any]]
    themes: dict[Literal["light", "dark"], PageTheme]
    shapes: list[str]
    exported: list[str]


def page_data(board: Board) -> PageData:
    """Rankings of every choice of tier and track, tables, texts and charts."""
    tables = board.tables
    return PageData(
        agents=list(dict.fromkeys([*(row.agent for row in tables.overall), *sorted(board.plan.agents)])),
        models={name: agent.model for name, agent in board.plan.agents.items()},
        tiers={choice: _choice_title(choice, tiers) for choice, tiers in tier_choices(board.entries).items()},
        tier_choices={choice: list(tiers) for choice, tiers in tier_choices(board.entries).items()},
        tracks={track: definitions.track_title(track) for track in board.tracks},
        short={track: definitions.short_title(track) for track in board.tracks},
        tasks=_page_tasks(board),
        views={tiers: {track: compact(rows) for track, rows in views.items()} for tiers, views in tables.views.items()},
        tables=_page_tables(board),
        rubrics={track: _criteria(rubric) for track, rubric in board.rubrics.items()},
        rubric_versions={track: rubric.version for track, rubric in board.rubrics.items()},
        outcomes=definitions.OUTCOMES,
        errors={code: PageCode(title=text.title, meaning=text.meaning) for code, text in CODES.items()},
        taxonomy=TAXONOMY,
        stages={stage.id: stage.title for stage in definitions.STAGES},
        pooling=board.pooling,
        pooling_text=definitions.POOLINGS[board.pooling],
        confidence=board.confidence,
        resamples=board.resamples,
        one_judge=_one_judge(board.entries),
        charts=compiled_charts(),
        themes={
            "light": PageTheme(colours=LIGHT | {"font": PAGE_FONT}, series=list(SERIES_LIGHT)),
            "dark": PageTheme(colours=DARK | {"font": PAGE_FONT}, series=list(SERIES_DARK)),
        },
        shapes=list(SHAPES),
        exported=list(paper_charts(board)),
    )


def page_runs(rows: Sequence[RunRow]) -> PageRuns:
    """The columns of the ledger that the table of runs and the origins of numbers need."""
    return PageRuns(
        n=len(rows), columns={name: _column(name, [getattr(row, name) for row in rows]) for name in RUN_COLUMNS}
    )


def compact(rows: Sequence[Any]) -> CompactTable:
    """Dataclass rows as lists."""
    if not rows:
        return CompactTable(columns=[], rows=[])
    names = [field.name for field in fields(rows[0])]
    return CompactTable(columns=names, rows=[[_short(getattr(row, name)) for name in names] for row in rows])


def other_pooling(board: Board) -> CompactTable:
    """Headline scores and ranks as the pooling that is not configured gives them, over everything and per track."""
    pooling: Pooling = "runs" if board.pooling == "tasks" else "tasks"
    headline = in_tiers(board.entries, HEADLINE_TIERS)
    places: dict[str | None, list[Entry]] = {None: headline, **group_by(headline, lambda entry: entry.track)}
    rows: list[list[Any]] = []
    for track, entries in places.items():
        agents = group_by(entries, lambda entry: entry.run.agent)
        overall = {agent: pooled_mean(group, "overall", pooling) for agent, group in agents.items()}
        ranks = rank_agents(overall)
        rows += [[track, agent, _short(overall[agent]), ranks[agent]] for agent in agents if ranks[agent] is not None]
    return CompactTable(columns=["track", "agent", "overall", "rank"], rows=rows)


def _page_tables(board: Board) -> dict[str, CompactTable]:
    tables, atlas = board.tables, board.tables.atlas
    return {
        "tasks": compact(tables.tasks),
        "cells": compact(tables.cells),
        "stages": compact(tables.stages),
        "comparisons": compact(tables.comparisons),
        "ranks": compact(tables.ranks),
        "agreement": compact(tables.agreement),
        "other": other_pooling(board),
        "errors": compact(atlas.rows),
        "error_pairs": compact(atlas.pairs),
        "error_costs": compact(atlas.costs),
        "error_counts": compact(atlas.counts),
        "error_summary": compact(atlas.summaries),
        "error_detectors": compact(atlas.detectors),
    }


def _page_tasks(board: Board) -> list[PageTask]:
    """Planned tasks by track and title."""
    tracks = {entry.run.task: entry.track for entry in board.entries}
    titles = {task: board.cards[task].title if task in board.cards else task for task in tracks}
    ordered = sorted(tracks, key=lambda task: (definitions.track_title(tracks[task]), titles[task], task))
    return [PageTask(id=task, title=titles[task], track=tracks[task]) for task in ordered]


def _choice_title(choice: str, tiers: Iterable[str]) -> str:
    return (
        " + ".join(definitions.TIERS[tier][0] for tier in tiers) if choice == HEADLINE else definitions.TIERS[choice][0]
    )


def _criteria(rubric: Rubric) -> list[PageCriterion]:
    return [
        PageCriterion(
            id=criterion.id,
            stage=criterion.stage,
            title=criterion.title,
            earned_when=criterion.earned_when,
            levels=[f"{level.value:g}: {level.text}" for level in criterion.levels] if criterion.stage == "S3" else [],
            auto_tiers=list(criterion.auto_tiers),
        )
        for criterion in rubric.criteria
    ]


def _one_judge(entries: Iterable[Entry]) -> str:
    """What stands where agreement would, were there several judgements."""
    judges = sorted({score.recipe.judge for score in scored(entries)})
    if not judges:
        return "No run is judged yet."
    return f"Each run was judged once (by {', '.join(judges)}): there is no agreement to measure."


def _column(name: str, values: list[Any]) -> Column:
    if name not in _CODED:
        return Column(values=[_short(value) for value in values])
    levels = list(dict.fromkeys(values))
    codes = {level: number for number, level in enumerate(levels)}
    return Column(levels=levels, codes=[codes[value] for value in values])


def _short(value: Any) -> Any:
    """Numbers with as many digits as a reader needs."""
    if isinstance(value, Decimal):
        return round(float(value), 6)
    return round(value, _DIGITS) if isinstance(value, float) else value
