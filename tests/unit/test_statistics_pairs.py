"""Pairs of agents: differences, intervals and both tests by hand; what holds for every board."""

from __future__ import annotations

import math
import random
from itertools import combinations

import numpy as np
import pytest

from automedbench.statistics.pairs import compare_pairs, draw_gap, flip_signs, rank_ranges, tie_groups
from automedbench.statistics.samples import PairedComparison, Sample, StatisticsMethod

Agents = dict[str, list[Sample]]
MANY = StatisticsMethod(resamples=20_000)


def one_cell(values: list[float], task: str = "t", tier: str = "lite") -> list[Sample]:
    return [Sample(task, tier, number, value, value) for number, value in enumerate(values, 1)]


def tasks(values: list[list[float]]) -> list[Sample]:
    return [sample for number, own in enumerate(values) for sample in one_cell(own, f"t{number:02d}")]


def only(pairs: list[PairedComparison]) -> PairedComparison:
    assert len(pairs) == 1
    return pairs[0]


def limits(pair: PairedComparison) -> tuple[float, float]:
    assert pair.low is not None and pair.high is not None
    return pair.low, pair.high


@pytest.mark.parametrize("agents", [{}, {"a": []}, {"a": one_cell([0.5])}], ids=["none", "empty", "one"])
def test_no_pair(agents: Agents) -> None:
    assert compare_pairs(agents) == []


def test_no_cell_in_common() -> None:
    found = only(compare_pairs({"a": one_cell([0.1, 0.2, 0.3]), "b": one_cell([0.1, 0.2, 0.3], tier="standard")}))
    assert found == PairedComparison("a", "b")


def test_two_repeats_are_not_enough() -> None:
    """The difference is shown, and nothing is inferred from it; it counts in no correction."""
    a, b, c = one_cell([0.9, 0.9, 0.9]), one_cell([0.5, 0.6, 0.5]), one_cell([0.1, 0.1])
    pairs = compare_pairs({"a": a, "b": b, "c": c})
    assert pairs[1] == PairedComparison("a", "c", 1, pytest.approx(0.8))
    assert pairs[0] == only(compare_pairs({"a": a, "b": b}))


def test_common_cells_alone_count() -> None:
    """a has another task, on which it is bad: 0.6 - 0.4 on the common one."""
    a = [*one_cell([0.5, 0.6, 0.7]), *one_cell([0.0, 0.0, 0.0], "other")]
    found = only(compare_pairs({"a": a, "b": one_cell([0.3, 0.4, 0.5])}))
    assert (found.n_cells, found.difference) == (1, pytest.approx(0.2))


def test_runs_that_never_vary_by_hand() -> None:
    """18 runs of .9 and 18 of .1: one unseen outcome is at most .9 away, so that SE = √2 · .9/19 = .06699.

    That part is known, hence normal: 1.960 and, for the sdd, 0.8416 more. Six tasks, all in favour: 2 of 64 signs.
    """
    found = only(compare_pairs({"a": tasks([[0.9] * 3] * 6), "b": tasks([[0.1] * 3] * 6)}, MANY))
    assert limits(found) == pytest.approx((0.8 - 1.96 * 0.06699, 0.8 + 1.96 * 0.06699), abs=0.002)
    assert found.sdd == pytest.approx((1.96 + 0.8416) * 0.06699, abs=0.002)
    assert (found.n_tasks, found.p_like, found.different, found.generalises) == (6, 2 / 64, True, True)


def test_three_runs_of_one_task_by_hand() -> None:
    """s²/3 = .0033 is less than (.8/4)² = .04 of either: .6 / √.08 = 2.121, and 3.4 % of a normal lie beyond."""
    found = only(compare_pairs({"a": one_cell([0.7, 0.8, 0.9]), "b": one_cell([0.1, 0.2, 0.3])}, MANY))
    assert found.p == pytest.approx(0.0339, abs=0.005)
    assert (found.p_like, found.generalises) == (None, False)


def test_many_runs_by_hand() -> None:
    """Half of 200 runs are 1, the others 0: s² = 50/199, SE = √(2 · s²/200) = .050125, and 1.960 of a normal."""
    values = [0.0, 1.0] * 100
    found = only(compare_pairs({"a": one_cell(values), "b": one_cell(values)}, MANY))
    assert limits(found) == pytest.approx((-1.96 * 0.050125, 1.96 * 0.050125), abs=0.003)
    assert (found.difference, found.p, found.different) == (0.0, 1.0, False)


def detectable(agents: Agents) -> dict[str, float]:
    """Smallest detectable difference of each pair: its standard error times what all pairs have in common."""
    return {pair.a + pair.b: pair.sdd or 0.0 for pair in compare_pairs(agents)}


def test_one_cell_has_at_least_the_usual_variance_by_hand() -> None:
    """Of four runs a never varies; s² is 1/3 of b and of c, 1/12 of d: mean 9/48, which counts for a and d as well.

    In 48ths 9 16 16 9, so that differences are detected from √18 (a, d) to √32 (b, c).
    """
    cells = {"a": [0.5] * 4, "b": [0.0, 0.0, 1.0, 1.0], "c": [1.0, 0.0, 1.0, 0.0], "d": [0.25, 0.25, 0.75, 0.75]}
    found = detectable({name: one_cell(own) for name, own in cells.items()})
    expected = {"ab": 25, "ac": 25, "ad": 18, "bc": 32, "bd": 25, "cd": 25}
    assert found == {name: pytest.approx(found["bc"] * math.sqrt(own / 32)) for name, own in expected.items()}


def test_six_cells_have_at_least_half_of_the_usual_error_by_hand() -> None:
    """Three runs in each of six tasks: twelve degrees of freedom, 6/12 of the usual error, 1/4 of its square.

    b and c vary, s² = 1/3, a never: the mean is 2/9, a quarter of it 1/18, that is 1/6 of theirs: SE² are 7/6 and 12/6.
    """
    wild = tasks([[0.0, 0.0, 1.0]] * 3 + [[0.0, 1.0, 1.0]] * 3)
    found = detectable({"a": tasks([[0.5] * 3] * 6), "b": wild, "c": wild})
    assert found["ab"] == found["ac"] == pytest.approx(found["bc"] * math.sqrt(7 / 12))


def test_largest_of_three_by_hand() -> None:
    """Constant scores have a normal error of the same size each: Tukey's range of three, 3.314 / √2 = 2.343."""
    agents = {name: tasks([[level] * 3] * 6) for name, level in (("a", 0.5), ("b", 0.5), ("c", 0.5))}
    for pair in compare_pairs(agents, MANY):
        assert limits(pair)[1] == pytest.approx(2.343 * math.sqrt(2) * 0.5 / 19, abs=0.001)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [([0.0], 1.0), ([0.3], 1.0), ([0.1, 0.2], 0.5), ([0.1, -0.1], 1.0), ([0.1, 0.2, 0.4], 0.25), ([3, 1, -1], 0.75)],
)
def test_flips_of_one_pair_by_hand(terms: list[float], expected: float) -> None:
    """The last: 3 1 -1 sums to 3, and |±3 ±1 ±1| is 5, 3, 3, 1 for either sign of the 3: 3 or more in 6 of 8."""
    assert flip_signs(np.array(terms, float)[:, None], 200, 0).tolist() == [expected]


def test_two_pairs_step_down_by_hand() -> None:
    """1 1 1 1 and 1 1 1 -1 have the same squares, so sums decide: 4 and 2. Of eight patterns (the first sign stays)
    the larger of both sums is 4 in two (none, the last turned): 2/8. The smaller one is then judged by its own sums,
    2 4 0 0 2 2 2 0: five are 2 or more. With the other pair, whose sums are 4 2 2 2 0 0 0 2, all eight would be.
    """
    assert flip_signs(np.array([[1.0, 1], [1, 1], [1, 1], [1, -1]]), 200, 0).tolist() == [2 / 8, 5 / 8]


def test_seven_agents_on_seven_tasks_are_told_apart() -> None:
    """21 pairs, each in the same direction on all tasks: 2 of 128 signs for all of them at once."""
    agents = {name: tasks([[level / 10] * 3] * 7) for level, name in enumerate("abcdefg", 1)}
    pairs = compare_pairs(agents)
    assert {pair.p_like for pair in pairs} == {2 / 128}
    assert [pair.generalises for pair in pairs] == [pair.different for pair in pairs]
    assert all(pair.different for pair in pairs if abs(pair.difference or 0) > 0.3)


def test_many_tasks_at_random() -> None:
    """Thirteen tasks of which one is 0 come near all signs of the twelve (four standard errors), and p is never 0."""
    terms = np.array([0.3, -0.1, 0.25, 0.4, -0.3, 0.2, 0.1, 0.15, -0.2, 0.05, 0.3, 0.1])
    drawn = flip_signs(np.append(terms, 0.0)[:, None], 20_000, 0)
    assert drawn == pytest.approx(flip_signs(terms[:, None], 0, 0), abs=0.01)
    assert flip_signs(np.ones((20, 1)), 500, 0).tolist() == [1 / 501]


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


def test_pooling_by_runs_counts_the_runs_of_both() -> None:
    """Task one 3 + 3 runs, difference 0.4; task two 3 + 9 runs, difference 0.1: (6 · 0.4 + 12 · 0.1) / 18 = 0.2."""
    a = [*one_cell([0.6] * 3, "one"), *one_cell([0.5] * 3, "two")]
    b = [*one_cell([0.2] * 3, "one"), *one_cell([0.4] * 9, "two")]
    assert only(compare_pairs({"a": a, "b": b}, StatisticsMethod("runs"))).difference == pytest.approx(0.2)
    assert only(compare_pairs({"a": a, "b": b}, StatisticsMethod("tasks"))).difference == pytest.approx(0.25)


def random_board(seed: int) -> Agents:
    """2-8 agents, 1-8 tasks, 1-2 tiers, 2-5 repeats: zeros, ones, ties, steady and wild agents; half lack cells."""
    chance = np.random.default_rng([7, seed])
    shape = tuple(int(chance.integers(low, high)) for low, high in ((2, 9), (1, 9), (1, 3)))
    levels = chance.choice([0.0, 0.5, 0.9, 1.0], shape[1:]) + chance.normal(0, chance.choice([0, 0.1, 0.4]), shape)
    spread = chance.choice([0, 0.01, 0.1, 0.5], shape[0])
    lacking, fewest = 0.1 * (seed % 2), 3 - int(chance.random() < 0.2)
    agents: Agents = {}
    for agent, name in enumerate("abcdefgh"[: shape[0]]):
        agents[name] = [
            Sample(f"t{task}", f"tier-{tier}", repeat, value, value)
            for task, tier in np.ndindex(shape[1:])
            if chance.random() >= lacking
            for repeat, value in enumerate(
                np.clip(chance.normal(levels[agent, task, tier], spread[agent], chance.integers(fewest, 6)), 0, 1)
                .round(chance.integers(1, 4))
                .tolist()
            )
        ]
    return agents


def check_board(agents: Agents, seed: int) -> None:
    """What holds exactly. With the same cells of all agents, ranks and transitivity as well."""
    method = StatisticsMethod(resamples=199, seed=seed)
    pairs, names = compare_pairs(agents, method), list(agents)
    letters, ranges = tie_groups(names, pairs), rank_ranges(names, pairs)
    assert [(pair.a, pair.b) for pair in pairs] == list(combinations(names, 2))
    for pair in pairs:
        assert pair.different == bool(pair.sufficient and not limits(pair)[0] <= 0 <= limits(pair)[1])
        assert pair.different == (pair.p is not None and pair.p < 0.05)
        assert pair.different == (not set(letters[pair.a]) & set(letters[pair.b]))
        assert (pair.p_like is None) == (not pair.sufficient or pair.n_tasks < 6)
        assert pair.generalises == (pair.different and (pair.p_like or 1) < 0.05)
    shuffled = {name: random.Random(seed).sample(own, len(own)) for name, own in reversed(agents.items())}
    assert compare_pairs(shuffled, method) == pairs
    if len({frozenset((run.task, run.tier) for run in own) for own in agents.values()}) > 1:
        return
    gains = dict.fromkeys(names, 0)
    for pair in pairs:
        if (pair.difference or 0) != 0:
            gains[pair.b if (pair.difference or 0) > 0 else pair.a] += 1
        apart = ranges[pair.a][1] < ranges[pair.b][0] or ranges[pair.b][1] < ranges[pair.a][0]
        assert not apart or pair.different
    assert all(ranges[name][0] <= 1 + gains[name] <= ranges[name][1] for name in names)


def test_every_board() -> None:
    for seed in range(200):
        check_board(random_board(seed), seed)


@pytest.mark.long
def test_ten_thousand_boards() -> None:
    for seed in range(200, 10_200):
        check_board(random_board(seed), seed)
