"""How often an interval holds the true score: simulated campaigns of many designs (docs/coverage.md has the tables).

    python benchmarks/bench_coverage.py                         # all designs, one row each; half an hour on one core
    python benchmarks/bench_coverage.py --tasks 1 4 --runs 4000
    python benchmarks/bench_coverage.py --stated                # power at the difference that the forecast states
    python benchmarks/bench_coverage.py --shapes --runs 4000    # one task, two tiers, three repeats: other generators
    python benchmarks/bench_coverage.py --shapes --differences  # the same of differences of two agents

Prints Markdown tables: coverage of the 95 % intervals in percent. ``--shapes``: by shape of the scores and failure rate
(the last columns: a rate per row, from a Beta distribution of that mean), with what other methods reach.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # one core: before numpy is loaded

import numpy as np  # noqa: E402

from automedbench.statistics.intervals import MIN_TASKS, intervals  # noqa: E402
from automedbench.statistics.pairs import compare_pairs  # noqa: E402
from automedbench.statistics.samples import MEASURES, Sample, StatisticsMethod  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "unit"))
from statistics_simulation import (  # noqa: E402
    FAILURES,
    SHAPES,
    Design,
    Floats,
    population_truth,
    samples_of_row,
    shaped_rows,
    simulate,
)

from automedbench.statistics import design as forecast  # noqa: E402

LARGE = 20_000
RATES = [(0.0, False), (0.05, False), (0.1, False), (0.2, False), (0.3, False), (0.4, False), (0.1, True), (0.3, True)]
"""Failure rates; true: the mean of a rate that differs from row to row."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 4, 7, 24, 48])
    parser.add_argument("--tiers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, nargs="+", default=[3, 5, 10])
    parser.add_argument("--cases", type=int, nargs="+", default=[0, 20, 100, 500], help="0: no mean over cases")
    parser.add_argument("--stated", action="store_true", help="power of comparisons, with a fifth of --runs")
    parser.add_argument("--runs", type=int, default=2000, help="simulated campaigns per design; a fifth of large ones")
    parser.add_argument("--failures", type=float, nargs=2, default=FAILURES, help="Beta distribution of failures")
    parser.add_argument("--shapes", type=int, nargs="*", metavar="N", help="tasks, tiers, repeats; default 1 2 3")
    parser.add_argument("--differences", action="store_true", help="with --shapes: of two agents of unlike shapes")
    options = parser.parse_args()
    if options.stated:
        print_stated(options.runs // 5)
        return
    if options.shapes is not None:
        design = Design(*(options.shapes or (1, 2, 3)), None)
        (print_differences if options.differences else print_shapes)(design, options.runs)
        return
    print("| tasks | tiers | repeats | cases | campaigns | overall | agentic | task |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for numbers in product(options.tasks, options.tiers, options.repeats, options.cases):
        design = Design(*numbers[:3], numbers[3] or None)
        large = numbers[0] * numbers[1] * numbers[2] * max(numbers[3], 10) > LARGE
        print(row(design, options.runs // (5 if large else 1), tuple(options.failures)), flush=True)


def row(design: Design, n: int, failures: tuple[float, float]) -> str:
    """Coverage of one design."""
    sampled = design.tasks >= MIN_TASKS
    population = {
        measure: population_truth(design.cases is not None, measure, failures) if sampled else 0.0
        for measure in MEASURES
    }
    hits = dict.fromkeys(MEASURES, 0)
    for campaign in simulate(np.random.default_rng([7, *numbers(design)]), design, n, failures):
        found = intervals(campaign.samples)
        for measure in MEASURES:
            truth = population[measure] if sampled else campaign.truth(measure)
            low, high = found[measure].low, found[measure].high
            hits[measure] += low is not None and high is not None and low - 1e-9 <= truth <= high + 1e-9
    shares = [f"{100 * hits[measure] / n:.1f}" for measure in MEASURES]
    return f"| {' | '.join(map(str, [*numbers(design), n, *shares]))} |"


def numbers(design: Design) -> list[int]:
    return [design.tasks, design.tiers, design.repeats, design.cases or 0]


STATED_DESIGNS = [(7, Design(7, 2, 3, None)), (6, Design(48, 2, 5, None)), (2, Design(3, 1, 10, None))]
"""Agents, and tasks × tiers × repeats."""
STATED_SHAPES, STATED_RATE, INTERACTION_SD = ("nearly the same", "wide", "bimodal", "U-shaped"), 0.0625, 0.1


def print_stated(n: int) -> None:
    """Percent of boards that find two agents as far apart as the forecast states: on these tasks / on tasks like these.

    All other agents stand halfway. A run fails at the rate of the shipped variance.
    """
    heads = [f"{agents} × {design.tasks} × {design.tiers} × {design.repeats}" for agents, design in STATED_DESIGNS]
    print(f"| shape | {' | '.join(heads)} |\n|---|{'---:|' * len(heads)}")
    for place, shape in enumerate(STATED_SHAPES):
        rates = []
        for agents, design in STATED_DESIGNS:
            random = np.random.default_rng([31, place, agents, *numbers(design)])
            rates.append(stated_power(random, shape, agents, design, n // (5 if design.tasks > 20 else 1)))
        print(f"| {shape} | {' | '.join(rates)} |", flush=True)


def stated_power(random: np.random.Generator, shape: str, agents: int, design: Design, n: int) -> str:
    """Percent on these tasks, and where there are enough of them on tasks like these, of one shape and design."""
    n_cells = design.tasks * design.tiers
    rows, _ = shaped_rows(
        random, shape, Design(1, n_cells, design.repeats, None), n * agents, STATED_RATE, varied=False
    )
    boards, cells = rows.reshape(n, agents, n_cells, -1), [(1 / n_cells, design.repeats)] * n_cells
    variance = float(boards.var(axis=3, ddof=1).mean())
    found = boards_found(boards, design.tiers, forecast.smallest_difference(cells, variance, agents))
    rates = [np.mean([here for here, _ in found])]
    if design.tasks >= forecast.MIN_FLIPPED:
        error = forecast.error_variance(cells, variance) + 2 * INTERACTION_SD**2 / design.tasks
        suits = random.normal(0, INTERACTION_SD, (n, agents, design.tasks, 1))
        boards = boards + np.repeat(suits, design.tiers, axis=2)
        found = boards_found(boards, design.tiers, forecast.population_factor(design.tasks, agents) * error**0.5)
        rates.append(np.mean([like for _, like in found]))
    return " / ".join(f"{100 * rate:.0f}" for rate in rates)


def boards_found(boards: Floats, tiers: int, gap: float) -> list[tuple[bool, bool]]:
    """Whether the first two agents of each board, moved apart, differ on these tasks, and on tasks like these."""
    boards = boards.copy()
    boards[:, 0] += gap / 2
    boards[:, 1] -= gap / 2
    found = []
    for number, board in enumerate(boards):
        agents = {f"agent-{agent:02d}": samples_of_row(own, tiers) for agent, own in enumerate(board)}
        pair = compare_pairs(agents, StatisticsMethod(resamples=1000, seed=number % 8))[0]
        found.append((pair.different, pair.p_like is not None and pair.p_like < 0.05))
    return found


Limits = tuple[Floats, Floats]


def ours(scores: Floats, tiers: int) -> Limits:
    """Limits of each row, by the code that the leaderboard uses."""
    found = [intervals(samples_of_row(own, tiers), measures=("task",))["task"] for own in scores]
    return np.array([span.low for span in found], float), np.array([span.high for span in found], float)


def student(scores: Floats, _tiers: int) -> Limits:
    """Student's t on the variance within cells, Satterthwaite's degrees of freedom."""
    from scipy.stats import t

    n_cells, repeats = scores.shape[1:]
    parts = scores.var(axis=2, ddof=1) / repeats / n_cells**2
    total = parts.sum(axis=1)
    degrees = np.where(total > 0, (repeats - 1) * total**2 / np.maximum((parts**2).sum(axis=1), 1e-300), 1)
    reach = t.ppf(0.975, np.maximum(degrees, 1)) * np.sqrt(total)
    middle = scores.mean(axis=(1, 2))
    return middle - reach, middle + reach


def percentile(scores: Floats, _tiers: int) -> Limits:
    """Percentiles of 400 bootstrap resamples of the repeats of each cell."""
    random = np.random.default_rng(0)
    repeats = scores.shape[2]
    means = np.zeros((400, len(scores)))
    for cell in range(scores.shape[1]):
        weights = random.multinomial(repeats, np.full(repeats, 1 / repeats), (400, len(scores))) / repeats
        means += np.einsum("brk,rk->br", weights, scores[:, cell]) / scores.shape[1]
    return tuple(np.quantile(means, [0.025, 0.975], axis=0))


METHODS: dict[str, Callable[[Floats, int], Limits]] = {
    "ours": ours,
    "Student's t": student,
    "percentile bootstrap": percentile,
}


def print_shapes(design: Design, n: int) -> None:
    """Coverage and mean width by shape and failure rate, then the least and the mean over shapes of every method."""
    heads = [f"{'about ' if varied else ''}{100 * rate:g} %" for rate, varied in RATES]
    print(f"| shape | {' | '.join(heads)} |\n|---|{'---:|' * len(heads)}")
    found = {method: np.zeros((len(SHAPES), len(RATES), 2)) for method in METHODS}
    for place, shape in enumerate(SHAPES):
        for number, (rate, varied) in enumerate(RATES):
            random = np.random.default_rng([11, place, number, *numbers(design)])
            scores, truth = shaped_rows(random, shape, design, n, rate, varied)
            for method, limits in METHODS.items():
                low, high = (np.clip(limit, 0, 1) for limit in limits(scores, design.tiers))
                held = (low - 1e-9 <= truth) & (truth <= high + 1e-9)
                found[method][place, number] = 100 * held.mean(), 100 * (high - low).mean()
        print(line(shape, found["ours"][place, :, 0]), flush=True)
    for method, figures in found.items():
        print(line(f"{method}: least", figures[:, :, 0].min(axis=0)))
        print(line(f"{method}: mean", figures[:, :, 0].mean(axis=0)))
        print(line(f"{method}: mean width", figures[:, :, 1].mean(axis=0)))


BOTH_RATES = [(0.0, 0.0), (0.1, 0.1), (0.2, 0.2), (0.3, 0.3), (0.4, 0.4), (0.0, 0.2), (0.1, 0.4)]
"""Failure rates of two agents."""


def print_differences(design: Design, n: int) -> None:
    """Coverage of intervals of differences: least and mean over shapes; the other agent has the third shape on."""
    names = list(SHAPES)
    print(
        f"| | {' | '.join(f'{100 * a:g} %, {100 * b:g} %' for a, b in BOTH_RATES)} |\n|---|{'---:|' * len(BOTH_RATES)}"
    )
    found = np.zeros((len(names), len(BOTH_RATES)))
    for place, number in product(range(len(names)), range(len(BOTH_RATES))):
        random = np.random.default_rng([13, place, number, *numbers(design)])
        sides = [
            shaped_rows(random, names[(place + step) % len(names)], design, n, rate, varied=False)
            for step, rate in zip((0, 3), BOTH_RATES[number], strict=True)
        ]
        held = [
            holds(samples_of_row(a, design.tiers), samples_of_row(b, design.tiers), truth)
            for a, b, truth in zip(sides[0][0], sides[1][0], sides[0][1] - sides[1][1], strict=True)
        ]
        found[place, number] = 100 * np.mean(held)
    print(line("least", found.min(axis=0)))
    print(line("mean", found.mean(axis=0)))


def holds(a: list[Sample], b: list[Sample], truth: float) -> bool:
    """Whether the interval of the difference of two agents holds it."""
    [pair] = compare_pairs({"a": a, "b": b}, StatisticsMethod(resamples=200), "task")
    return pair.low is not None and pair.high is not None and pair.low - 1e-9 <= truth <= pair.high + 1e-9


def line(head: str, values: Floats) -> str:
    return f"| {head} | {' | '.join(f'{value:.1f}' for value in values)} |"


if __name__ == "__main__":
    main()
