"""Stages S1–S5 of every agent, over everything and within each track, and how far judges were apart and agree.

Agreement is Krippendorff's alpha of a panel and weighted kappa of each pair of its members. A rater is one judgement of
a run, ``<judge>#<repeat>``; a unit is a run that at least two raters judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from automedbench.base.records import JudgedStage, ScoreRecord, Stage
from automedbench.leaderboard.entries import JUDGED, judge_stages
from automedbench.leaderboard.tables.cells import pool_scores, select_scored, split_by_track, tabulate_cells
from automedbench.leaderboard.tables.table import BoardTable
from automedbench.statistics.agreement import krippendorff_alpha, weighted_kappa
from automedbench.statistics.intervals import intervals
from automedbench.statistics.samples import Agreement, Interval, Sample, StatisticsMethod

STAGES: tuple[Stage, ...] = ("S1", "S2", "S3", "S4", "S5")


def build_stages(runs: pd.DataFrame, method: StatisticsMethod) -> BoardTable:
    """One row per track (first all of them), agent and stage, in this order; ``runs``: of ``tabulate_runs``."""
    judged = runs.assign(judged=[score and judge_stages(score) for score in runs.score])
    return BoardTable(
        "stages", [row for track, part in split_by_track(judged) for row in _stage_rows(track, part, method)]
    )


def _stage_rows(track: str | None, runs: pd.DataFrame, method: StatisticsMethod) -> Iterator[dict[str, Any]]:
    means = pool_scores(tabulate_cells(runs), ["agent"], method.pooling, [stage.lower() for stage in STAGES])
    planned, finished = runs.groupby("agent").size(), select_scored(runs)
    for agent, n_planned in planned.items():
        scored = finished[finished.agent == agent]
        for stage in STAGES:
            span, spreads = _interval(scored, stage, method), _spreads(scored, stage)
            yield {
                "track": track,
                "agent": agent,
                "stage": stage,
                "n_planned": n_planned,
                "n_scored": len(scored),
                "mean": means[stage.lower()].get(agent),
                "low": span.low,
                "high": span.high,
                "judge_spread": fmean(spreads) if spreads else None,
                "n_spread": len(spreads),
            }


def _interval(scored: pd.DataFrame, stage: Stage, method: StatisticsMethod) -> Interval:
    """Interval of one stage: it takes the place of the agentic half, which no case is part of."""
    name = stage.lower()
    samples = [
        Sample(run.task, run.tier, run.repeat, value, 0.0, judged={judge: own[name] for judge, own in judges.items()})
        for run, value, judges in zip(scored["sample"], scored[name], scored.judged, strict=True)
    ]
    return intervals(samples, method, ("agentic",))["agentic"]


def _spreads(scored: pd.DataFrame, stage: Stage) -> list[float]:
    """Standard deviations between the judgements of a stage, of the runs that have one."""
    found = (score.judge_spread.get(stage) for score in scored.score)
    return [spread for spread in found if spread is not None]


def build_agreement(runs: pd.DataFrame, method: StatisticsMethod) -> BoardTable:
    """Alpha over all tracks and in each, kappa of the pairs over all tracks; empty when no run has two judgements."""
    return BoardTable(
        "agreement", [row for track, part in split_by_track(runs) for row in _agreement_rows(track, part, method)]
    )


def collect_ratings(scores: Iterable[ScoreRecord], stage: JudgedStage) -> dict[str, list[float]]:
    """Rater → its score of the stage in every run, NaN where it gave none; raters in alphabetical order."""
    runs = list(scores)
    raters = sorted({name for score in runs for name, stages in score.panel.items() if stage in stages})
    return {rater: [score.panel.get(rater, {}).get(stage, float("nan")) for score in runs] for rater in raters}


def _agreement_rows(track: str | None, runs: pd.DataFrame, method: StatisticsMethod) -> Iterator[dict[str, Any]]:
    """Coefficients of every stage: of the panel, then of its pairs where all tracks are looked at."""
    scores = [score for score in select_scored(runs).score if len(score.panel) > 1]
    for stage in JUDGED:
        ratings = collect_ratings(scores, stage)
        if len(ratings) < 2:
            continue
        alpha = krippendorff_alpha(np.array(list(ratings.values())), method)
        yield _row(track, stage, alpha, {"measure": "alpha", "first": None, "second": None, "raters": len(ratings)})
        for first, second in combinations(ratings, 2) if track is None else ():
            one, other = (list(map(_hundredths, ratings[rater])) for rater in (first, second))
            kappa = weighted_kappa(one, other, method, categories=range(101))
            yield _row(track, stage, kappa, {"measure": "kappa", "first": first, "second": second, "raters": 2})


def _row(track: str | None, stage: str, found: Agreement, what: dict[str, Any]) -> dict[str, Any]:
    return {"track": track, "stage": stage, "units": found.n_units} | vars(found) | what


def _hundredths(score: float) -> int | None:
    """Categories at the distance of their scores: judges give two decimals."""
    return None if math.isnan(score) else round(100 * score)
