"""Stages S1–S5 of every agent, over everything and within each track, and how far judges were apart and agree.

Agreement is Krippendorff's alpha of a panel and weighted kappa of each pair of its members. A rater is one judgement of
a run, ``<judge>#<repeat>``; a unit is a run that at least two raters judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, repeat
from statistics import fmean
from typing import Any

import pandas as pd

from automedbench.base.records import JudgedStage, ScoreRecord, Stage
from automedbench.leaderboard.entries import JUDGED, judge_stages
from automedbench.leaderboard.tables.cells import pool_scores, select_scored, split_by_track, tabulate_cells
from automedbench.leaderboard.tables.table import BoardTable
from automedbench.statistics.agreement import krippendorff_alpha, weighted_kappa
from automedbench.statistics.intervals import intervals
from automedbench.statistics.samples import Agreement, Sample, StatisticsMethod

STAGES: tuple[Stage, ...] = ("S1", "S2", "S3", "S4", "S5")


def build_stages(runs: pd.DataFrame, method: StatisticsMethod) -> BoardTable:
    """One row per track (first all of them), agent and stage, in this order; ``runs``: of ``tabulate_runs``."""
    judged = [score and judge_stages(score) for score in runs.score]
    own = {stage: list(map(_sample, runs["sample"], runs[stage.lower()], judged, repeat(stage))) for stage in STAGES}
    parts = split_by_track(runs.assign(**own))
    return BoardTable("stages", [row for track, part in parts for row in _stage_rows(track, part, method)])


def _sample(run: Sample | None, value: float, judges: dict[str, dict[str, float]], stage: Stage) -> Sample | None:
    """One stage of a run in the place of the agentic half, which no case is part of."""
    judged = {judge: own[stage.lower()] for judge, own in judges.items()} if run else {}
    return run and Sample(run.task, run.tier, run.repeat, value, 0.0, judged=judged)


def _stage_rows(track: str | None, runs: pd.DataFrame, method: StatisticsMethod) -> Iterator[dict[str, Any]]:
    means = pool_scores(tabulate_cells(runs), ["agent"], method.pooling, [stage.lower() for stage in STAGES])
    planned, finished = runs.groupby("agent").size(), select_scored(runs)
    for agent, n_planned in planned.items():
        scored = finished[finished.agent == agent]
        for stage in STAGES:
            span = intervals(scored[stage].tolist(), method, ("agentic",))["agentic"]
            spreads = _spreads(scored, stage)
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


def _spreads(scored: pd.DataFrame, stage: Stage) -> list[float]:
    """Standard deviations between the judgements of a stage, of the runs that have one."""
    found = (score.judge_spread.get(stage) for score in scored.score)
    return [spread for spread in found if spread is not None]


def build_agreement(runs: pd.DataFrame, method: StatisticsMethod) -> BoardTable:
    """Alpha over all tracks and in each, kappa of the pairs over all tracks; empty when no run has two judgements."""
    scored = select_scored(runs)
    panels = scored.loc[[len(score.panel) > 1 for score in scored.score]]
    parts = [(track, stage, part.score) for track, part in split_by_track(panels) for stage in JUDGED]
    return BoardTable("agreement", [row for part in parts for row in _agreement_rows(*part, method)])


def collect_ratings(scores: Iterable[ScoreRecord], stage: JudgedStage) -> pd.DataFrame:
    """Score of the stage in every run (rows) by each rater (columns, alphabetical), NaN where it gave none."""
    rows = [{rater: stages[stage] for rater, stages in score.panel.items() if stage in stages} for score in scores]
    return pd.DataFrame(rows, dtype=float).sort_index(axis=1)


def _agreement_rows(
    track: str | None, stage: JudgedStage, scores: Iterable[ScoreRecord], method: StatisticsMethod
) -> Iterator[dict[str, Any]]:
    """Coefficients of a stage: of the panel, then of its pairs where all tracks are looked at; none for one rater."""
    ratings = collect_ratings(scores, stage)
    if len(ratings.columns) < 2:
        return
    alpha = krippendorff_alpha(ratings.to_numpy().T, method)
    yield _row(track, stage, alpha, {"measure": "alpha", "first": None, "second": None, "raters": len(ratings.columns)})
    # Categories at the distance of their scores: judges give two decimals.
    given = {rater: hundredths.tolist() for rater, hundredths in (100 * ratings).round().items()}
    for first, second in combinations(given, 2) if track is None else ():
        kappa = weighted_kappa(given[first], given[second], method, categories=range(101))
        yield _row(track, stage, kappa, {"measure": "kappa", "first": first, "second": second, "raters": 2})


def _row(track: str | None, stage: str, found: Agreement, what: dict[str, Any]) -> dict[str, Any]:
    return {"track": track, "stage": stage, "units": found.n_units} | vars(found) | what
