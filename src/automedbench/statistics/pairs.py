"""All pairs of agents of a table: do they differ on these tasks, and would they on tasks like these?

*On these tasks*: tasks and cases are fixed, runs are random. Simultaneous intervals of all differences from the
variance of runs within cells, which may differ between agents and cells (Games and Howell 1976); the distribution of
the largest statistic of all pairs comes from a parametric bootstrap. *On tasks like these*: tasks are random. Signs of
task differences are flipped for all pairs together; the largest statistic of the pairs that are still to be judged
decides (Westfall and Young 1993, step-down). docs/statistics.md gives reasons, docs/coverage.md simulated error rates.
Letters are a compact letter display (Piepho 2004, insert and absorb).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product

import numpy as np

from automedbench.statistics import samples
from automedbench.statistics.draws import chi_square_draws, normal_draws, random_signs, student_quantile
from automedbench.statistics.intervals import MIN_REPEATS, MIN_TASKS, Side, case_rows, contrast_limits

POWER = 0.8
MIN_FLIPPED = 6
"""Fewest tasks whose signs are flipped: five could not give a p below 0.05 (2 of 32)."""
FEW_DEGREES = 6
"""Degrees of freedom up to which the variance of an agent is at least that of the mean of all agents."""
MAX_EXACT_TASKS = 12
"""Up to this number all sign patterns are tried."""
_SUM_ROUNDING = 1e-12

Cells = Mapping[samples.Place, samples.RunCell]


def compare_pairs(
    agents: Mapping[str, Sequence[samples.Sample]],
    method: samples.StatisticsMethod = samples.USUAL,
    measure: samples.Measure = "overall",
    *,
    pairs: Sequence[tuple[str, str]] | None = None,
) -> list[samples.PairedComparison]:
    """Every pair of agents (``a`` before ``b`` by name) on the cells that both have, corrected for all of them.

    ``pairs``: only these, in this order, and corrected for these alone.

    Two agents are ``different`` exactly when the simultaneous interval of their difference excludes 0, which is when
    ``p`` is below 1 - confidence. ``generalises``: different, and shown for tasks like these as well. With pooling
    ``runs`` a cell counts by the runs of both. Pairs with fewer than ``MIN_REPEATS`` runs in a common cell are not
    tested.
    """
    cells = {name: samples.group_cells(agents[name]) for name in sorted(agents)}
    numbers = {name: number for number, name in enumerate(cells)}
    averages = {
        name: {place: float(cell.values(measure).mean()) for place, cell in own.items()} for name, own in cells.items()
    }

    spreads = [_spreads(own, measure, method, number) for number, own in enumerate(cells.values())]
    usual = {place: np.mean([own[place] for own in spreads if place in own], axis=0) for place in set().union(*spreads)}

    @cache
    def part(name: str, places: tuple[samples.Place, ...], weights: tuple[float, ...]) -> _Part:
        counts = np.array([cells[name][place].n for place in places])
        mean = float(weights @ np.array([averages[name][place] for place in places]))
        variances = np.array([[each[place] for place in places] for each in (spreads[numbers[name]], usual)])
        normal = normal_draws(len(places) + 1, method.resamples, method.seed, numbers[name])
        return _part(mean, np.array(weights) ** 2 / counts, counts - 1, variances, normal)

    @cache
    def weigh(places: tuple[samples.Place, ...], counts: tuple[int, ...]) -> samples.Floats:
        return samples.cell_weights(places, counts, method.pooling)

    contrasts: list[_Contrast] = []
    for a, b in combinations(cells, 2) if pairs is None else pairs:
        places = tuple(sorted(cells[a].keys() & cells[b].keys()))
        counts = [(cells[a][place].n, cells[b][place].n) for place in places]
        weights = weigh(places, tuple(map(sum, counts)))
        sufficient = min(map(min, counts), default=0) >= MIN_REPEATS
        sides = [part(name, places, tuple(weights)) for name in (a, b)] if sufficient else []
        gaps = np.array([averages[a][place] - averages[b][place] for place in places])
        contrasts.append(_Contrast(a, b, places, weights * gaps, sides))
    tested = [contrast for contrast in contrasts if contrast.sides]
    found = iter(_add_like_these(_on_these_tasks(tested, method), tested, method))
    return [next(found) if contrast.sides else _untested(contrast) for contrast in contrasts]


@dataclass(frozen=True)
class _Part:
    """Variance of one agent's weighted score from its runs, and draws of the score's error and of that variance."""

    variance: float
    errors: samples.Floats
    variances: samples.Floats


@dataclass(frozen=True)
class _Contrast:
    """Two agents on their common cells: weighted difference of each cell, (cells,), and the part of each agent."""

    a: str
    b: str
    places: Sequence[samples.Place]
    gaps: samples.Floats
    sides: Sequence[_Part]


def _untested(contrast: _Contrast) -> samples.PairedComparison:
    n_cells = len(contrast.places)
    return samples.PairedComparison(contrast.a, contrast.b, n_cells, float(contrast.gaps.sum()) if n_cells else None)


def _spreads(
    cells: Cells, measure: samples.Measure, method: samples.StatisticsMethod, stream: int
) -> dict[samples.Place, samples.Floats]:
    """Variance of a run in each cell that suffices: as estimated, then as in each resample, (1 + resamples,)."""
    places = [place for place, cell in cells.items() if cell.n >= MIN_REPEATS]
    ratios = chi_square_draws(tuple(cells[place].n - 1 for place in places), method.resamples, method.seed, stream)
    spreads = [cells[place].values(measure).var(ddof=1) for place in places]
    return {place: own * np.append(1.0, ratio) for place, own, ratio in zip(places, spreads, ratios.T, strict=True)}


def _part(
    mean: float, factors: samples.Floats, degrees: samples.Indices, variances: samples.Floats, normal: samples.Floats
) -> _Part:
    """An agent's part of a difference on these tasks; ``factors``: weight² / runs of each cell.

    ``variances``: of the agent and the mean of all agents, by ``_spreads``, (2, cells, 1 + resamples). The variance is
    at least that of one outcome, 0 or 1, that no run showed: one in n + 1 may still fail. Where a few cells make up
    nearly all of it, equal runs there show little: the standard error is at least ``FEW_DEGREES`` / ν of the usual one.
    """
    unseen = (max(mean, 1 - mean) / (1 / float(factors.sum()) + 1)) ** 2
    own, usual = factors @ variances
    known, parts = factors * variances[0, :, 0], factors * variances[1, :, 0]
    share = min(1.0, FEW_DEGREES * float((parts**2 / degrees).sum()) / (float(usual[0]) ** 2 or 1.0))
    least = np.maximum(share**2 * usual, unseen)
    deviations = np.sqrt(np.append(known, max(0.0, least[0] - known.sum())))
    found = np.maximum(own, least)
    return _Part(float(found[0]), normal @ deviations, found[1:])


def _on_these_tasks(contrasts: Sequence[_Contrast], method: samples.StatisticsMethod) -> list[samples.PairedComparison]:
    """Simultaneous intervals of all differences, and p of the largest statistic of all pairs.

    The critical value is the largest statistic that is not significant, so that p and interval agree exactly.
    """
    largest = np.zeros(method.resamples)
    for contrast in contrasts:
        first, second = contrast.sides
        spread = np.sqrt(first.variances + second.variances)
        np.maximum(largest, np.abs(first.errors - second.errors) / spread, out=largest)
    largest.sort()
    allowed = int(np.ceil((1 - method.confidence) * (method.resamples + 1) - _SUM_ROUNDING)) - 1
    critical = float(largest[-allowed]) if allowed > 0 else np.inf
    return [_judge(contrast, critical, largest) for contrast in contrasts]


def _judge(contrast: _Contrast, critical: float, largest: samples.Floats) -> samples.PairedComparison:
    """A pair against the largest statistics of all pairs, (resamples,) in ascending order."""
    difference = float(contrast.gaps.sum())
    error = float(np.sqrt(sum(side.variance for side in contrast.sides)))
    at_least = len(largest) - int(np.searchsorted(largest, abs(difference) / error))
    return samples.PairedComparison(
        a=contrast.a,
        b=contrast.b,
        n_cells=len(contrast.places),
        difference=difference,
        low=max(difference - critical * error, -1.0),
        high=min(difference + critical * error, 1.0),
        p=(at_least + 1) / (len(largest) + 1),
        different=abs(difference) > critical * error,
        sufficient=True,
        sdd=(critical + student_quantile(POWER, np.inf)) * error,
        n_tasks=len({task for task, _ in contrast.places}),
    )


def _add_like_these(
    pairs: Sequence[samples.PairedComparison], contrasts: Sequence[_Contrast], method: samples.StatisticsMethod
) -> list[samples.PairedComparison]:
    """The pairs with p on tasks like these, where both agents have enough tasks."""
    known = [number for number, pair in enumerate(pairs) if pair.n_tasks >= MIN_FLIPPED]
    tasks = sorted({task for number in known for task, _ in contrasts[number].places})
    rows = {task: row for row, task in enumerate(tasks)}
    differences = np.zeros((len(tasks), len(known)))
    for column, number in enumerate(known):
        own = [rows[task] for task, _ in contrasts[number].places]
        differences[:, column] = np.bincount(own, weights=contrasts[number].gaps, minlength=len(tasks))
    found = list(pairs)
    for number, p in zip(known, flip_signs(differences, method.resamples, method.seed), strict=True):
        generalises = pairs[number].different and float(p) < 1 - method.confidence
        found[number] = replace(pairs[number], p_like=float(p), generalises=generalises)
    return found


def flip_signs(differences: samples.Floats, resamples: int, seed: int) -> samples.Floats:
    """P of each pair on tasks like these, corrected for all pairs, (pairs,); ``differences``: (tasks, pairs).

    A task's sign is flipped for all pairs at once. Valid when the differences of the pairs that are equal are together
    as likely as their opposites. The statistic is the distance of the sum from 0, relative to the pair's own sum of
    squares and the mean of all pairs, half each; flips change neither. All patterns up to ``MAX_EXACT_TASKS`` tasks;
    beyond, p = (k + 1) / (resamples + 1), which is never 0 (Phipson and Smyth 2010).
    """
    n_tasks, n_pairs = differences.shape
    if not n_pairs:
        return np.zeros(0)
    exact = n_tasks <= MAX_EXACT_TASKS
    # The opposite of a pattern has the same statistics: the first sign stays.
    signs = (
        np.array([(1.0, *rest) for rest in product((1.0, -1.0), repeat=n_tasks - 1)])
        if exact
        else random_signs(n_tasks, resamples, seed)
    )
    squares = (differences**2).sum(axis=0)
    scale = np.sqrt(squares + squares.mean())
    scale[scale == 0] = 1.0
    observed, flipped = np.abs(differences.sum(axis=0)) / scale, np.abs(signs @ differences) / scale
    # Step-down: the largest statistic of this pair and of all below it.
    order = np.argsort(-observed, kind="stable")
    largest = np.maximum.accumulate(flipped[:, order[::-1]], axis=1)[:, ::-1]
    hits = (largest >= observed[order] - _SUM_ROUNDING).sum(axis=0)
    corrected = np.empty(n_pairs)
    corrected[order] = np.maximum.accumulate((hits + (not exact)) / (len(signs) + (not exact)))
    return corrected


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


def rank_ranges(agents: Sequence[str], pairs: Sequence[samples.PairedComparison]) -> dict[str, tuple[int, int]]:
    """Agent → best and worst rank that the comparisons leave open, among ``agents``.

    Best: 1 + number of agents that are shown to be better. Worst: number of agents less those shown to be worse. A pair
    that lacks data leaves both orders open. All ranges hold together at the confidence (Mogstad and others 2024).
    """
    better, worse = dict.fromkeys(agents, 0), dict.fromkeys(agents, 0)
    for pair in pairs:
        if pair.different and {pair.a, pair.b} <= better.keys():
            first, second = (pair.a, pair.b) if (pair.difference or 0.0) > 0 else (pair.b, pair.a)
            worse[first] += 1
            better[second] += 1
    return {name: (1 + better[name], len(agents) - worse[name]) for name in agents}
