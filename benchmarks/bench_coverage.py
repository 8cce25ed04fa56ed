"""How often an interval holds the true score: simulated campaigns of many designs (docs/coverage.md has the tables).

    python benchmarks/bench_coverage.py                         # all designs, one row each; half an hour on one core
    python benchmarks/bench_coverage.py --tasks 1 4 --runs 4000
    python benchmarks/bench_coverage.py --stated                # power at the difference that the forecast states
    python benchmarks/bench_coverage.py --shapes --runs 4000    # one task, two tiers, three repeats: other generators
    python benchmarks/bench_coverage.py --boards                # comparisons of many agents: errors and power

Prints Markdown tables: coverage of the 95 % intervals in percent. ``--shapes``: by shape of the scores and failure rate
(the last columns: a rate per row, from a Beta distribution of that mean), with what other methods reach.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from itertools import product
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # one core: before numpy is loaded

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from automedbench.statistics.draws import chi_square_draws, normal_draws  # noqa: E402
from automedbench.statistics.intervals import MIN_TASKS, intervals  # noqa: E402
from automedbench.statistics.pairs import FEW_DEGREES, compare_pairs, flip_signs  # noqa: E402
from automedbench.statistics.samples import MEASURES, StatisticsMethod  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "unit"))
from statistics_simulation import (  # noqa: E402
    FAILURES,
    INTERACTIONS,
    NOISES,
    SHAPES,
    BoardDesign,
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
    parser.add_argument("--boards", nargs="?", const="all", choices=["all", "equal", "half", "drawn", "power"])
    options = parser.parse_args()
    if options.stated:
        print_stated(options.runs // 5)
        return
    if options.shapes is not None:
        design = Design(*(options.shapes or (1, 2, 3)), None)
        print_shapes(design, options.runs)
        return
    if options.boards:
        print_boards(options.boards, options.runs)
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


EQUAL_DESIGNS = [
    BoardDesign(7, 7, 2, 3),
    BoardDesign(7, 7, 2, 3, 0.1),
    BoardDesign(2, 3, 1, 3),
    BoardDesign(7, 3, 2, 3),
    BoardDesign(7, 1, 2, 3),
    BoardDesign(4, 7, 1, 10),
    BoardDesign(7, 24, 2, 3),
    BoardDesign(40, 7, 2, 3),
    BoardDesign(20, 48, 1, 3),
]
HALF_DESIGNS = [BoardDesign(7, 7, 2, 3), BoardDesign(8, 3, 1, 3), BoardDesign(8, 7, 2, 5, 0.1)]
DRAWN_DESIGNS = [
    BoardDesign(2, 6, 1, 3),
    BoardDesign(7, 7, 2, 3),
    BoardDesign(20, 12, 1, 3),
    BoardDesign(7, 24, 2, 3),
    BoardDesign(40, 24, 1, 3),
]
RUN_SDS, INTERACTION_SDS = (0.06, 0.09, 0.12, 0.16, 0.2), (0.03, 0.06, 0.09, 0.12)
RESAMPLES, SEEDS, BLOCK = 1000, 8, 100
"""Boards take turns with eight seeds of the method: none of them alone decides the figures."""


def print_boards(part: str, boards: int) -> None:
    """Tables of ``part``, with ``boards`` of a design; a fifth of large ones and of those with missing cells."""
    tables = {"equal": print_equal, "half": print_half, "drawn": print_drawn, "power": print_power}
    for name, show in tables.items():
        if part in (name, "all"):
            show(boards)


def blocks(design: BoardDesign, boards: int) -> Iterator[int]:
    """Numbers of boards to simulate at once."""
    n = boards // (5 if design.agents * design.tasks > 150 or design.missing else 1)
    yield from (min(BLOCK, n - done) for done in range(0, n, BLOCK))


def seeds(n: int) -> Iterator[tuple[int, StatisticsMethod]]:
    """Number and method of each board."""
    return ((number, StatisticsMethod(resamples=RESAMPLES, seed=number % SEEDS)) for number in range(n))


@lru_cache(16)
def method_draws(design: BoardDesign, seed: int) -> tuple[Floats, Floats]:
    """The draws that the method makes for each agent, (agents, cells [+ 1], resamples): the same for every board."""
    cells, degrees = design.tasks * design.tiers, design.repeats - 1
    normal = [normal_draws(cells + 1, RESAMPLES, seed, agent).T for agent in range(design.agents)]
    squares = [chi_square_draws((degrees,) * cells, RESAMPLES, seed, agent).T for agent in range(design.agents)]
    return np.stack(normal), np.stack(squares)


def limits_of_pairs(scores: Floats, design: BoardDesign) -> tuple[Floats, Floats, Floats]:
    """Difference, low and high of all pairs of each board, (boards, pairs).

    Complete boards by arithmetic on all agents at once, thirty times as fast as ``compare_pairs``; that both say the
    same is checked on the first of every block.
    """
    if design.missing:
        boards = [compare_pairs(samples_of_board(scores[number]), method) for number, method in seeds(len(scores))]
        rows = [[(pair.difference, pair.low, pair.high) for pair in own] for own in boards]
        return tuple(np.moveaxis(np.array(rows, float), -1, 0))
    a, b = np.triu_indices(design.agents, 1)
    counts = design.tasks * design.tiers
    means = scores.mean(axis=(2, 3, 4))
    shares = scores.var(axis=4, ddof=1).reshape(*means.shape, counts) / design.repeats / counts**2
    unseen = (np.maximum(means, 1 - means) / (counts * design.repeats + 1)) ** 2
    known, usual = shares.sum(axis=2), shares.mean(axis=1)
    carried = (usual**2).sum(axis=1) / (design.repeats - 1) / np.maximum(usual.sum(axis=1) ** 2, 1e-300)
    share = np.minimum(1, FEW_DEGREES * carried)[:, None] ** 2
    least = np.maximum(unseen, share * usual.sum(axis=1)[:, None])
    deviations = np.sqrt(np.concatenate([shares, np.maximum(least - known, 0)[..., None]], axis=2))
    variances, gaps = np.maximum(known, least), means[:, a] - means[:, b]
    reach = np.sqrt(variances[:, a] + variances[:, b])
    for number, method in seeds(len(scores)):
        normal, squares = method_draws(design, method.seed)
        errors = np.matmul(deviations[number][:, None], normal)[:, 0]
        drawn = np.matmul(shares[number][:, None], squares)[:, 0]
        floor = np.maximum(unseen[number][:, None], share[number] * drawn.mean(axis=0))
        reach[number] *= critical_value(errors, np.maximum(drawn, floor))
    found = compare_pairs(samples_of_board(scores[0]), StatisticsMethod(resamples=RESAMPLES))
    assert np.allclose([pair.low for pair in found], np.maximum(gaps[0] - reach[0], -1))
    return gaps, gaps - reach, gaps + reach


def critical_value(errors: Floats, variances: Floats) -> float:
    """Of the largest statistic of all pairs; both (agents, resamples)."""
    largest = np.zeros(errors.shape[1])
    for agent in range(len(errors) - 1):
        spread = np.sqrt(variances[agent] + variances[agent + 1 :])
        np.maximum(largest, (np.abs(errors[agent] - errors[agent + 1 :]) / spread).max(axis=0), out=largest)
    return float(np.sort(largest)[-50])


def heads(names: Iterable[object]) -> None:
    shown = [str(name) for name in names]
    print(f"\n| | {' | '.join(shown)} |\n|---|{'---:|' * len(shown)}")


def print_equal(boards: int) -> None:
    """All agents equal on these tasks: share of boards with a pair that is called different."""
    heads(EQUAL_DESIGNS)
    for kind, (name, noise) in enumerate(NOISES.items()):
        rates = []
        for design in EQUAL_DESIGNS:
            random, wrong = np.random.default_rng([17, kind, *sizes(design)]), []
            for n in blocks(design, boards):
                scores, _ = boards_on_these_tasks(random, noise, design, n, np.zeros((n, design.agents)))
                _, low, high = limits_of_pairs(scores, design)
                wrong.append(((low > 0) | (high < 0)).any(axis=1))
            rates.append(100 * np.concatenate(wrong).mean())
        print(line(name, rates), flush=True)


def print_half(boards: int) -> None:
    """Half of the agents equal, the others up to 15 points above or below: errors and coverage."""
    for design in HALF_DESIGNS:
        heads([f"{design}: equal pair different", "wrong order", "all intervals hold", "intervals hold", "rank missed"])
        for kind, (name, noise) in enumerate(NOISES.items()):
            random, found = np.random.default_rng([19, kind, *sizes(design)]), []
            for n in blocks(design, boards):
                effects = random.uniform(-0.15, 0.15, (n, design.agents))
                effects = np.minimum(effects, 0.99 - noise.high) * (np.arange(design.agents) >= design.agents / 2)
                scores, means = boards_on_these_tasks(random, noise, design, n, effects)
                found.append(board_errors(limits_of_pairs(scores, design), scores, means, effects))
            print(line(name, 100 * np.concatenate(found).mean(axis=0)), flush=True)


def board_errors(limits: tuple[Floats, Floats, Floats], scores: Floats, means: Floats, effects: Floats) -> Floats:
    """Of each board: an equal pair different, a wrong order, all intervals hold, share that holds, a rank missed."""
    a, b = np.triu_indices(scores.shape[1], 1)
    here = ~np.isnan(scores[..., 0])
    both = (here[:, a] & here[:, b]).astype(float)
    weights = both / np.maximum(both.sum(axis=3, keepdims=True), 1)
    weights /= both.any(axis=3).sum(axis=2)[..., None, None]
    true = (weights * (means[:, a] - means[:, b])).sum(axis=(2, 3))
    _, low, high = limits
    above, below = low > 0, high < 0
    equal, held = np.abs(true) < 1e-9, (low - 1e-9 <= true) & (true <= high + 1e-9)
    turned = (above & (true < -1e-9)) | (below & (true > 1e-9))
    rates = [((above | below) & equal).any(axis=1), turned.any(axis=1), held.all(axis=1), held.mean(axis=1)]
    return np.stack([*rates, rank_missed(above, below, effects)], axis=1)


def rank_missed(above: NDArray[np.bool_], below: NDArray[np.bool_], true: Floats) -> NDArray[np.bool_]:
    """Whether a range leaves out a rank that an agent has by its true score; equal ones share several."""
    better = np.zeros((*true.shape, true.shape[1]), bool)
    a, b = np.triu_indices(true.shape[1], 1)
    better[:, a, b], better[:, b, a] = above, below
    truly = true[:, :, None] > true[:, None] + 1e-9
    missed = (better.sum(axis=1) > truly.sum(axis=1)) | (better.sum(axis=2) > truly.sum(axis=2))
    return missed.any(axis=1)


def print_drawn(boards: int) -> None:
    """Tasks drawn: boards with p < 0.05 of an equal pair; all equal, and half of them (the others 20 points up)."""
    for half in (False, True):
        heads(f"{design}{', half' if half else ''}" for design in DRAWN_DESIGNS)
        for kind, name in enumerate(INTERACTIONS):
            rates = [drawn_errors(design, boards, (kind, name), half) for design in DRAWN_DESIGNS]
            print(line(name, rates), flush=True)


def drawn_errors(design: BoardDesign, boards: int, kind: tuple[int, str], half: bool) -> float:
    """Percent of boards with a p below 0.05 of equal agents."""
    random, found = np.random.default_rng([23, kind[0], half, *sizes(design)]), []
    effects = 0.2 * half * (np.arange(design.agents) >= design.agents / 2 + 1)
    a, b = np.triu_indices(design.agents, 1)
    for n in blocks(design, boards):
        scores = boards_of_drawn_tasks(random, kind[1], design, n, np.tile(effects, (n, 1)), (0.08, 0.1))
        found.append((p_like_these(scores)[:, effects[a] == effects[b]] < 0.05).any(axis=1))
    return float(100 * np.concatenate(found).mean())


def p_like_these(scores: Floats) -> Floats:
    """P on tasks like these of all pairs, (boards, pairs)."""
    a, b = np.triu_indices(scores.shape[1], 1)
    tasks = np.moveaxis(scores.mean(axis=(3, 4)), 1, 2)
    gaps = tasks[..., a] - tasks[..., b]
    return np.array([flip_signs(gaps[number], RESAMPLES, method.seed) for number, method in seeds(len(gaps))])


def print_power(boards: int) -> None:
    """Share of pairs that truly differ (three of seven are better) and are found: ours / known variances."""
    design, n = BoardDesign(7, 7, 2, 3), boards // 5
    heads(["on these tasks, 10 points", *(f"like these, 20 points, interaction {sd:g}" for sd in INTERACTION_SDS)])
    better = np.arange(design.agents) % 2
    a, b = np.triu_indices(design.agents, 1)
    for sd in RUN_SDS:
        rates = []
        for number, (gap, between) in enumerate([(0.1, 0.0), *((0.2, own) for own in INTERACTION_SDS)]):
            random = np.random.default_rng([29, number, int(1000 * sd)])
            scores = boards_of_drawn_tasks(random, "normal", design, n, np.tile(gap * better, (n, 1)), (between, sd))
            gaps, low, high = limits_of_pairs(scores, design)
            known = np.sqrt(2 * (between**2 + sd**2 / design.tiers / design.repeats) / design.tasks)
            ours = p_like_these(scores) < 0.05 if between else (low > 0) | (high < 0)
            limit = np.abs(gaps) > known * largest_of_normal(design.agents)
            true = better[a] != better[b]
            rates.append(f"{100 * ours[:, true].mean():.0f} / {100 * limit[:, true].mean():.0f}")
        print(f"| run SD {sd:g} | {' | '.join(rates)} |", flush=True)


@cache
def largest_of_normal(agents: int) -> float:
    """Critical value of the largest standardised difference of normal means with known variance."""
    values = np.random.default_rng(0).standard_normal((200_000, agents))
    return float(np.quantile(np.ptp(values, axis=1), 0.95) / np.sqrt(2))


def sizes(design: BoardDesign) -> list[int]:
    return [design.agents, design.tasks, design.tiers, design.repeats]


def line(head: str, values: Iterable[float]) -> str:
    return f"| {head} | {' | '.join(f'{value:.1f}' for value in values)} |"


if __name__ == "__main__":
    main()
