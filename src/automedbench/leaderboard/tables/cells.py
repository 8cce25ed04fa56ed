"""Planned runs as a frame, and cells: an agent on a task in one tier. Every row of a table is made of whole cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from math import fsum
from statistics import fmean
from typing import Any

import pandas as pd

from automedbench.base.records import TIERS
from automedbench.leaderboard.entries import Entry, Pooling, group_by, has_failed, has_medal, samples_of, value_of
from automedbench.leaderboard.tables.conditions import judge_class, sandbox_class
from automedbench.statistics import Sample

CELL = ("track", "task", "tier", "agent")
SCORES = ("overall", "agentic", "task_score", "s1", "s2", "s3", "s4", "s5")
_OF_A_RUN = (
    *("failed", "medal", "disqualified", "turns", "wall_s", "tokens", "cost", "judge_cost", "sandbox", "judge"),
    "sample",
)


def runs_of(entries: Iterable[Entry]) -> pd.DataFrame:
    """A row per planned run by track, task, tier, agent and repeat; without a score its numbers are null.

    ``sample`` is the run for the statistics, ``score`` its record, ``everything`` the same in all rows.
    """
    ordered = sorted(entries, key=lambda entry: (*_place(entry), entry.run.repeat))
    rows = [row for cell in group_by(ordered, _place).values() for row in _cell_rows(cell)]
    names = [*CELL, "repeat", "everything", "score", *SCORES, *_OF_A_RUN]
    frame = pd.DataFrame(rows, columns=names, dtype=object)
    return frame.astype(dict.fromkeys([*SCORES, "turns", "wall_s", "tokens"], float))


def scored_of(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that have a score."""
    return runs[runs.score.notna()].astype(dict.fromkeys(["failed", "medal", "disqualified"], bool))


def cells_of(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per cell with a scored run: means of its scores, numbers of runs and medals, overall score of each run."""
    groups = scored_of(runs).groupby(list(CELL), sort=False)
    counts = {"n_scored": groups.size(), "n_medals": groups.medal.sum(), "every": groups.overall.agg(list)}
    return groups[list(SCORES)].agg(fmean).assign(everything=True, **counts).reset_index()


def pooled(cells: pd.DataFrame, keys: Sequence[str], pooling: Pooling, columns: Sequence[str]) -> pd.DataFrame:
    """Columns of scored cells by ``keys``: mean over tasks of the mean over tiers, or over cells by their runs.

    Sums are exact: pandas' own could differ in the last digit that files show.
    """
    keys, columns = list(keys), list(columns)
    if pooling == "tasks":
        tasks = cells.groupby(list(dict.fromkeys([*keys, "task"])), sort=False)[columns].agg(fmean)
        return tasks.groupby(level=keys, sort=False).agg(fmean)
    runs = (
        cells[columns].mul(cells.n_scored, axis=0).join(cells[[*keys, "n_scored"]]).groupby(keys, sort=False).agg(fsum)
    )
    return runs[columns].div(runs.n_scored, axis=0)


def parts_of(runs: pd.DataFrame) -> list[tuple[str | None, pd.DataFrame]]:
    """All runs (None), and those of each track in alphabetical order; nothing without runs."""
    return [(None, runs), *runs.groupby("track")] if len(runs) else []


def _place(entry: Entry) -> tuple[str, str, int, str]:
    return entry.track, entry.run.task, TIERS.index(entry.run.tier), entry.run.agent


def _cell_rows(entries: Sequence[Entry]) -> list[list[Any]]:
    """Rows of one cell's runs; its samples are made together."""
    samples = iter(samples_of(entries))
    return [_row(entry, next(samples) if entry.score else None) for entry in entries]


def _row(entry: Entry, sample: Sample | None) -> list[Any]:
    run, score = entry.run, entry.score
    place = [entry.track, run.task, run.tier, run.agent, run.repeat, True, score]
    if score is None:
        return [*place, *[None] * (len(SCORES) + len(_OF_A_RUN))]
    totals = score.totals
    costs = [None if usd is None else Decimal(usd) for usd in (totals.cost_usd, score.judge_cost_usd)]
    used = [totals.turns, totals.wall_s, totals.tokens.total, *costs]
    values = [value_of(score, name.removesuffix("_score")) for name in SCORES]
    ends = [has_failed(score), has_medal(score), score.disqualified]
    return [*place, *values, *ends, *used, sandbox_class(score), judge_class(score), sample]
