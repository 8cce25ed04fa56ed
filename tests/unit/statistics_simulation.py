"""Simulated campaigns of one agent whose true scores are known, to see how often an interval holds them.

A run fails with a probability of its own per task (many tasks hardly ever fail, some often); a failed run scores 0 on
the task and loses stages, some runs finish only part of the cases. Scores of cases have a ceiling at 1; tasks, tiers,
cases, repeats and case-in-repeat each vary on the logit scale. The agentic half is made of stages: S1 of six criteria,
S2 of five, S3 of three levels, S4 and S5 by rule. The true mean of a task is known without chance (quadrature).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from automedbench.statistics.samples import SHARES, Measure, Sample

Floats = NDArray[np.float64]

TASK_SD, TIER_SD, CASE_SD, REPEAT_SD, REST_SD = 1.2, 0.2, 1.0, 0.3, 0.5
PARTIAL, PARTIAL_FROM = 0.05, 0.3
FAILURES = (0.5, 4.5)
"""Beta distribution of a task's failure probability: mean 0.1, half of the tasks below 0.05."""
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(41)


@dataclass(frozen=True)
class Design:
    """A campaign of one agent; ``cases`` None: the task score is no mean over cases."""

    tasks: int
    tiers: int
    repeats: int
    cases: int | None

    def __str__(self) -> str:
        return f"{self.tasks}x{self.tiers}x{self.repeats}x{self.cases}"


@dataclass(frozen=True)
class Campaign:
    """Samples, and the true scores of their tasks."""

    samples: list[Sample]
    agentic: float
    task: float

    def truth(self, measure: Measure) -> float:
        """Expected score on these tasks."""
        agentic, task = SHARES[measure]
        return agentic * self.agentic + task * self.task


def squash(x: NDArray[np.floating]) -> NDArray[np.floating]:
    """Logit to score, with a ceiling at 1."""
    return np.minimum(1, 1.08 / (1 + np.exp(-x)))


def simulate(
    random: np.random.Generator, design: Design, n: int, failures: tuple[float, float] = FAILURES
) -> Iterator[Campaign]:
    """``n`` campaigns of new tasks each."""
    for _ in range(n):
        yield one_campaign(random, design, failures)


def one_campaign(random: np.random.Generator, design: Design, failures: tuple[float, float]) -> Campaign:
    """One campaign."""
    shape = (design.tasks, design.tiers, design.repeats)
    level = random.normal(0.6, TASK_SD, (shape[0], 1)) + random.normal(0, TIER_SD, shape[:2])
    failing = random.beta(*failures, (shape[0], 1)) * np.ones(shape[1])
    skills = random.beta([[8.0], [8.0], [2.0]], [[2.0], [2.0], [2.0]], (3, shape[0]))
    failed = random.random(shape) < failing[:, :, None]
    partial = ~failed & (random.random(shape) < PARTIAL)
    done = np.where(failed, 0.0, np.where(partial, random.uniform(PARTIAL_FROM, 1, shape), 1.0))
    agentic = _agentic(random, skills, failed, partial, done)
    logits = level[:, :, None] + random.normal(0, REPEAT_SD, shape)
    cases = None if design.cases is None else _cases(random, logits, done, design.cases)
    scores = squash(logits) * done if cases is None else cases.mean(axis=3, dtype=np.float64)
    samples = [
        Sample(
            f"task-{task:02d}", f"tier-{tier}", repeat + 1, float(agentic[task, tier, repeat]),
            float(scores[task, tier, repeat]), None if cases is None else cases[task, tier, repeat],
        )
        for task in range(shape[0]) for tier in range(shape[1]) for repeat in range(shape[2])
    ]  # fmt: skip
    means = true_means(level, failing, skills, design.cases is not None)
    return Campaign(samples, float(means[0].mean()), float(means[1].mean()))


def _agentic(
    random: np.random.Generator,
    skills: Floats,
    failed: NDArray[np.bool_],
    partial: NDArray[np.bool_],
    done: Floats,
) -> Floats:
    plan, setup, check = (np.broadcast_to(skill[:, None, None], failed.shape) for skill in skills)
    s1 = random.binomial(6, plan) / 6
    s2 = random.binomial(5, np.where(failed, 0.6, 1) * setup) / 5
    s3 = random.binomial(2, np.where(failed, 0.3, 1) * check) / 2
    s4 = 0.5 * done + 0.5 * ~failed
    s5 = 0.5 * ~failed + 0.5 * (~failed & ~partial)
    scores: Floats = 0.25 * s1 + 0.15 * s2 + 0.35 * s3 + 0.15 * s4 + 0.10 * s5
    return np.minimum(scores, 1.0)


def _cases(random: np.random.Generator, logits: Floats, done: Floats, n: int) -> NDArray[np.float32]:
    """Case scores, (tasks, tiers, repeats, cases): cases are shared by tiers and repeats; 500 of them are questions,
    right or wrong.
    """
    hard = CASE_SD * random.standard_normal((logits.shape[0], 1, 1, n), dtype=np.float32)
    rest = REST_SD * random.standard_normal((*logits.shape, n), dtype=np.float32)
    scores = squash(logits[..., None].astype(np.float32) + hard + rest).astype(np.float32)
    if n == 500:
        scores = (random.random(scores.shape, dtype=np.float32) < scores).astype(np.float32)
    kept = random.random(scores.shape, dtype=np.float32) < done[..., None].astype(np.float32)
    return scores * kept


def true_means(level: Floats, failing: Floats, skills: Floats, has_cases: bool) -> tuple[Floats, Floats]:
    """Expected agentic and task score of each task and tier, (tasks, tiers)."""
    sd = float(np.sqrt(CASE_SD**2 + REPEAT_SD**2 + REST_SD**2)) if has_cases else REPEAT_SD
    quality = squash(level[..., None] + sd * _NODES) @ (_NODE_WEIGHTS / _NODE_WEIGHTS.sum())
    works = 1 - failing
    done = works * (1 - PARTIAL + PARTIAL * (PARTIAL_FROM + 1) / 2)
    plan, setup, check = (skill[:, None] for skill in skills)
    agentic = (
        0.25 * plan + 0.15 * setup * (works + 0.6 * failing) + 0.35 * check * (works + 0.3 * failing)
        + 0.15 * (0.5 * done + 0.5 * works) + 0.10 * (0.5 * works + 0.5 * works * (1 - PARTIAL))
    )  # fmt: skip
    return agentic, quality * done


def population_truth(
    has_cases: bool, measure: Measure, failures: tuple[float, float] = FAILURES, n: int = 200_000
) -> float:
    """Expected score over all tasks that could have been drawn."""
    random = np.random.default_rng(99)
    level = random.normal(0.6, float(np.hypot(TASK_SD, TIER_SD)), (n, 1))
    skills = random.beta([[8.0], [8.0], [2.0]], [[2.0], [2.0], [2.0]], (3, n))
    agentic, task = true_means(level, random.beta(*failures, (n, 1)), skills, has_cases)
    shares = SHARES[measure]
    return float(shares[0] * agentic.mean() + shares[1] * task.mean())


@dataclass(frozen=True)
class Shape:
    """How runs that did not fail score: a sample of them, and its true mean."""

    draw: Callable[[np.random.Generator, tuple[int, ...]], Floats]
    mean: float


def _two_tiers(random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    levels = np.linspace(0.85, 0.5, shape[1])[:, None] if shape[1] > 1 else 0.675
    return levels + random.normal(0, 0.04, shape)


SHAPES: dict[str, Shape] = {
    "always the same": Shape(lambda _, shape: np.full(shape, 0.8), 0.8),
    "nearly the same": Shape(lambda random, shape: np.clip(random.normal(0.8, 0.03, shape), 0, 1), 0.8),
    "wide": Shape(lambda random, shape: random.beta(4, 2, shape), 4 / 6),
    "left-skewed": Shape(lambda random, shape: random.beta(6, 0.8, shape), 6 / 6.8),
    "right-skewed": Shape(lambda random, shape: random.beta(1, 5, shape), 1 / 6),
    "U-shaped": Shape(lambda random, shape: random.beta(0.5, 0.3, shape), 5 / 8),
    "bimodal": Shape(
        lambda random, shape: np.where(random.random(shape) < 0.7, 0.85, 0.25) + random.normal(0, 0.02, shape),
        0.7 * 0.85 + 0.3 * 0.25,
    ),
    "four values": Shape(
        lambda random, shape: random.choice([0.25, 0.5, 0.75, 1], p=[0.1, 0.2, 0.3, 0.4], size=shape), 0.75
    ),
    "seldom half": Shape(
        lambda random, shape: np.where(random.random(shape) < 0.1, 0.4, 0.9) + random.normal(0, 0.01, shape), 0.85
    ),
    "tiers differ": Shape(_two_tiers, 0.675),
}
"""Generators that share nothing with the campaigns above, nor with a prior of the intervals (they have none)."""


def shaped_rows(
    random: np.random.Generator, shape: str, design: Design, n: int, rate: float, varied: bool
) -> tuple[Floats, Floats]:
    """Scores of ``n`` rows, (n, tasks · tiers, repeats), and their true means, (n,).

    A run fails, and scores 0, at ``rate``; ``varied``: at a rate per row and task, whose mean that is (Beta).
    Several tasks have the shapes that follow in ``SHAPES``.
    """
    names = list(SHAPES)
    scores, truth = [], np.zeros(n)
    for task in range(design.tasks):
        kind = SHAPES[names[(names.index(shape) + task) % len(names)]]
        failing = random.beta(4 * rate, 4 - 4 * rate, (n, 1, 1)) if varied else np.full((n, 1, 1), rate)
        size = (n, design.tiers, design.repeats)
        scores.append(np.where(random.random(size) < failing, 0.0, kind.draw(random, size)))
        truth += (1 - failing[:, 0, 0]) * kind.mean / design.tasks
    return np.concatenate(scores, axis=1), truth


def samples_of_row(scores: Floats, tiers: int) -> list[Sample]:
    """One row of ``shaped_rows`` as samples; both halves are the same."""
    return [
        Sample(f"task-{cell // tiers}", f"tier-{cell % tiers}", repeat, float(value), float(value))
        for cell, own in enumerate(scores)
        for repeat, value in enumerate(own, 1)
    ]


@dataclass(frozen=True)
class BoardDesign:
    """Several agents on the same tasks; ``missing``: share of cells that an agent does not have."""

    agents: int
    tasks: int
    tiers: int
    repeats: int
    missing: float = 0.0

    def __str__(self) -> str:
        lack = f", {100 * self.missing:g} % missing" if self.missing else ""
        return f"{self.agents} × {self.tasks} × {self.tiers} × {self.repeats}{lack}"


@dataclass(frozen=True)
class Noise:
    """Runs of cells with given means, (boards, agents, tasks, tiers, 1), and where these means may lie."""

    draw: Callable[[np.random.Generator, Floats, tuple[int, ...]], Floats]
    low: float = 0.35
    high: float = 0.65
    interaction: float = 0.09


def lognormal(random: np.random.Generator, shape: tuple[int, ...], sigma: float = 0.8) -> Floats:
    """Right-skewed values with mean 0 and variance 1."""
    square = np.exp(sigma**2)
    return (np.exp(sigma * random.standard_normal(shape)) - np.sqrt(square)) / np.sqrt(square * (square - 1))


def heavy(random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Student's t with three degrees of freedom, variance 1."""
    return random.standard_t(3, shape) / np.sqrt(3)


def _collapsing(share: float) -> Callable[[np.random.Generator, Floats, tuple[int, ...]], Floats]:
    """Runs with little noise, of which a share has a fifth of the score."""

    def draw(random: np.random.Generator, mean: Floats, shape: tuple[int, ...]) -> Floats:
        usual = mean / (1 - 0.8 * share) * (1 + 0.08 * random.standard_normal(shape))
        return usual * np.where(random.random(shape) < share, 0.2, 1.0)

    return draw


def _heavy_runs(random: np.random.Generator, mean: Floats, shape: tuple[int, ...]) -> Floats:
    """Cut at the same distance on both sides so that they stay between 0 and 1 and keep their mean."""
    reach = np.minimum(mean, 1 - mean)
    return mean + np.clip(0.12 * heavy(random, shape), -reach, reach)


def _zeros(random: np.random.Generator, mean: Floats, shape: tuple[int, ...]) -> Floats:
    """Every second agent always has its mean; the others have 1.2 times as much, and 0 in a sixth of runs."""
    failing = np.where(random.random(shape) < 1 / 6, 0.0, 1.2 * mean)
    return np.where(_by(shape, 1) % 2 == 0, mean, failing)


def _loud(random: np.random.Generator, mean: Floats, shape: tuple[int, ...]) -> Floats:
    """The first task carries nearly all variance."""
    flaky = (random.random(shape) < mean).astype(float)
    return np.where(_by(shape, 2) == 0, flaky, mean + 0.05 * random.standard_normal(shape))


def _unlike(random: np.random.Generator, mean: Floats, shape: tuple[int, ...]) -> Floats:
    """Agents in turn: steady, normal, collapsing, binary, skewed."""
    kinds = [
        mean + 0.01 * random.standard_normal(shape),
        mean + 0.12 * random.standard_normal(shape),
        _collapsing(0.08)(random, mean, shape),
        (random.random(shape) < mean).astype(float),
        mean - 0.1 * lognormal(random, shape),
    ]
    return np.choose(np.broadcast_to(_by(shape, 1) % len(kinds), shape), kinds)


def _by(shape: tuple[int, ...], axis: int) -> NDArray[np.intp]:
    """Number along an axis, to broadcast."""
    return np.arange(shape[axis]).reshape([-1 if place == axis else 1 for place in range(len(shape))])


def _spread(shape: tuple[int, ...], axis: int, least: float = 0.02, most: float = 0.2) -> Floats:
    """Standard deviations along an axis, to broadcast."""
    steps = _by(shape, axis) / max(1, shape[axis] - 1)
    return np.asarray(least * (most / least) ** steps)


NOISES: dict[str, Noise] = {
    "normal": Noise(lambda random, mean, shape: mean + 0.12 * random.standard_normal(shape)),
    "heavy tails (t, 3 df)": Noise(_heavy_runs),
    "lognormal, low tail": Noise(lambda random, mean, shape: mean - 0.12 * lognormal(random, shape)),
    "lognormal, high tail": Noise(lambda random, mean, shape: mean + 0.12 * lognormal(random, shape)),
    "8 % collapse": Noise(_collapsing(0.08)),
    "3 % collapse": Noise(_collapsing(0.03)),
    "two peaks": Noise(
        lambda random, mean, shape: mean + np.where(random.random(shape) < 0.5, 0.2, -0.2)
        + 0.03 * random.standard_normal(shape)
    ),
    "0 or 1": Noise(lambda random, mean, shape: (random.random(shape) < mean).astype(float)),
    "0 or 1, mean .95": Noise(
        lambda random, mean, shape: (random.random(shape) < mean).astype(float), 0.94, 0.96, 0.0
    ),
    "SD of agents 1:10": Noise(
        lambda random, mean, shape: mean + _spread(shape, 1) * random.standard_normal(shape)
    ),
    "SD of tasks 1:10": Noise(
        lambda random, mean, shape: mean + _spread(shape, 2) * random.standard_normal(shape)
    ),
    "one task 0 or 1, others SD .05": Noise(_loud, interaction=0.0),
    "constant, or 1/6 zeros": Noise(_zeros),
    "agents of five kinds": Noise(_unlike),
}  # fmt: skip
"""Runs that share nothing with the normal draws of the method."""

INTERACTIONS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Floats]] = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "heavy tails (t, 3 df)": heavy,
    "lognormal, low tail": lambda random, shape: -lognormal(random, shape),
    "SD of agents 1:10": lambda random, shape: _spread(shape, 1, 0.2, 2) * random.standard_normal(shape),
    "SD of agents 1:10, low tail": lambda random, shape: -_spread(shape, 1, 0.2, 2) * lognormal(random, shape),
    "SD of tasks 1:10": lambda random, shape: _spread(shape, 2, 0.2, 2) * random.standard_normal(shape),
    "an eighth of tasks failed": lambda random, shape: 0.75 - 6.0 * (random.random(shape) < 1 / 8),
    "the same, every second agent steady": lambda random, shape: np.where(
        _by(shape, 1) % 2 == 0, 0.0, 0.75 - 6.0 * (random.random(shape) < 1 / 8)
    ),
}
"""What a task adds to an agent, mean 0, (boards, agents, tasks, 1)."""


def boards_on_these_tasks(
    random: np.random.Generator, noise: Noise, design: BoardDesign, n: int, effects: Floats
) -> tuple[Floats, Floats]:
    """Scores of ``n`` boards, (boards, agents, tasks, tiers, repeats), missing ones nan, and true means of cells.

    Tasks suit agents differently, but so that agents with the same effect, (boards, agents), have the same true score.
    """
    shape = (n, design.agents, design.tasks, design.tiers)
    means = random.uniform(noise.low, noise.high, (n, 1, *shape[2:])) + effects[..., None, None]
    if not design.missing:
        own = random.uniform(-noise.interaction, noise.interaction, shape)
        means = means + own - own.mean(axis=(2, 3), keepdims=True)
    scores = noise.draw(random, means[..., None], (*shape, design.repeats))
    scores[random.random(shape) < design.missing] = np.nan
    return scores, means


def boards_of_drawn_tasks(
    random: np.random.Generator, interaction: str, design: BoardDesign, n: int, effects: Floats, sd: tuple[float, float]
) -> Floats:
    """Scores of ``n`` boards, as above, whose tasks are drawn; ``sd``: of the interaction and of runs (normal)."""
    shape = (n, design.agents, design.tasks, design.tiers)
    means = random.uniform(0.4, 0.6, (n, 1, design.tasks, 1)) + effects[..., None, None]
    means = means + sd[0] * INTERACTIONS[interaction](random, (*shape[:3], 1))
    return means[..., None] + sd[1] * random.standard_normal((*shape, design.repeats))


def samples_of_board(scores: Floats) -> dict[str, list[Sample]]:
    """One board, (agents, tasks, tiers, repeats), as samples; cells of nan are left out."""
    return {
        f"agent-{agent:02d}": [
            Sample(f"task-{task:02d}", f"tier-{tier}", repeat, value, value)
            for task, tiers in enumerate(tasks)
            for tier, runs in enumerate(tiers)
            for repeat, value in enumerate(runs)
            if value == value
        ]
        for agent, tasks in enumerate(scores.tolist())
    }
