"""Agreement of judges on each stage: Krippendorff's alpha of a panel, weighted kappa of each pair of its members.

A rater is one judgement of a run, ``<judge>#<repeat>``; a unit is a run that at least two raters judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from automedbench.base.records import JudgedStage, ScoreRecord
from automedbench.leaderboard.entries import Method
from automedbench.leaderboard.tables.cells import parts_of, scored_of
from automedbench.leaderboard.tables.stages import JUDGED
from automedbench.leaderboard.tables.table import Table
from automedbench.statistics import Agreement, krippendorff_alpha, weighted_kappa


def build_agreement(runs: pd.DataFrame, method: Method) -> Table:
    """Alpha over all tracks and in each, kappa of the pairs over all tracks; empty when no run has two judgements."""
    return Table("agreement", [row for track, part in parts_of(runs) for row in _rows(track, part, method)])


def ratings_of(scores: Iterable[ScoreRecord], stage: JudgedStage) -> dict[str, list[float]]:
    """Rater → its score of the stage in every run, NaN where it gave none; raters in alphabetical order."""
    runs = list(scores)
    raters = sorted({name for score in runs for name, stages in score.panel.items() if stage in stages})
    return {rater: [score.panel.get(rater, {}).get(stage, float("nan")) for score in runs] for rater in raters}


def _rows(track: str | None, runs: pd.DataFrame, method: Method) -> Iterator[dict[str, Any]]:
    """Coefficients of every stage: of the panel, then of its pairs where all tracks are looked at."""
    scores = [score for score in scored_of(runs).score if len(score.panel) > 1]
    for stage in JUDGED:
        ratings = ratings_of(scores, stage)
        if len(ratings) < 2:
            continue
        alpha = krippendorff_alpha(np.array(list(ratings.values())), **method.resampling)
        yield _row(track, stage, alpha, {"measure": "alpha", "first": None, "second": None, "raters": len(ratings)})
        for first, second in combinations(ratings, 2) if track is None else ():
            one, other = (list(map(_hundredths, ratings[rater])) for rater in (first, second))
            kappa = weighted_kappa(one, other, categories=range(101), **method.resampling)
            yield _row(track, stage, kappa, {"measure": "kappa", "first": first, "second": second, "raters": 2})


def _row(track: str | None, stage: str, found: Agreement, what: dict[str, Any]) -> dict[str, Any]:
    return {"track": track, "stage": stage, "units": found.n_units} | vars(found) | what


def _hundredths(score: float) -> int | None:
    """Categories at the distance of their scores: judges give two decimals."""
    return None if math.isnan(score) else round(100 * score)
