"""Stages S1–S5 of every agent, over everything and within each track, and how far judges were apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from automedbench.base.records import JudgedStage, Stage
from automedbench.leaderboard.entries import Method, group_by
from automedbench.leaderboard.tables.cells import Cell, pooled_score
from automedbench.statistics import Interval, Sample, interval

STAGES: tuple[Stage, ...] = ("S1", "S2", "S3", "S4", "S5")
JUDGED: tuple[JudgedStage, ...] = ("S1", "S2", "S3")


@dataclass(frozen=True)
class StageRow:
    """One stage of one agent; track null: all tracks. ``judge_spread``: mean over ``n_spread`` runs that have one."""

    agent: str
    track: str | None
    stage: str
    mean: float | None
    low: float | None
    high: float | None
    n_scored: int
    n_planned: int
    judge_spread: float | None
    n_spread: int


def parts_of(cells: Sequence[Cell]) -> list[tuple[str | None, list[Cell]]]:
    """All cells (None), and those of each track in alphabetical order; nothing without cells."""
    tracks = sorted(group_by(cells, lambda cell: cell.track).items())
    return [(None, list(cells)), *tracks] if cells else []


def build_stages(cells: Sequence[Cell], method: Method) -> list[StageRow]:
    """One row per track (first all of them), agent and stage, in this order."""
    rows: list[StageRow] = []
    for track, part in parts_of(cells):
        agents = group_by(part, lambda cell: cell.agent)
        for agent in sorted(agents):
            rows += [_stage_row(agent, track, stage, agents[agent], method) for stage in STAGES]
    return rows


def _stage_row(agent: str, track: str | None, stage: Stage, cells: list[Cell], method: Method) -> StageRow:
    span = _interval(cells, stage.lower(), method)
    spreads = _spreads(cells, stage)
    return StageRow(
        agent=agent,
        track=track,
        stage=stage,
        mean=pooled_score(cells, stage.lower(), method.pooling),
        low=span.low,
        high=span.high,
        n_scored=sum(len(cell.scores) for cell in cells),
        n_planned=sum(len(cell.entries) for cell in cells),
        judge_spread=fmean(spreads) if spreads else None,
        n_spread=len(spreads),
    )


def _interval(cells: Sequence[Cell], stage: str, method: Method) -> Interval:
    """Interval of one stage: it takes the place of the agentic half, which no case is part of."""
    values = np.concatenate([cell.values[stage] for cell in cells]).tolist()
    runs = [sample for cell in cells for sample in cell.samples]
    stages = [Sample(run.task, run.tier, run.repeat, value, 0.0) for run, value in zip(runs, values, strict=True)]
    return interval(stages, "agentic", method.pooling, **method.resampling)


def _spreads(cells: Iterable[Cell], stage: Stage) -> list[float]:
    """Standard deviations between the judgements of a stage, of the runs that have one."""
    spreads = [score.judge_spread for cell in cells for score in cell.scores]
    return [spread for judged in spreads for name, spread in judged.items() if name == stage and spread is not None]
