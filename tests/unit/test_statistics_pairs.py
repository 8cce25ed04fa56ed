"""Two agents against each other: difference, test, correction, by hand; errors of both kinds in simulations."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from automedbench.statistics.pairs import (
    compare_pairs,
    draw_gap,
)
from automedbench.statistics.samples import PairedComparison, Sample, StatisticsMethod

Agents = dict[str, list[Sample]]


def one_cell(values: list[float], task: str = "t", tier: str = "lite") -> list[Sample]:
    return [Sample(task, tier, number, value, value) for number, value in enumerate(values, 1)]


def tasks(values: list[list[float]]) -> list[Sample]:
    return [sample for number, own in enumerate(values) for sample in one_cell(own, f"t{number:02d}")]


def only(pairs: list[PairedComparison]) -> PairedComparison:
    assert len(pairs) == 1
    return pairs[0]


@pytest.mark.parametrize("agents", [{}, {"a": []}, {"a": one_cell([0.5])}], ids=["none", "empty", "one"])
def test_no_pair(agents: Agents) -> None:
    assert compare_pairs(agents) == []


def test_no_cell_in_common() -> None:
    found = only(compare_pairs({"a": one_cell([0.1, 0.2, 0.3]), "b": one_cell([0.1, 0.2, 0.3], tier="standard")}))
    assert (found.n_cells, found.difference, found.p, found.different, found.sufficient) == (
        0,
        None,
        None,
        False,
        False,
    )


def test_common_cells_alone_count() -> None:
    """a has another task, on which it is bad: 0.6 - 0.4 on the common one."""
    a = [*one_cell([0.5, 0.6, 0.7]), *one_cell([0.0, 0.0, 0.0], "other")]
    found = only(compare_pairs({"a": a, "b": one_cell([0.3, 0.4, 0.5])}))
    assert (found.n_cells, found.difference) == (1, pytest.approx(0.2))


def test_cases_of_two_draws_are_not_paired_by_hand() -> None:
    """Every repeat the same; cases 0 and 0.4 (s² = 0.08) in one draw, 0.2 and 0.6 in the other.

    Variance 0.08/2 of each draw, together 0.08 with two degrees of freedom: t 4.303, ± 1.217. Paired there is none.
    """
    published = [Sample("t", "lite", r, 0.5, 0.4, np.array([0.2, 0.6])) for r in range(3)]
    fresh = [Sample("t", "lite", r, 0.5, 0.2, np.array([0.0, 0.4])) for r in range(3)]
    found = draw_gap(published, fresh, measure="task")
    assert found.difference == pytest.approx(0.2)
    assert (found.low, found.high) == (-1.0, 1.0)
    near = draw_gap(published, fresh, StatisticsMethod(confidence=0.5), "task")  # t of 75 % with two degrees: 0.8165
    assert (near.low, near.high) == pytest.approx(
        (0.2 - 0.8165 * math.sqrt(0.08), 0.2 + 0.8165 * math.sqrt(0.08)), abs=1e-4
    )


def test_gap_of_many_tasks_is_paired_by_task() -> None:
    """Tasks 0.1 … 0.5 differ a lot, each by 0.1 between the draws: the gap is 0.1 without any doubt."""
    levels = [0.1, 0.2, 0.3, 0.4, 0.5]
    found = draw_gap(tasks([[level + 0.1] * 3 for level in levels]), tasks([[level] * 3 for level in levels]))
    assert (found.difference, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))
    assert found.different


def three_agents(seed: int, n_tasks: int = 7, shift: float = 0.1) -> Agents:
    chance = np.random.default_rng(seed)
    base = chance.uniform(0.2, 0.6, n_tasks)
    return {
        name: tasks([list(np.clip(level + move + chance.normal(0, 0.08, 3), 0, 1)) for level in base])
        for name, move in (("a", 0.0), ("b", shift), ("c", 2 * shift))
    }


@pytest.mark.parametrize("n_tasks", [1, 7, 20])
def test_order_of_runs_and_agents_does_not_matter(n_tasks: int) -> None:
    agents = three_agents(1, n_tasks)
    shuffled = {name: random.Random(2).sample(own, len(own)) for name, own in reversed(agents.items())}
    assert compare_pairs(shuffled) == compare_pairs(agents)


def test_an_agent_against_itself() -> None:
    own = three_agents(1)["a"]
    found = only(compare_pairs({"a": own, "b": own}))
    assert (found.difference, found.p, found.different) == (0.0, 1.0, False)


def test_pooling_by_runs_counts_the_runs_of_both() -> None:
    """Task one 3 + 3 runs, difference 0.4; task two 3 + 9 runs, difference 0.1: (6 · 0.4 + 12 · 0.1) / 18 = 0.2."""
    a = [*one_cell([0.6] * 3, "one"), *one_cell([0.5] * 3, "two")]
    b = [*one_cell([0.2] * 3, "one"), *one_cell([0.4] * 9, "two")]
    assert only(compare_pairs({"a": a, "b": b}, StatisticsMethod("runs"))).difference == pytest.approx(0.2)
    assert only(compare_pairs({"a": a, "b": b}, StatisticsMethod("tasks"))).difference == pytest.approx(0.25)


NULL_DESIGNS = {"8 tasks": (8, 3, 400), "20 tasks": (20, 3, 300), "1 task": (1, 5, 400), "2 tasks": (2, 4, 400)}


def simulated_pair(chance: np.random.Generator, n_tasks: int, repeats: int, shift: float) -> Agents:
    """Skewed runs (one in ten fails) of two agents; tasks differ from each other and for each agent."""
    level = chance.uniform(0.3, 0.9, n_tasks)
    agents = {}
    for name, move in (("a", 0.0), ("b", shift)):
        own = level + (chance.normal(0, 0.05, n_tasks) if n_tasks >= 6 else 0) + move
        values = np.clip(own[:, None] + chance.normal(0, 0.1, (n_tasks, repeats)), 0, 1)
        values *= chance.random(values.shape) > 0.1
        agents[name] = tasks(values.tolist())
    return agents


@pytest.mark.parametrize("design", ["20 tasks", "1 task"])
def test_power(design: str) -> None:
    """A difference of 0.3 is found nearly always over many tasks, mostly on one, and with the right sign."""
    n_tasks = NULL_DESIGNS[design][0]
    chance = np.random.default_rng([2, n_tasks])
    pairs = [
        only(compare_pairs(simulated_pair(chance, n_tasks, 8, -0.3), StatisticsMethod(resamples=400)))
        for _ in range(100)
    ]
    assert np.mean([pair.different and (pair.difference or 0.0) > 0 for pair in pairs]) >= (
        0.95 if n_tasks > 1 else 0.5
    )
