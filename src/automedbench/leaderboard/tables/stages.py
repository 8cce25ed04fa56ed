"""Stages S1–S5 of every agent, over everything and within each track, and how far judges were apart."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

import pandas as pd

from automedbench.base.records import JudgedStage, Stage
from automedbench.leaderboard.entries import Method
from automedbench.leaderboard.tables.cells import cells_of, parts_of, pooled, scored_of
from automedbench.leaderboard.tables.table import Table
from automedbench.statistics import Interval, Sample, interval

STAGES: tuple[Stage, ...] = ("S1", "S2", "S3", "S4", "S5")
JUDGED: tuple[JudgedStage, ...] = ("S1", "S2", "S3")


def build_stages(runs: pd.DataFrame, method: Method) -> Table:
    """One row per track (first all of them), agent and stage, in this order; ``runs``: of ``runs_of``."""
    return Table("stages", [row for track, part in parts_of(runs) for row in _rows(track, part, method)])


def _rows(track: str | None, runs: pd.DataFrame, method: Method) -> Iterator[dict[str, Any]]:
    means = pooled(cells_of(runs), ["agent"], method.pooling, [stage.lower() for stage in STAGES])
    for agent, own in runs.groupby("agent"):
        scored = scored_of(own)
        for stage in STAGES:
            span, spreads = _interval(scored, stage, method), _spreads(scored, stage)
            yield {
                "track": track,
                "agent": agent,
                "stage": stage,
                "n_planned": len(own),
                "n_scored": len(scored),
                "mean": means[stage.lower()].get(agent),
                "low": span.low,
                "high": span.high,
                "judge_spread": fmean(spreads) if spreads else None,
                "n_spread": len(spreads),
            }


def _interval(scored: pd.DataFrame, stage: Stage, method: Method) -> Interval:
    """Interval of one stage: it takes the place of the agentic half, which no case is part of."""
    values = zip(scored["sample"], scored[stage.lower()], strict=True)
    samples = [Sample(run.task, run.tier, run.repeat, value, 0.0) for run, value in values]
    return interval(samples, "agentic", method.pooling, **method.resampling)


def _spreads(scored: pd.DataFrame, stage: Stage) -> list[float]:
    """Standard deviations between the judgements of a stage, of the runs that have one."""
    found = (score.judge_spread.get(stage) for score in scored.score)
    return [spread for spread in found if spread is not None]
