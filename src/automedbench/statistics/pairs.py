"""Two agents on the cells that both have: difference, interval, permutation test, Holm's correction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from automedbench.statistics.cells import Cell, Place, cell_weights, cells_of, means, per_task, task_index
from automedbench.statistics.draws import student_quantile
from automedbench.statistics.intervals import MIN_REPEATS, Limits, check_confidence, contrast_limits
from automedbench.statistics.permutation import MIN_FLIPPED, exchange_test, sign_flip_test
from automedbench.statistics.results import PairedComparison, Unit
from automedbench.statistics.samples import Measure, Pooling, Sample
from automedbench.statistics.spread import Side

POWER = 0.8
_ROUNDING = 1e-9


@dataclass(frozen=True)
class _Tested:
    """A pair before the correction for all pairs."""

    a: str
    b: str
    n_cells: int
    estimate: float | None
    limits: Limits | None = None
    p: float | None = None
    p_min: float | None = None
    unit: Unit = "tasks"
    n_units: int = 0


def compare_pairs(
    agents: Mapping[str, Sequence[Sample]],
    measure: Measure = "overall",
    pooling: Pooling = "tasks",
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> list[PairedComparison]:
    """Every pair of agents (``a`` before ``b`` by name) on the cells that both have, Holm-corrected together.

    From ``permutation.MIN_FLIPPED`` common tasks on the tasks are a sample and the signs of their differences are
    flipped; below, the comparison is about these very tasks and the runs of a cell change agents. Two agents are
    ``different`` when the corrected p is below 1 - confidence and the interval excludes 0. With pooling ``runs`` a cell
    counts by the runs of both. Raises what ``interval`` raises.
    """
    check_confidence(confidence)
    cells = {name: cells_of(agents[name]) for name in sorted(agents)}
    tested = [
        _test(a, b, cells[a], cells[b], measure, pooling, confidence, resamples, seed)
        for a, b in combinations(cells, 2)
    ]
    corrected = holm([pair.p for pair in tested])
    n_tests = sum(pair.p is not None for pair in tested)
    return [_finish(pair, p, n_tests, confidence) for pair, p in zip(tested, corrected, strict=True)]


def _test(
    a: str,
    b: str,
    cells_a: Mapping[Place, Cell],
    cells_b: Mapping[Place, Cell],
    measure: Measure,
    pooling: Pooling,
    confidence: float,
    resamples: int,
    seed: int,
) -> _Tested:
    places = sorted(cells_a.keys() & cells_b.keys())
    if not places:
        return _Tested(a, b, 0, None)
    weights = cell_weights(places, [cells_a[place].n + cells_b[place].n for place in places], pooling)
    gaps = means(cells_a, places, measure) - means(cells_b, places, measure)
    if min(min(cells_a[place].n, cells_b[place].n) for place in places) < MIN_REPEATS:
        return _Tested(a, b, len(places), float(weights @ gaps))
    tasks, index = task_index(places)
    sampled = len(tasks) >= MIN_FLIPPED
    sides = [Side(cells_a), Side(cells_b, -1)]
    limits = contrast_limits(sides, places, weights, measure, sampled, confidence, resamples, seed)
    if sampled:
        test = sign_flip_test(per_task(weights * gaps, index), resamples, seed)
    else:
        groups = [(cells_a[place].values(measure), cells_b[place].values(measure)) for place in places]
        test = exchange_test(groups, weights, resamples, seed)
    unit: Unit = "tasks" if sampled else "runs"
    return _Tested(a, b, len(places), limits.estimate, limits, test.p, test.p_min, unit, test.n_units)


def _finish(pair: _Tested, p_holm: float | None, n_tests: int, confidence: float) -> PairedComparison:
    limits = pair.limits
    if limits is None or pair.p is None or p_holm is None:
        return PairedComparison(pair.a, pair.b, pair.n_cells, pair.estimate, None, None, None, None, False, False, None)
    excludes_zero = not limits.low <= 0 <= limits.high
    return PairedComparison(
        a=pair.a,
        b=pair.b,
        n_cells=pair.n_cells,
        difference=pair.estimate,
        low=max(limits.low, -1.0),
        high=min(limits.high, 1.0),
        p=pair.p,
        p_holm=p_holm,
        different=p_holm < 1 - confidence - _ROUNDING and excludes_zero,
        sufficient=True,
        sdd=smallest_detectable_difference(
            limits.spread.standard_error, limits.spread.degrees, confidence=confidence, comparisons=n_tests
        ),
        unit=pair.unit,
        n_units=pair.n_units,
        p_min=pair.p_min,
    )


def holm(values: Sequence[float | None]) -> list[float | None]:
    """P values corrected for all of them (Holm 1979), in their order; None stays None and does not count."""
    known = sorted((value, number) for number, value in enumerate(values) if value is not None)
    corrected: list[float | None] = [None] * len(values)
    highest = 0.0
    for rank, (value, number) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - rank) * value))
        corrected[number] = highest
    return corrected


def smallest_detectable_difference(
    standard_error: float,
    degrees: float,
    *,
    confidence: float = 0.95,
    power: float = POWER,
    comparisons: int = 1,
) -> float:
    """Smallest true difference that a two-sided t test finds with this power: (t of 1 - α/2m + t of power) · SE.

    ``comparisons`` m: pairs of the table, of which Holm tests the first at α/m. Raises ValueError for a negative
    standard error and for a power or confidence outside of (0, 1).
    """
    if standard_error < 0 or comparisons < 1 or not 0 < power < 1:
        raise ValueError(f"no detectable difference for standard error {standard_error}, power {power}")
    check_confidence(confidence)
    level = 1 - (1 - confidence) / (2 * comparisons)
    return float((student_quantile(level, degrees) + student_quantile(power, degrees)) * standard_error)
