"""Intervals of pooled scores: by hand in small cases, and what must not change them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from automedbench.statistics.intervals import intervals, satterthwaite
from automedbench.statistics.samples import MEASURES, Interval, Measure, Pooling, Sample, StatisticsMethod

T_2, T_4 = 4.302653, 2.776445
"""97.5 % quantiles of Student's t with 2 and 4 degrees of freedom (any table)."""


def interval(
    samples: Sequence[Sample], measure: Measure = "overall", pooling: Pooling = "tasks", **options: Any
) -> Interval:
    return intervals(samples, StatisticsMethod(pooling, **options), (measure,))[measure]


def run(value: float, task: str = "t", tier: str = "lite", repeat: int = 1) -> Sample:
    """Both halves the same, no cases."""
    return Sample(task, tier, repeat, value, value)


def one_cell(*values: float) -> list[Sample]:
    return [run(value, repeat=number) for number, value in enumerate(values, 1)]


def two_tiers(lite: list[float], standard: list[float]) -> list[Sample]:
    return [*one_cell(*lite), *(replace(own, tier="standard") for own in one_cell(*standard))]


def many_tasks(values: list[float], repeats: int = 3) -> list[Sample]:
    """Every repeat of a task the same."""
    return [run(value, f"t{task}", repeat=r) for task, value in enumerate(values) for r in range(1, repeats + 1)]


def with_cases(table: list[list[float]]) -> list[Sample]:
    """One task and tier, a row of cases per repeat."""
    rows = [np.array(row) for row in table]
    return [Sample("t", "lite", number, 0.5, float(row.mean()), row) for number, row in enumerate(rows, 1)]


def test_no_run() -> None:
    assert interval([]) == Interval(None, None, False)


@pytest.mark.parametrize(
    "samples",
    [
        one_cell(0.5),
        one_cell(0.5, 0.6),
        [*one_cell(0.1, 0.2, 0.3), run(0.5, tier="standard")],
        many_tasks([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], repeats=2),
    ],
    ids=["one run", "two repeats", "a cell with one repeat", "six tasks of two repeats"],
)
def test_below_three_repeats_nothing_is_inferred(samples: list[Sample]) -> None:
    found = interval(samples)
    assert (found.low, found.high, found.sufficient) == (None, None, False)
    assert found.estimate is not None


def test_a_clean_record_allows_for_failures_by_hand() -> None:
    """Six runs of 0.8: every resample is 0.8 less the share of the added failure, which half of the resamples have.

    That share of one in seven is above x with probability (1 - x)^6 (Beta(1, 6)), so that the 2.5 % quantile is at
    (1 - x)^6 / 2 = 0.025, x = 0.393, and the limit at 0.8 · 0.607. Nothing varies: no run did better.
    """
    found = interval(two_tiers([0.8] * 3, [0.8] * 3), resamples=20_000)
    assert found.low == pytest.approx(0.8 * 0.05 ** (1 / 6), abs=0.01)
    assert found.high == pytest.approx(0.8)


def test_failures_and_successes_by_hand() -> None:
    """One success among ten: mean 0.1, s² = 0.1, SE 0.1; 98.75 % of Student's t with nine degrees are below 2.685.

    With an added success half of the time the share is Beta(2, 9), else Beta(1, 9): above 0.45 in 2.3 and 0.5 %, which
    is more than 1.25 % between them. Student's limit is the smaller one.
    """
    found = interval(one_cell(*[0.0] * 9, 1.0), resamples=20_000)
    assert found.standard_error == pytest.approx(0.1)
    assert found.high == pytest.approx(0.1 + 2.6850 * 0.1, abs=1e-3)


def test_the_smaller_of_two_upper_limits_by_hand() -> None:
    """1, 1, 0: Student's limit is far above 1. Ten runs of which five are 1 have t·SE = 2.685 · 0.1667 = 0.448.

    With an added success, half of the time, their share is Beta(6, 5), else Beta(5, 5): above 0.80 in 3.3 and 2.0 %,
    above 0.85 in 1.0 and 0.6 % (regularised incomplete beta function): 1.25 % between them.
    """
    found = interval(one_cell(*[1.0, 0.0] * 5), resamples=20_000)
    assert found.high is not None and 0.80 < found.high < 0.85 < 0.5 + 0.448


def test_tasks_as_a_sample_by_hand() -> None:
    """0.1 … 0.9: mean 0.5, variance 0.4/4 = 0.1, SE = √(0.1/5) = 0.141421; Student with four degrees of freedom."""
    found = interval(many_tasks([0.1, 0.3, 0.5, 0.7, 0.9]))
    assert found.standard_error == pytest.approx(0.141421, abs=1e-6)
    assert found.low == pytest.approx(0.5 - T_4 * 0.141421, abs=1e-5)
    assert found.high == pytest.approx(0.5 + T_4 * 0.141421, abs=1e-5)


def test_four_tasks_are_these_very_tasks() -> None:
    """However far apart they are: nothing varies within them."""
    found = interval(many_tasks([0.1, 0.3, 0.7, 0.9]))
    assert found.standard_error == pytest.approx(0.0, abs=1e-12)


def test_pooling() -> None:
    """Task one has 6 runs of 0.2, task two 3 of 0.8: by tasks 0.5, by runs (6 · 0.2 + 3 · 0.8) / 9 = 0.4."""
    samples = [run(0.2, "one", repeat=r) for r in range(6)] + [run(0.8, "two", repeat=r) for r in range(3)]
    assert interval(samples, pooling="tasks").estimate == pytest.approx(0.5)
    assert interval(samples, pooling="runs").estimate == pytest.approx(0.4)


def test_tiers_count_alike_within_a_task() -> None:
    """Lite 0.2 four times, standard 0.6 three times: 0.4, and not the mean of runs."""
    samples = [run(0.2, repeat=r) for r in range(4)] + [run(0.6, tier="standard", repeat=r) for r in range(3)]
    assert interval(samples).estimate == pytest.approx(0.4)


def test_measures_are_halves() -> None:
    """Agentic 0.8, task 0.2, overall 0.5."""
    found = intervals([Sample("t", "lite", r, 0.8, 0.2) for r in range(3)])
    assert {name: found[name].estimate for name in MEASURES} == pytest.approx(
        {"overall": 0.5, "agentic": 0.8, "task": 0.2}
    )


def test_variance_of_cases_by_hand() -> None:
    """Repeats are equal, cases 0, 0.4, 0.8: s² = 0.16, SE = √(0.16/3) of the task, half of it overall."""
    found = intervals(with_cases([[0.0, 0.4, 0.8]] * 3))
    assert found["task"].standard_error == pytest.approx(math.sqrt(0.16 / 3))
    assert found["overall"].standard_error == pytest.approx(math.sqrt(0.16 / 3) / 2)
    assert found["agentic"].standard_error == 0.0


def test_repeats_are_not_counted_again_as_cases() -> None:
    """Every case 1 in one of two repeats' halves: case means all differ by chance of repeats alone.

    Rows 1 0, 0 1, 0.5 0.5: all repeats score 0.5 (variance 0), case means are equal (variance 0).
    """
    assert interval(with_cases([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]), "task").standard_error == 0.0


def test_interaction_is_taken_off_by_hand() -> None:
    """Rows (1, 0), (1, 0), (0, 0): case means 2/3 and 0 with variance 2/9; run means ½ ½ 0 with variance 1/12.

    What neither explains: residuals ±1/6, ±1/6, ±1/3, sum of squares 2/36 + 2/36 + 2/9 = 1/3, over (3-1)(2-1) = 1/6.
    Variance: 1/12/3 of repeats + (2/9 - 1/6/3)/2 of cases = 1/36 + 1/12 = 1/9.
    """
    found = interval(with_cases([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]), "task")
    assert found.standard_error == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "cases",
    [
        [np.array([0.5, 0.5]), np.array([0.5, 0.5, 0.5]), np.array([0.5, 0.5])],
        [np.array([0.5, 0.5]), None, np.array([0.5, 0.5])],
        [np.array([0.5])] * 3,
    ],
    ids=["different numbers", "one list missing", "one case"],
)
def test_cases_that_are_not_shared_are_no_level(cases: list[np.ndarray | None]) -> None:
    samples = [Sample("t", "lite", number, 0.5, 0.5, own) for number, own in enumerate(cases)]
    assert interval(samples) == interval([replace(sample, cases=None) for sample in samples])


def test_a_disqualified_run_without_cases_has_zeros() -> None:
    """The same as with a list of zeros."""
    runs = with_cases([[0.2, 0.8], [0.3, 0.7], [0.4, 0.8]])
    out = Sample("t", "lite", 9, 0.0, 0.0)
    zeros = replace(out, cases=np.zeros(2))
    assert interval([*runs, out]) == interval([*runs, zeros])


def test_three_failures_do_not_exclude_a_success() -> None:
    """All 0: the share of an added success of 1 is above x with (1 - x)^3 / 2; 1.25 % at 1 - 0.025^(1/3) = 0.708."""
    found = interval(one_cell(0.0, 0.0, 0.0), "task", resamples=20_000)
    assert (found.low, found.estimate) == (0.0, 0.0)
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 3), abs=0.015)


def test_more_repeats_exclude_more() -> None:
    """All runs 0.8: the allowance for failures that were not seen shrinks (as above), and is the only width."""
    for n in (3, 10, 35):
        found = interval(one_cell(*[0.8] * n), "task", resamples=20_000)
        assert found.low == pytest.approx(0.8 * 0.05 ** (1 / n), abs=0.015)
        assert found.high == pytest.approx(0.8)


@pytest.mark.parametrize("values", [(0.0, 0.5, 1.0), (0.0, 0.0, 1.0), (1.0, 1.0, 1.0)])
def test_limits_stay_within_what_a_score_can_be(values: tuple[float, ...]) -> None:
    found = interval(one_cell(*values))
    assert found.low is not None and found.high is not None and found.estimate is not None
    assert 0.0 <= found.low <= found.estimate <= found.high <= 1.0


def test_all_equal_over_many_tasks() -> None:
    found = interval(many_tasks([0.6] * 6))
    assert (found.low, found.high) == (pytest.approx(0.6), pytest.approx(0.6))


def campaign(n_tasks: int) -> list[Sample]:
    """Two tiers, three repeats, four cases, numbers without a pattern."""
    chance = np.random.default_rng(3)
    found = []
    for task in range(n_tasks):
        for tier in ("lite", "standard"):
            for repeat in range(3):
                cases = chance.random(4)
                found.append(Sample(f"t{task}", tier, repeat, float(chance.random()), float(cases.mean()), cases))
    return found


@pytest.mark.parametrize("n_tasks", [1, 4, 7])
def test_order_does_not_matter(n_tasks: int) -> None:
    samples = campaign(n_tasks)
    shuffled = random.Random(1).sample(samples, len(samples))
    assert intervals(shuffled) == intervals(samples)


@pytest.mark.parametrize("n_tasks", [1, 7])
def test_one_measure_at_a_time_gives_the_same(n_tasks: int) -> None:
    samples = campaign(n_tasks)
    assert intervals(samples) == {measure: interval(samples, measure) for measure in MEASURES}


def test_scaling() -> None:
    """Tasks as a sample: half of every score gives half of the interval, wherever the scores are."""
    samples = campaign(7)
    halved = [
        replace(
            sample,
            agentic=sample.agentic / 2,
            task_score=sample.task_score / 2,
            cases=None if sample.cases is None else sample.cases / 2,
        )
        for sample in samples
    ]
    whole, half = interval(samples), interval(halved)
    assert whole.low and half.low and whole.high and half.high and whole.high < 1  # nothing was clipped
    assert (2 * half.low, 2 * half.high) == (pytest.approx(whole.low), pytest.approx(whole.high))


def test_a_wider_confidence_is_wider() -> None:
    narrow, wide = (interval(campaign(7), confidence=confidence) for confidence in (0.8, 0.99))
    assert wide.low is not None and narrow.low is not None and wide.low < narrow.low
    assert wide.high is not None and narrow.high is not None and wide.high > narrow.high


def test_seeds() -> None:
    """Tasks as a sample: no chance in it at all. Else as little as 2000 resamples have."""
    assert interval(campaign(7), seed=1) == interval(campaign(7), seed=2)
    first, second = interval(campaign(1), seed=1), interval(campaign(1), seed=2)
    assert (first.low, first.high) == (pytest.approx(second.low, abs=0.03), pytest.approx(second.high, abs=0.03))


def judged(table: list[list[float]], tasks: int = 1) -> list[Sample]:
    """Runs by judges "x", "y" …: the agentic score that each alone would give; the same for every task."""
    return [
        Sample(f"t{task}", "lite", number, float(np.mean(row)), 0.0, judged=dict(zip("xyz", row, strict=False)))
        for task in range(tasks)
        for number, row in enumerate(table)
    ]


def test_judges_who_differ_by_hand() -> None:
    """Judge x gives 0.6 to every run, y 0.8: nothing varies between runs, and the estimate by judges has s² = 0.02.

    Two of them: variance 0.02/2 = 0.01, SE 0.1 of the agentic half, half of it overall, nothing of the task half.
    """
    found = intervals(judged([[0.6, 0.8]] * 3))
    assert found["agentic"].standard_error == pytest.approx(0.1)
    assert found["overall"].standard_error == pytest.approx(0.05)
    assert found["task"].standard_error == 0.0


def test_noise_of_judges_within_runs_is_not_counted_twice() -> None:
    """x is once above and once below y: runs vary by it (0.5, 0.5, 0.65: s² = 0.0075), judges do not differ."""
    found = interval(judged([[0.4, 0.6], [0.6, 0.4], [0.65, 0.65]]), "agentic")
    assert found.standard_error == pytest.approx(math.sqrt(0.0075 / 3))


def test_judges_of_many_tasks_by_hand() -> None:
    """Five tasks without any variance but 0.6 and 0.8 by two judges: SE 0.1, one degree of freedom, t = 12.706."""
    found = interval(judged([[0.6, 0.8]] * 3, tasks=5), "agentic")
    assert found.standard_error == pytest.approx(0.1)
    assert (found.low, found.high) == (0.0, 1.0)  # 0.7 ± 1.27


@pytest.mark.parametrize("table", [[[0.6]] * 3, [[0.6, 0.8], [0.6], [0.6, 0.8]]], ids=["one judge", "not all runs"])
def test_one_judge_alone_says_nothing_about_judges(table: list[list[float]]) -> None:
    samples = judged(table)
    assert interval(samples, "agentic") == interval([replace(own, judged={}) for own in samples], "agentic")


@pytest.mark.parametrize(
    ("parts", "degrees", "expected"),
    [
        ([0.0], [4], math.inf),
        ([2.0], [4], 4),
        ([1.0, 1.0], [4, 4], 8),  # 4 / (1/4 + 1/4)
        ([1.0, 3.0], [2, 6], 8),  # 16 / (1/2 + 9/6)
        ([1.0, 0.0], [2, 100], 2),
    ],
)
def test_satterthwaite(parts: list[float], degrees: list[float], expected: float) -> None:
    assert satterthwaite(parts, degrees) == pytest.approx(expected)
