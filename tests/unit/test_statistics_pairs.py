"""Two agents against each other: difference, test, correction, by hand; errors of both kinds in simulations."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from automedbench.statistics.pairs import (
    compare_pairs,
    draw_gap,
    exchange_test,
    holm,
    sign_flip_test,
    smallest_detectable_difference,
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


def test_two_repeats_are_not_enough() -> None:
    """The difference is shown, and nothing is inferred from it."""
    found = only(compare_pairs({"a": one_cell([0.9, 0.9, 0.9]), "b": one_cell([0.1, 0.1])}))
    assert found.difference == pytest.approx(0.8)
    assert (found.low, found.high, found.p, found.p_holm, found.sdd) == (None, None, None, None, None)
    assert not found.different and not found.sufficient


def test_common_cells_alone_count() -> None:
    """a has another task, on which it is bad: 0.6 - 0.4 on the common one."""
    a = [*one_cell([0.5, 0.6, 0.7]), *one_cell([0.0, 0.0, 0.0], "other")]
    found = only(compare_pairs({"a": a, "b": one_cell([0.3, 0.4, 0.5])}))
    assert (found.n_cells, found.difference) == (1, pytest.approx(0.2))


def test_one_cell_of_three_by_hand() -> None:
    """All of a's runs above b's: the observed and the opposite split are 2 of 20, the smallest p possible.

    Both s² = 0.01, SE = √(0.02/3) = 0.08165, four degrees of freedom (t 2.776); no run failed.
    """
    found = only(
        compare_pairs(
            {"a": one_cell([0.7, 0.8, 0.9]), "b": one_cell([0.1, 0.2, 0.3])}, StatisticsMethod(resamples=4000)
        )
    )
    assert (found.p, found.p_min, found.unit, found.n_units) == (0.1, 0.1, "runs", 6)
    assert found.low is not None and found.high is not None
    assert found.low < 0.6 - 2.776 * 0.08165 and found.high == pytest.approx(0.6 + 2.776 * 0.08165, abs=0.05)
    assert not found.different  # three repeats cannot show it


def test_five_repeats_can() -> None:
    """2 of C(10, 5) = 252 splits are as extreme."""
    found = only(
        compare_pairs({"a": one_cell([0.8, 0.82, 0.84, 0.86, 0.88]), "b": one_cell([0.1, 0.12, 0.14, 0.2, 0.2])})
    )
    assert found.p == pytest.approx(2 / 252)
    assert found.different


def test_six_tasks_by_hand() -> None:
    """All six differences 0.1 … 0.6 positive: 2 of 64 patterns. Mean 0.35, s² = 0.035, SE = √(0.035/6) = 0.07638."""
    a = tasks([[0.2 + step / 10] * 3 for step in range(1, 7)])
    b = tasks([[0.2] * 3] * 6)
    found = only(compare_pairs({"a": a, "b": b}))
    assert (found.p, found.p_min, found.unit, found.n_units) == (2 / 64, 2 / 64, "tasks", 6)
    assert found.difference == pytest.approx(0.35)
    assert found.low == pytest.approx(0.35 - 2.570582 * 0.076376, abs=1e-5)
    assert found.high == pytest.approx(0.35 + 2.570582 * 0.076376, abs=1e-5)
    assert found.different


def test_the_interval_of_cases_is_that_of_their_differences() -> None:
    """Cases differ from each other a lot, the agents by 0.1 on each: no variance is left."""
    cases = np.array([0.0, 0.2, 0.5, 0.9])
    a = [Sample("t", "lite", r, 0.5, 0.5, cases + 0.1) for r in range(3)]
    b = [Sample("t", "lite", r, 0.5, 0.4, cases) for r in range(3)]
    found = only(compare_pairs({"a": a, "b": b}, measure="task"))
    assert found.difference == pytest.approx(0.1)
    assert found.sdd == pytest.approx(0.0, abs=1e-9)


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


def test_a_difference_on_these_cases_only() -> None:
    """Every repeat the same, so that runs never change order: p is small; but half of four cases go either way."""
    a = [Sample("t", "lite", r, 0.5, 0.5, np.array([1.0, 1.0, 0.0, 0.0])) for r in range(6)]
    b = [Sample("t", "lite", r, 0.5, 0.45, np.array([0.0, 0.0, 1.0, 0.8])) for r in range(6)]
    found = only(compare_pairs({"a": a, "b": b}, measure="task"))
    assert found.p is not None and found.p < 0.01
    assert found.low is not None and found.high is not None and found.low < 0 < found.high
    assert not found.different


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


@pytest.mark.parametrize("n_tasks", [1, 7, 20])
def test_renaming_turns_the_sign_alone(n_tasks: int) -> None:
    agents = three_agents(1, n_tasks)
    there = only(compare_pairs({"a": agents["a"], "b": agents["b"]}))
    back = only(compare_pairs({"b": agents["a"], "a": agents["b"]}))
    assert back.difference == pytest.approx(-(there.difference or 0.0))
    assert back.p == there.p
    assert back.sdd == pytest.approx(there.sdd)


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


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], []),
        ([None], [None]),
        ([0.04], [0.04]),
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),  # 3 · 0.01, then 2 · 0.03, then 0.04 raised to 0.06
        ([0.01, None, 0.02], [0.02, None, 0.02]),
        ([0.6, 0.7], [1.0, 1.0]),
    ],
)
def test_holm(values: list[float | None], expected: list[float | None]) -> None:
    assert [None if p is None else round(p, 12) for p in holm(values)] == expected


def test_the_correction_is_over_all_pairs() -> None:
    """Three pairs, each significant alone at 2/64 = 0.031; together none is (0.094)."""
    agents = {name: tasks([[level] * 3] * 6) for name, level in (("a", 0.1), ("b", 0.4), ("c", 0.8))}
    pairs = compare_pairs(agents)
    assert [pair.p for pair in pairs] == [2 / 64] * 3
    assert [pair.p_holm for pair in pairs] == [pytest.approx(6 / 64)] * 3
    assert not any(pair.different for pair in pairs)


def test_detectable_difference_by_hand() -> None:
    """Ten degrees of freedom: t of 0.975 is 2.2281, of 0.8 is 0.8791; infinitely many: 1.9600 and 0.8416."""
    assert smallest_detectable_difference(0.1, 10) == pytest.approx(0.31072, abs=1e-4)
    assert smallest_detectable_difference(0.1, math.inf) == pytest.approx(0.28016, abs=1e-4)
    assert smallest_detectable_difference(0.0, 10) == 0.0
    assert smallest_detectable_difference(0.1, 10, comparisons=3) > smallest_detectable_difference(0.1, 10)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [([0.0], 1.0), ([0.3], 1.0), ([0.1, 0.2], 0.5), ([0.1, -0.1], 1.0), ([0.1, 0.2, 0.4], 0.25), ([3, 1, -1], 0.75)],
)
def test_sign_flips_by_hand(terms: list[float], expected: float) -> None:
    """The last: 3 1 -1 sums to 3, and |±3 ±1 ±1| is 5, 3, 3, 1 for either sign of the 3: 3 or more in 6 of 8."""
    assert sign_flip_test(np.array(terms, float), 200, 0).p == expected


def test_p_is_never_zero() -> None:
    """Thirteen units are drawn at random: at best 1 / (resamples + 1)."""
    found = sign_flip_test(np.ones(13), 500, 0)
    assert found.p_min == 1 / 501
    assert found.p >= found.p_min
    assert exchange_test([(np.ones(20), np.zeros(20))], np.ones(1), 500, 0).p == 1 / 501


def test_random_signs_come_near_all_signs() -> None:
    """Twelve units exactly, and thirteen of which one is 0: the same sums, twice each."""
    terms = np.array([0.3, -0.1, 0.25, 0.4, -0.3, 0.2, 0.1, 0.15, -0.2, 0.05, 0.3, 0.1])
    exact = sign_flip_test(terms, 0, 0).p
    drawn = sign_flip_test(np.append(terms, 0.0), 20_000, 0).p
    assert drawn == pytest.approx(exact, abs=0.01)  # three standard errors


def test_random_exchanges_come_near_all_exchanges() -> None:
    chance = np.random.default_rng(1)
    groups = [(chance.random(4), chance.random(4) - 0.2) for _ in range(2)]  # 4 900 ways
    exact = exchange_test(groups, np.array([0.5, 0.5]), 0, 0)
    groups.append((np.zeros(4), np.zeros(4)))  # 343 000 ways
    drawn = exchange_test(groups, np.array([0.5, 0.5, 0.0]), 20_000, 0)
    assert exact.p_min == 2 / 4900
    assert drawn.p == pytest.approx(exact.p, abs=0.011)


def test_unequal_groups_by_hand() -> None:
    """1 against 0 0 0: four ways, only the observed is as far from 0 (others -1/3)."""
    found = exchange_test([(np.ones(1), np.zeros(3))], np.ones(1), 0, 0)
    assert (found.p, found.p_min, found.n_units) == (0.25, 0.25, 4)


def test_unequal_groups_of_two_cells_by_hand() -> None:
    """One agent has the fewer runs in the first cell, the other in the second.

    1 1 1 against 0 0 0 0, then 1 1 1 1 against 0 0 0: the difference is 1, and of 35 × 35 ways no other is as far from
    0, for the other end of either cell is -3/4.
    """
    cells = [(np.ones(3), np.zeros(4)), (np.ones(4), np.zeros(3))]
    found = exchange_test(cells, np.array([0.5, 0.5]), 0, 0)
    assert (found.p, found.p_min, found.n_units) == (1 / 1225, 1 / 1225, 14)


def test_unequal_groups_at_random_come_near_all_exchanges() -> None:
    """In whichever order agents are named; a third cell of zeros only makes the ways too many to try."""
    cells = [
        (np.array([0.9, 0.8, 0.3]), np.array([0.5, 0.4, 0.6, 0.1])),
        (np.array([0.7, 0.9, 0.8, 0.2]), np.array([0.1, 0.6, 0.4])),
    ]
    weights, zeros = np.array([0.7, 0.3]), (np.zeros(4), np.zeros(4))
    exact = exchange_test(cells, weights, 0, 0).p
    drawn = exchange_test([*cells, zeros], np.append(weights, 0.0), 20_000, 0).p
    turned = [(second, first) for first, second in [*cells, zeros]]
    assert drawn == pytest.approx(exact, abs=0.011)
    assert exchange_test(turned, np.append(weights, 0.0), 20_000, 0).p == drawn


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


@pytest.mark.parametrize("design", NULL_DESIGNS)
def test_errors_of_the_first_kind(design: str) -> None:
    """Without a difference at most 5 % are found different (three standard errors allowed), and some p are small."""
    n_tasks, repeats, n = NULL_DESIGNS[design]
    chance = np.random.default_rng([1, n_tasks])
    pairs = [
        only(compare_pairs(simulated_pair(chance, n_tasks, repeats, 0.0), StatisticsMethod(resamples=400)))
        for _ in range(n)
    ]
    allowed = 0.05 + 3 * math.sqrt(0.05 * 0.95 / n)
    assert np.mean([pair.p is not None and pair.p <= 0.05 for pair in pairs]) <= allowed
    assert np.mean([pair.different for pair in pairs]) <= allowed
    assert np.mean([pair.p is not None and pair.p <= 0.2 for pair in pairs]) >= 0.1  # the test is not idle


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


def test_what_is_said_to_be_detectable_is_detected() -> None:
    """Twelve tasks whose differences are normal with sd 0.05: at the sdd of that design 80 % are found.

    SE = 0.05/√12; 300 simulations, four standard errors allowed, and the test of signs is a little weaker than t.
    """
    chance, n = np.random.default_rng(3), 300
    true = smallest_detectable_difference(0.05 / math.sqrt(12), 11)
    hits = 0
    for _ in range(n):
        gaps = 0.4 + true + chance.normal(0, 0.05, 12)
        hits += only(compare_pairs({"a": tasks([[gap] * 3 for gap in gaps]), "b": tasks([[0.4] * 3] * 12)})).different
    assert 0.70 <= hits / n <= 0.90
