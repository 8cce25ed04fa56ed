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
from automedbench.statistics.ranks import resampled_scores
from automedbench.statistics.samples import MEASURES, Interval, Measure, Method, Pooling, Sample, cells_of

T_2, T_4 = 4.302653, 2.776445
"""97.5 % quantiles of Student's t with 2 and 4 degrees of freedom (any table)."""


def interval(
    samples: Sequence[Sample], measure: Measure = "overall", pooling: Pooling = "tasks", **options: Any
) -> Interval:
    return intervals(samples, Method(pooling, **options), (measure,))[measure]


def run(value: float, task: str = "t", tier: str = "lite", repeat: int = 1) -> Sample:
    """Both halves the same, no cases."""
    return Sample(task, tier, repeat, value, value)


def one_cell(*values: float) -> list[Sample]:
    return [run(value, repeat=number) for number, value in enumerate(values, 1)]


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


def test_a_run_that_comes_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"t/lite/r1 comes twice"):
        interval([*one_cell(0.1, 0.2, 0.3), run(0.4)])


def test_upper_limit_of_one_cell_by_hand() -> None:
    """0.4, 0.5, 0.6: mean 0.5, s = 0.1, SE = 0.1/√3; no run failed, so that the upper limit is plain Student."""
    found = interval(one_cell(0.4, 0.5, 0.6))
    assert found.estimate == pytest.approx(0.5)
    assert found.standard_error == pytest.approx(0.1 / math.sqrt(3))
    assert found.high == pytest.approx(0.5 + T_2 * 0.1 / math.sqrt(3), abs=1e-5)
    assert found.low is not None and found.low < 0.5 - T_2 * 0.1 / math.sqrt(3)  # a failure may have been missed


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
    """All 0: the estimate is 0 and the upper limit is not."""
    found = interval(one_cell(0.0, 0.0, 0.0), "task")
    assert (found.low, found.estimate) == (0.0, 0.0)
    assert found.high is not None and 0.1 < found.high < 0.5


def test_more_repeats_exclude_more() -> None:
    """All runs 0.8: the allowance for failures that were not seen shrinks, and is the only width."""
    lows = [interval(one_cell(*[0.8] * n), "task").low for n in (3, 10, 35)]
    assert all(low is not None for low in lows)
    assert lows == sorted(lows, key=lambda low: low or 0.0)
    assert lows[-1] is not None and 0.75 < lows[-1] < 0.8
    assert interval(one_cell(*[0.8] * 3), "task").high == pytest.approx(0.8)


def test_limits_stay_within_what_a_score_can_be() -> None:
    found = interval(one_cell(0.0, 0.5, 1.0))
    assert (found.low, found.high) == (0.0, 1.0)


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


@pytest.mark.parametrize("n_tasks", [1, 4, 7])
def test_scaling(n_tasks: int) -> None:
    """Half of every score gives half of the interval: nothing depends on where the scores are but the clipping."""
    samples = campaign(n_tasks)
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


def test_seeds_move_only_the_allowance_for_what_was_not_seen() -> None:
    """Tasks as a sample: no chance in it at all."""
    assert interval(campaign(7), seed=1) == interval(campaign(7), seed=2)
    first, second = interval(campaign(1), seed=1), interval(campaign(1), seed=2)
    assert first.low == pytest.approx(second.low, abs=0.03)
    assert first.high == second.high


@pytest.mark.parametrize("n_tasks", [1, 3, 4, 6, 9])
def test_the_closed_form_is_that_of_the_bootstrap(n_tasks: int) -> None:
    """The standard deviation of resampled scores, without the stretch for Student's t, is the standard error.

    4 % is three standard errors of a standard deviation over 4 000 resamples, with heavier tails than the normal.
    """
    samples = campaign(n_tasks)
    exact = interval(samples)
    draws = resampled_scores({"a": cells_of(samples)}, "overall", Method("tasks", 1e-9, 4000, seed=5))[:, 0]
    # Towards confidence 0 the stretch is the ratio of the densities of normal and t at their middle.
    stretch = draws.std() / (exact.standard_error or 0.0)
    assert draws.mean() == pytest.approx(exact.estimate, abs=0.01)
    assert stretch == pytest.approx(_middle_ratio(samples), rel=0.04)


def _middle_ratio(samples: list[Sample]) -> float:
    from scipy.stats import norm, t

    from automedbench.statistics.intervals import Side, spread_over_tasks, spread_within
    from automedbench.statistics.samples import cell_weights, means

    cells = cells_of(samples)
    places = list(cells)
    weights = cell_weights(places, [cell.n for cell in cells.values()], "tasks")
    n_tasks = len({task for task, _ in places})
    if n_tasks >= 5:
        spread = spread_over_tasks(places, weights, means(cells, places, "overall"))
    else:
        spread = spread_within([Side(cells)], places, weights, "overall")
    return float(norm.pdf(0) / t.pdf(0, spread.degrees))


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
