"""Agreement of judges on each stage: Krippendorff's alpha of a panel, weighted kappa of each pair of its members."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from automedbench.base.records import JudgedStage, ScoreRecord
from automedbench.leaderboard.entries import Method
from automedbench.leaderboard.tables.cells import Cell
from automedbench.leaderboard.tables.stages import JUDGED, parts_of
from automedbench.statistics import krippendorff_alpha, weighted_kappa


@dataclass(frozen=True)
class AgreementRow:
    """One coefficient of one stage; track null: all tracks. ``first`` and ``second`` are null for the whole panel.

    A rater is one judgement of a run, ``<judge>#<repeat>``; a unit is a run that at least two raters judged.
    """

    track: str | None
    stage: str
    measure: str
    first: str | None
    second: str | None
    raters: int
    units: int
    value: float | None
    low: float | None
    high: float | None


def build_agreement(cells: Sequence[Cell], method: Method) -> list[AgreementRow]:
    """Alpha over all tracks and in each, kappa of the pairs over all tracks; empty when no run has two judgements."""
    rows: list[AgreementRow] = []
    for track, part in parts_of(cells):
        scores = [score for cell in part for score in cell.scores if len(score.panel) > 1]
        for stage in JUDGED:
            ratings = ratings_of(scores, stage)
            if len(ratings) < 2:
                continue
            rows.append(_alpha(track, stage, ratings, method))
            if track is None:
                rows += [_kappa(stage, pair, ratings, method) for pair in combinations(ratings, 2)]
    return rows


def ratings_of(scores: Iterable[ScoreRecord], stage: JudgedStage) -> dict[str, list[float]]:
    """Rater → its score of the stage in every run, NaN where it gave none; raters in alphabetical order."""
    runs = list(scores)
    raters = sorted({name for score in runs for name, stages in score.panel.items() if stage in stages})
    return {rater: [score.panel.get(rater, {}).get(stage, float("nan")) for score in runs] for rater in raters}


def _alpha(track: str | None, stage: str, ratings: dict[str, list[float]], method: Method) -> AgreementRow:
    found = krippendorff_alpha(np.array(list(ratings.values())), "interval", **method.resampling)
    return AgreementRow(
        track, stage, "alpha", None, None, len(ratings), found.n_units, found.value, found.low, found.high
    )


def _kappa(stage: str, pair: tuple[str, str], ratings: dict[str, list[float]], method: Method) -> AgreementRow:
    first, second = (list(map(_hundredths, ratings[rater])) for rater in pair)
    found = weighted_kappa(first, second, "quadratic", categories=range(101), **method.resampling)
    return AgreementRow(None, stage, "kappa", *pair, 2, found.n_units, found.value, found.low, found.high)


def _hundredths(score: float) -> int | None:
    """Categories at the distance of their scores: judges give two decimals."""
    return None if math.isnan(score) else round(100 * score)
