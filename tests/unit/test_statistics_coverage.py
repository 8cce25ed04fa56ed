"""Intervals hold the true score as often as they say: simulated campaigns (docs/coverage.md has the whole table)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np
import pytest
from statistics_simulation import (
    NOISES,
    SHAPES,
    BoardDesign,
    Campaign,
    Design,
    Floats,
    boards_of_drawn_tasks,
    boards_on_these_tasks,
    population_truth,
    samples_of_board,
    samples_of_row,
    shaped_rows,
    simulate,
)

from automedbench.statistics.intervals import MIN_TASKS, intervals
from automedbench.statistics.pairs import compare_pairs
from automedbench.statistics.samples import MEASURES, Interval, Measure, PairedComparison, Sample, StatisticsMethod

Found = dict[Measure, Interval]
LOW, HIGH = 0.93, 0.97
DESIGNS = {
    Design(1, 1, 3, None): 500,
    Design(1, 1, 5, 100): 500,
    Design(1, 2, 3, 20): 500,
    Design(1, 2, 10, 500): 300,
    Design(4, 1, 5, 20): 500,
    Design(4, 2, 3, None): 500,
    Design(7, 1, 5, 20): 500,
    Design(7, 2, 3, 100): 400,
    Design(24, 2, 3, None): 400,
    Design(48, 1, 3, 20): 300,
    Design(48, 2, 10, None): 120,
}
"""Design → number of simulated campaigns."""


@lru_cache
def hits(design: Design) -> dict[Measure, float]:
    """Share of campaigns whose interval holds the true score."""
    return coverage(design, DESIGNS[design], intervals)


def coverage(design: Design, n: int, method: Callable[[Sequence[Sample]], Found]) -> dict[Measure, float]:
    sampled = design.tasks >= MIN_TASKS
    truths = {measure: population_truth(design.cases is not None, measure) for measure in MEASURES if sampled}
    held = dict.fromkeys(MEASURES, 0)
    for campaign in simulate(np.random.default_rng([1, design.tasks, design.tiers, design.repeats]), design, n):
        found = method(campaign.samples)
        for measure in MEASURES:
            held[measure] += holds(found[measure], truths.get(measure, campaign.truth(measure)))
    return {measure: held[measure] / n for measure in MEASURES}


def holds(found: Interval | PairedComparison, truth: float) -> bool:
    return found.low is not None and found.high is not None and found.low - 1e-9 <= truth <= found.high + 1e-9


@pytest.mark.parametrize("design", DESIGNS, ids=str)
def test_every_design(design: Design) -> None:
    """93 to 97 %, with 2.5 standard errors for the finite number of campaigns (three measures, eleven designs).

    Below five tasks limits must also hold for agents that fail more often than these: there may be more than 97 %.
    """
    chance = 2.5 * math.sqrt(0.95 * 0.05 / DESIGNS[design])
    for measure, share in hits(design).items():
        assert LOW - chance <= share <= (HIGH + chance if design.tasks >= MIN_TASKS else 1), measure


@pytest.mark.parametrize("measure", MEASURES)
def test_all_designs_together(measure: Measure) -> None:
    """Those of five tasks or more: 93 to 97 % without allowance."""
    large = {design: n for design, n in DESIGNS.items() if design.tasks >= MIN_TASKS}
    share = sum(n * hits(design)[measure] for design, n in large.items()) / sum(large.values())
    assert LOW <= share <= HIGH


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.2, 0.4])
def test_other_shapes_and_failure_rates(rate: float) -> None:
    """One task, two tiers, three repeats: at least 93 % over ten shapes, with 2.5 standard errors for 1 000 rows.

    Student's t alone would hold half of the truths of agents that fail in a tenth of their runs.
    """
    design, held = Design(1, 2, 3, None), []
    for number, shape in enumerate(SHAPES):
        scores, truth = shaped_rows(np.random.default_rng([5, number]), shape, design, 100, rate, varied=False)
        rows = [intervals(samples_of_row(own, design.tiers), measures=("task",))["task"] for own in scores]
        held += [holds(found, true) for found, true in zip(rows, truth, strict=True)]
    assert np.mean(held) >= LOW - 2.5 * math.sqrt(0.95 * 0.05 / 1000)


def compared(scores: Floats) -> list[list[PairedComparison]]:
    """Comparisons of each board, each with a seed of its own."""
    return [
        compare_pairs(samples_of_board(own), StatisticsMethod(resamples=299, seed=seed))
        for seed, own in enumerate(scores)
    ]


def test_intervals_of_all_differences_hold_together() -> None:
    """Five agents of which three are equal, 20 boards of each kind of noise: 95 % of boards, less 2.5 standard errors.

    The other two are 15 points up and down: at least a third of the pairs that differ by 15 or more are found.
    """
    design, held, found = BoardDesign(5, 7, 1, 3), [], []
    effects = np.array([0.0, 0.0, 0.0, 0.15, -0.15])
    for number, noise in enumerate(NOISES.values()):
        up = np.tile(np.minimum(effects, 0.99 - noise.high), (20, 1))
        scores, _ = boards_on_these_tasks(np.random.default_rng([6, number]), noise, design, 20, up)
        for pairs in compared(scores):
            true = [up[0, a] - up[0, b] for a, b in combinations(range(design.agents), 2)]
            held.append(all(holds(pair, gap) for pair, gap in zip(pairs, true, strict=True)))
            found += [pair.different for pair, gap in zip(pairs, true, strict=True) if abs(gap) > 0.14]
    assert np.mean(held) >= 0.95 - 2.5 * math.sqrt(0.95 * 0.05 / len(held))
    assert np.mean(found) > 1 / 3


def test_equal_agents_seldom_differ_on_tasks_like_these() -> None:
    """Five agents on seven drawn tasks, 40 boards of each kind of symmetric interaction: 5 %, with 2.5 standard errors.

    And not idle: a difference of 30 points is found in most of them.
    """
    kinds, design, n = ["normal", "heavy tails (t, 3 df)", "SD of agents 1:10"], BoardDesign(5, 7, 1, 3), 40
    wrong, found = [], []
    for number, kind in enumerate(kinds):
        random = np.random.default_rng([7, number])
        effects = np.tile([0.0, 0.0, 0.0, 0.0, 0.3], (n, 1))
        for pairs in compared(boards_of_drawn_tasks(random, kind, design, n, effects, (0.06, 0.1))):
            wrong.append(any((pair.p_like or 1) < 0.05 for pair in pairs if pair.b != "agent-04"))
            found += [(pair.p_like or 1) < 0.05 for pair in pairs if pair.b == "agent-04"]
    assert np.mean(wrong) <= 0.05 + 2.5 * math.sqrt(0.95 * 0.05 / len(wrong))
    assert np.mean(found) > 0.5


def percentile_bootstrap(samples: Sequence[Sample]) -> Found:
    """The plain way: repeats of one cell drawn with replacement, percentiles of their means."""
    chance = np.random.default_rng(len(samples))
    found = {}
    for measure in MEASURES:
        shares = {"overall": (0.5, 0.5), "agentic": (1.0, 0.0), "task": (0.0, 1.0)}[measure]
        values = np.array([shares[0] * run.agentic + shares[1] * run.task_score for run in samples])
        means = values[chance.integers(0, len(values), (400, len(values)))].mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        found[measure] = Interval(float(low), float(high), 1, len(values), True)
    return found


def test_the_plain_bootstrap_would_fail() -> None:
    """The control: with three repeats the percentile bootstrap misses far more often than it says."""
    assert max(coverage(Design(1, 1, 3, None), 300, percentile_bootstrap).values()) < 0.85


def test_the_truth_is_the_mean_of_many_runs() -> None:
    """The other control: 4 000 repeats of three tasks come within four standard errors of the computed truth."""
    design = Design(3, 1, 4000, 20)
    [campaign] = simulate(np.random.default_rng(2), design, 1)
    assert isinstance(campaign, Campaign)
    agentic = np.mean([run.agentic for run in campaign.samples])
    assert agentic == pytest.approx(campaign.agentic, abs=4 * 0.25 / math.sqrt(12_000))
    # Twenty cases per task are what the task score varies by: 0.2 / √60.
    task = np.mean([run.task_score for run in campaign.samples])
    assert task == pytest.approx(campaign.task, abs=4 * 0.2 / math.sqrt(60))
