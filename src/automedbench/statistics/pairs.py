"""Pairs of agents on the cells that both have: difference, interval, permutation test, letters of ties.

Permuted are signs of task differences, or the runs of a cell, which change agents. The letters are a compact letter
display (Piepho 2004, insert and absorb).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import comb, prod

import numpy as np

from automedbench.statistics import samples
from automedbench.statistics.draws import random_groups, random_signs, student_quantile
from automedbench.statistics.intervals import MIN_REPEATS, MIN_TASKS, Side, Spread, case_rows, contrast_limits

POWER = 0.8
_LEVEL_ROUNDING, _SUM_ROUNDING = 1e-9, 1e-12


def compare_pairs(
    agents: Mapping[str, Sequence[samples.Sample]],
    method: samples.StatisticsMethod = samples.USUAL,
    measure: samples.Measure = "overall",
) -> list[samples.PairedComparison]:
    """Every pair of agents (``a`` before ``b`` by name) on the cells that both have, Holm-corrected together.

    From ``MIN_FLIPPED`` common tasks on the tasks are a sample and the signs of their differences are
    flipped; below, the comparison is about these very tasks and the runs of a cell change agents. Two agents are
    ``different`` when the corrected p is below 1 - confidence and the interval excludes 0. With pooling ``runs`` a cell
    counts by the runs of both.
    """
    cells = {name: samples.group_cells(agents[name]) for name in sorted(agents)}
    tested = [_test(a, b, cells[a], cells[b], measure, method) for a, b in combinations(cells, 2)]
    corrected = holm([pair.p for pair, _ in tested])
    n_tests = sum(p is not None for p in corrected)
    return [_finish(*pair, p, n_tests, method.confidence) for pair, p in zip(tested, corrected, strict=True)]


def _test(
    a: str,
    b: str,
    cells_a: Mapping[samples.Place, samples.RunCell],
    cells_b: Mapping[samples.Place, samples.RunCell],
    measure: samples.Measure,
    method: samples.StatisticsMethod,
) -> tuple[samples.PairedComparison, Spread | None]:
    """A pair before the correction for all pairs, where it could be tested with its spread."""
    places = sorted(cells_a.keys() & cells_b.keys())
    if not places:
        return samples.PairedComparison(a, b), None
    weights = samples.cell_weights(places, [cells_a[place].n + cells_b[place].n for place in places], method.pooling)
    gaps = samples.means(cells_a, places, measure) - samples.means(cells_b, places, measure)
    if min(min(cells_a[place].n, cells_b[place].n) for place in places) < MIN_REPEATS:
        return samples.PairedComparison(a, b, len(places), float(weights @ gaps)), None
    tasks, index = samples.task_index(places)
    sampled = len(tasks) >= MIN_FLIPPED
    sides = [Side(cells_a), Side(cells_b, -1)]
    limits = contrast_limits(sides, places, weights, measure, sampled, method)
    if sampled:
        test = sign_flip_test(samples.per_task(weights * gaps, index), method.resamples, method.seed)
    else:
        groups = [(cells_a[place].values(measure), cells_b[place].values(measure)) for place in places]
        test = exchange_test(groups, weights, method.resamples, method.seed)
    unit: samples.Unit = "tasks" if sampled else "runs"
    tested = samples.PairedComparison(
        a=a,
        b=b,
        n_cells=len(places),
        difference=limits.estimate,
        low=max(limits.low, -1.0),
        high=min(limits.high, 1.0),
        p=test.p,
        different=not limits.low <= 0 <= limits.high,
        sufficient=True,
        unit=unit,
        n_units=test.n_units,
        p_min=test.p_min,
    )
    return tested, limits.spread


def _finish(
    pair: samples.PairedComparison, spread: Spread | None, p_holm: float | None, n_tests: int, confidence: float
) -> samples.PairedComparison:
    """The pair with the p of all pairs, and the difference that they could have found."""
    if spread is None or p_holm is None:
        return pair
    different = p_holm < 1 - confidence - _LEVEL_ROUNDING and pair.different
    sdd = smallest_detectable_difference(
        spread.standard_error, spread.degrees, confidence=confidence, comparisons=n_tests
    )
    return replace(pair, p_holm=p_holm, different=different, sdd=sdd)


def draw_gap(
    published: Sequence[samples.Sample],
    fresh: Sequence[samples.Sample],
    method: samples.StatisticsMethod = samples.USUAL,
    measure: samples.Measure = "overall",
) -> samples.PairedComparison:
    """One agent's score on the published draw (``a``) minus that on a fresh one (``b``), on the cells of both.

    Paired by task; cases are others, so that those of both draws add their variance. There is no test: the interval
    says whether a gap is seen (``different``: it excludes 0). Not sufficient where fewer than ``MIN_TASKS`` tasks hold
    one whose score is no mean over cases (detection): by how much other cases change it is then unknown.
    """
    cells_a, cells_b = samples.group_cells(published), samples.group_cells(fresh)
    places = sorted(cells_a.keys() & cells_b.keys())
    if not places:
        return samples.PairedComparison("published", "fresh")
    weights = samples.cell_weights(places, [cells_a[place].n + cells_b[place].n for place in places], method.pooling)
    gap = float(weights @ (samples.means(cells_a, places, measure) - samples.means(cells_b, places, measure)))
    n_tasks = len({task for task, _ in places})
    sampled, sides = n_tasks >= MIN_TASKS, [Side(cells_a), Side(cells_b, -1)]
    few = min(min(cells_a[place].n, cells_b[place].n) for place in places) < MIN_REPEATS
    known = measure == "agentic" or all(len(case_rows([side], places, weights, measure)) == n_tasks for side in sides)
    if few or not (sampled or known):
        return samples.PairedComparison("published", "fresh", len(places), gap)
    limits = contrast_limits(sides, places, weights, measure, sampled, method, same_cases=False)
    return samples.PairedComparison(
        a="published",
        b="fresh",
        n_cells=len(places),
        difference=gap,
        low=max(limits.low, -1.0),
        high=min(limits.high, 1.0),
        different=limits.low > _SUM_ROUNDING or limits.high < -_SUM_ROUNDING,
        sufficient=True,
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

    ``comparisons`` m: pairs of the table, of which Holm tests the first at α/m.
    """
    level = 1 - (1 - confidence) / (2 * comparisons)
    return float((student_quantile(level, degrees) + student_quantile(power, degrees)) * standard_error)


MIN_FLIPPED = 6
"""Fewest tasks whose signs are flipped: five could not give a p below 0.05 (2 of 32)."""
MAX_EXACT_UNITS = 12
"""Up to this number all sign patterns are tried."""
MAX_EXACT_EXCHANGES = 10_000
"""Up to this number all exchanges of runs are tried."""


@dataclass(frozen=True)
class TestResult:
    """Two-sided p, the smallest p that the design can give, and how many units were permuted."""

    __test__ = False  # not a test of pytest's

    p: float
    p_min: float
    n_units: int


def sign_flip_test(terms: samples.Floats, resamples: int, seed: int) -> TestResult:
    """P of |sum| under random signs (Fisher's randomisation test); ``terms``: weighted differences, (units,).

    Valid when a unit's difference is as likely to be of either sign. All patterns up to ``MAX_EXACT_UNITS`` units;
    beyond, p = (k + 1) / (resamples + 1), which is never 0 (Phipson and Smyth 2010).
    """
    n = len(terms)
    if n <= MAX_EXACT_UNITS:
        signs = np.array(list(product((1.0, -1.0), repeat=n)))
        return TestResult(_share(signs @ terms, float(terms.sum())), 2 / len(signs), n)
    signs = random_signs(n, resamples, seed)
    return TestResult(_share(signs @ terms, float(terms.sum()), observed_too=True), 1 / (resamples + 1), n)


def exchange_test(
    groups: Sequence[tuple[samples.Floats, samples.Floats]], weights: samples.Floats, resamples: int, seed: int
) -> TestResult:
    """P of the weighted difference of means when the runs of each cell change agents at random.

    ``groups``: per cell the scores of both agents. Valid when both agents' runs of a cell come from one distribution.
    All exchanges where they are at most ``MAX_EXACT_EXCHANGES``; else at random as in ``sign_flip_test``.
    """
    n_units = sum(len(first) + len(second) for first, second in groups)
    sizes = [comb(len(first) + len(second), len(first)) for first, second in groups]
    seen = float(
        sum(weight * (first.mean() - second.mean()) for weight, (first, second) in zip(weights, groups, strict=True))
    )
    turned = weights * _signs(groups)
    if (total := prod(sizes)) <= MAX_EXACT_EXCHANGES:
        sums = np.zeros(1)
        for weight, (first, second) in zip(turned, groups, strict=True):
            parts = weight * _all_exchanges(first, second)
            sums = (sums[:, None] + parts[None, :]).ravel()
        even = all(len(first) == len(second) for first, second in groups)
        return TestResult(_share(sums, seen), (2 if even else 1) / total, n_units)
    sums = np.zeros(resamples)
    for stream, (weight, (first, second)) in enumerate(zip(turned, groups, strict=True)):
        sums += weight * _random_exchanges(first, second, resamples, seed, stream)
    return TestResult(_share(sums, seen, observed_too=True), 1 / (resamples + 1), n_units)


def _signs(groups: Sequence[tuple[samples.Floats, samples.Floats]]) -> samples.Floats:
    """+1, or -1 where another agent has fewer runs than in the first cell with unequal numbers.

    Exchanges of a cell are counted as smaller less larger group. Over several cells all of them must be the same agent
    less the other; which one does not matter for the distance from 0, nor does it in cells with equal numbers.
    """
    fewer = [np.sign(len(second) - len(first)) for first, second in groups]
    lead = next((sign for sign in fewer if sign), 1)
    return np.array([sign * lead or 1 for sign in fewer], float)


def _share(sums: samples.Floats, seen: float, *, observed_too: bool = False) -> float:
    """Share of permuted sums that are at least as far from 0 as the one seen."""
    hits = int(np.count_nonzero(np.abs(sums) >= abs(seen) - _SUM_ROUNDING))
    return (hits + observed_too) / (len(sums) + observed_too)


def _all_exchanges(first: samples.Floats, second: samples.Floats) -> samples.Floats:
    """Difference of means for every way to deal the runs to two agents, (ways,)."""
    pooled, small = _pool_runs(first, second)
    chosen = np.array(list(combinations(range(len(pooled)), small)))
    return _differences(pooled[chosen].sum(axis=1), pooled, small)


def _random_exchanges(
    first: samples.Floats, second: samples.Floats, resamples: int, seed: int, stream: int
) -> samples.Floats:
    pooled, small = _pool_runs(first, second)
    return _differences(random_groups(len(pooled), small, resamples, seed, stream) @ pooled, pooled, small)


def _pool_runs(first: samples.Floats, second: samples.Floats) -> tuple[samples.Floats, int]:
    """All runs sorted and the size of the smaller group, so that it does not matter which agent is named first."""
    return np.sort(np.concatenate([first, second])), min(len(first), len(second))


def _differences(sums: samples.Floats, pooled: samples.Floats, small: int) -> samples.Floats:
    rest = float(pooled.sum()) - sums
    differences: samples.Floats = sums / small - rest / (len(pooled) - small)
    return differences


def tie_groups(agents: Sequence[str], pairs: Sequence[samples.PairedComparison]) -> dict[str, str]:
    """Agent → letters; two agents share a letter exactly when they cannot be told apart.

    ``agents``: in the order of the ranking, best first, which gets the first letters. A pair that is not in ``pairs``
    or lacks data cannot be told apart. Beyond z the letters go on with aa, ab …, separated by commas.
    """
    groups: list[frozenset[str]] = [frozenset(agents)] if agents else []
    for pair in pairs:
        if pair.different:
            split = [part for group in groups for part in _split_group(group, pair.a, pair.b)]
            groups = _absorb(split)
    place = {name: number for number, name in enumerate(agents)}
    groups.sort(key=lambda group: sorted(place[name] for name in group))
    letters = [_letter(number) for number in range(len(groups))]
    gap = "," if len(groups) > 26 else ""
    return {
        name: gap.join(letter for letter, group in zip(letters, groups, strict=True) if name in group)
        for name in agents
    }


def _split_group(group: frozenset[str], a: str, b: str) -> list[frozenset[str]]:
    """A group that holds both of a different pair becomes two that hold one each."""
    return [group - {a}, group - {b}] if {a, b} <= group else [group]


def _absorb(groups: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """Groups that are not part of another."""
    distinct = list(dict.fromkeys(groups))
    return [group for group in distinct if not any(group < other for other in distinct)]


def _letter(number: int) -> str:
    """A, …, z, aa, ab …"""
    letters = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("a") + rest) + letters
    return letters
