"""Two agents on the cells that both have: what differs, by how much, and what it cost. Pure: reads and writes no file.

Differences are the first agent minus the second, in [-1, 1].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from automedbench.base.records import ScoreRecord
from automedbench.error_codes.taxonomy import CODES
from automedbench.leaderboard.entries import Entry, Method, cell_of, group_by, pooled_mean, samples_of
from automedbench.leaderboard.tables.conditions import judge_class, sandbox_class, what_differs
from automedbench.statistics import Measure, PairedComparison, compare_pairs, holm

STAGES = ("s1", "s2", "s3", "s4", "s5")
EQUAL = 0.0005
"""Cells that differ by less show the same number (one decimal of ×100)."""


@dataclass(frozen=True)
class PlaceDifference:
    """Both agents in all tracks (track null) or one; ``compared`` null where the test was refused."""

    track: str | None
    n_cells: int
    mean_a: float | None
    mean_b: float | None
    compared: PairedComparison | None


@dataclass(frozen=True)
class CellDifference:
    """Both agents on one task and tier: repeats, means, difference."""

    track: str
    task: str
    tier: str
    n_a: int
    n_b: int
    mean_a: float
    mean_b: float
    difference: float


@dataclass(frozen=True)
class Cost:
    """Mean USD per run over runs with a known price (their number), and per point of the measure (×100)."""

    usd_per_run: Decimal | None
    usd_per_point: Decimal | None
    n_priced: int
    n_runs: int


@dataclass(frozen=True)
class HeadToHead:
    """Everything about a pair; first ``places`` all tracks, then each. ``shares``: of runs with an error code.

    ``conflicts``: why the two must not be compared, for which there is no test unless it was asked for anyway.
    """

    a: str
    b: str
    measure: Measure
    places: list[PlaceDifference]
    cells: list[CellDifference]
    wins: int
    ties: int
    losses: int
    stages: dict[str, tuple[float, float]]
    shares: dict[str, tuple[float, float]]
    costs: tuple[Cost, Cost]
    conflicts: list[str]
    cautions: list[str]


def head_to_head(
    a: Sequence[ScoreRecord], b: Sequence[ScoreRecord], measure: Measure, method: Method, *, anyway: bool = False
) -> HeadToHead | None:
    """Compare two agents on their common cells; None where there is none.

    Agents that were judged by different kinds of judges or ran in different sandboxes are not tested, unless
    ``anyway``. P values of tracks are corrected for all tracks (Holm).
    """
    first, second = _common(a, b), _common(b, a)
    if not first:
        return None
    scores = [entry_score(entry) for entry in [*first, *second]]
    found = conflicts(scores)
    refused = bool(found) and not anyway
    tracks = sorted({entry.track for entry in first})
    places = [_place(None, first, second, measure, method, refused)]
    if len(tracks) > 1:
        places += _corrected(
            [_place(track, first, second, measure, method, refused) for track in tracks], method.confidence
        )
    cells = _cells(first, second, measure)
    return HeadToHead(
        a=first[0].run.agent,
        b=second[0].run.agent,
        measure=measure,
        places=places,
        cells=cells,
        wins=sum(cell.difference >= EQUAL for cell in cells),
        ties=sum(abs(cell.difference) < EQUAL for cell in cells),
        losses=sum(cell.difference <= -EQUAL for cell in cells),
        stages={stage.upper(): (_mean(first, stage, method), _mean(second, stage, method)) for stage in STAGES},
        shares={code: (_share(first, code), _share(second, code)) for code in CODES},
        costs=(_cost(first, measure, method), _cost(second, measure, method)),
        conflicts=found,
        cautions=cautions(scores),
    )


def conflicts(scores: Sequence[ScoreRecord]) -> list[str]:
    """Why these runs must not be compared: several kinds of judges, or several classes of sandboxes."""
    kinds: dict[str, Callable[[ScoreRecord], str]] = {
        "judged by different kinds of judges": lambda score: score.recipe.judge_kind,
        "run in different sandboxes": sandbox_class,
    }
    return [
        f"{reason}: {', '.join(found)}"
        for reason, of_score in kinds.items()
        if len(found := sorted({of_score(score) for score in scores})) > 1
    ]


def cautions(scores: Sequence[ScoreRecord]) -> list[str]:
    """What else differs between these runs: judges of one kind, versions, cases."""
    judges = sorted({judge_class(score) for score in scores})
    found = [f"judges: {', '.join(judges)}"] if len(judges) > 1 else []
    return found + [f"{name} of a task" for name in what_differs(scores) if name not in ("sandbox", "judge")]


def entry_score(entry: Entry) -> ScoreRecord:
    """The score of a scored entry."""
    if entry.score is None:
        raise ValueError(f"{entry.run.path} has no score")
    return entry.score


def _common(own: Sequence[ScoreRecord], other: Sequence[ScoreRecord]) -> list[Entry]:
    """Runs of the cells that the other agent has as well, in a fixed order."""
    cells = {(score.run.task, score.run.tier) for score in other}
    kept = [score for score in own if (score.run.task, score.run.tier) in cells]
    kept.sort(key=lambda score: (score.run.task, score.run.tier, score.run.repeat))
    return [Entry(score.run, score.track, score) for score in kept]


def _place(
    track: str | None, first: Sequence[Entry], second: Sequence[Entry], measure: Measure, method: Method, refused: bool
) -> PlaceDifference:
    a, b = ([entry for entry in group if track in (None, entry.track)] for group in (first, second))
    compared = None if refused else _compare(a, b, measure, method)
    n_cells = len({cell_of(entry) for entry in a})
    return PlaceDifference(track, n_cells, _mean(a, measure, method), _mean(b, measure, method), compared)


def _compare(a: Sequence[Entry], b: Sequence[Entry], measure: Measure, method: Method) -> PairedComparison:
    """The first agent minus the second, in this order."""
    agents = {"1": samples_of([*a, *b])[: len(a)], "2": samples_of([*a, *b])[len(a) :]}
    [pair] = compare_pairs(agents, measure, method.pooling, **method.resampling)
    return replace(pair, a=a[0].run.agent, b=b[0].run.agent)


def _corrected(places: Sequence[PlaceDifference], confidence: float) -> list[PlaceDifference]:
    """P values corrected for the number of tracks that were tested."""
    p_values = holm([place.compared.p if place.compared else None for place in places])
    found = []
    for place, p_holm in zip(places, p_values, strict=True):
        pair = place.compared
        if pair is not None and p_holm is not None:
            different = pair.different and p_holm < 1 - confidence
            place = replace(place, compared=replace(pair, p_holm=p_holm, different=different))
        found.append(place)
    return found


def _cells(first: Sequence[Entry], second: Sequence[Entry], measure: Measure) -> list[CellDifference]:
    """Cells by difference, those that the first agent wins most clearly first."""
    a, b = group_by(first, cell_of), group_by(second, cell_of)
    rows = []
    for cell, runs in a.items():
        means = pooled_mean(runs, measure, "runs") or 0.0, pooled_mean(b[cell], measure, "runs") or 0.0
        rows.append(CellDifference(runs[0].track, *cell, len(runs), len(b[cell]), *means, means[0] - means[1]))
    return sorted(rows, key=lambda row: (-row.difference, row.task, row.tier))


def _mean(entries: Sequence[Entry], name: str, method: Method) -> float:
    return pooled_mean(entries, name, method.pooling) or 0.0


def _share(entries: Sequence[Entry], code: str) -> float:
    """Share of the runs with this code; disqualified ones, which get no codes, are left out as in the error atlas."""
    runs = [score for score in map(entry_score, entries) if not score.disqualified]
    return sum(any(error.code == code for error in score.error_codes) for score in runs) / (len(runs) or 1)


def _cost(entries: Sequence[Entry], measure: Measure, method: Method) -> Cost:
    known: Mapping[str, Decimal] = {
        entry.run.path: Decimal(price) for entry in entries if (price := entry_score(entry).totals.cost_usd) is not None
    }
    per_run = sum(known.values(), Decimal(0)) / len(known) if known else None
    points = Decimal(100 * _mean(entries, measure, method))
    per_point = per_run / points if per_run is not None and points > 0 else None
    return Cost(per_run, per_point, len(known), len(entries))
