"""Which difference between two agents a campaign can tell apart, and the cheapest design for a given difference.

Questions, tests and formulas: docs/statistics.md, "What a campaign can tell apart". Scores are in [0, 1] here.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any

from automedbench.base.plaintable import counted, table
from automedbench.base.records import RunId
from automedbench.base.yamlfile import load_yaml
from automedbench.campaign.config import Selection
from automedbench.campaign.load import Campaign, expand_matrix
from automedbench.campaign.treatments import find_fault
from automedbench.planning.forecast import AgentForecast, budget_line, is_compared, runs_to_do, total_forecast, usd_text
from automedbench.statistics import design
from automedbench.statistics.intervals import MIN_REPEATS
from automedbench.statistics.pairs import MIN_FLIPPED
from automedbench.statistics.samples import Place, cell_weights

SHIPPED = Path(__file__).with_name("variances.yaml")
MIN_DEGREES = 10
"""Fewest degrees of freedom with which a variance is taken from finished runs."""
MAX_READ, MAX_REPEATS = 500, 1000
THESE, LIKE = "on these tasks", "on tasks like these"


@dataclass(frozen=True)
class Variances:
    """Variance between runs of a cell, and variance of task × agent.

    ``n_runs``, ``n_interaction``: finished runs that a variance is from; 0: it is the shipped one.
    """

    runs: float
    interaction: float
    n_runs: int = 0
    n_interaction: int = 0


@dataclass(frozen=True)
class Detectable:
    """Smallest differences that a design tells apart, on its tasks and on tasks like these; None: it tells none."""

    design: str
    runs: int
    these_tasks: float | None
    like_these: float | None


def list_detectable(campaign: Campaign, variances: Variances) -> list[Detectable]:
    """Differences that the campaign tells apart, and that it would with one more repeat or one more task."""
    matrix, others = campaign.config.matrix, _other_tasks(campaign)
    designs: dict[str, dict[str, Any]] = {"as configured": {}, "one repeat more": {"repeats": matrix.repeats + 1}}
    if others:
        designs[f"one task more ({others[0]})"] = {"tasks": [*matrix.tasks, others[0]]}
    return [_find_detectable(campaign, name, changes, variances) for name, changes in designs.items()]


def _find_detectable(campaign: Campaign, name: str, changes: dict[str, Any], variances: Variances) -> Detectable:
    runs = _expand(campaign, **changes)
    cells, agents = _common_cells(campaign, runs), len({run.agent for run in runs if not find_fault(run.agent)})
    if min(cells.values(), default=0) < MIN_REPEATS:
        return Detectable(name, len(runs), None, None)
    weighted, tasks = _weigh(campaign, cells), len(dict(cells.keys()))
    here, like = design.smallest_difference(weighted, variances.runs, agents), None
    if tasks >= MIN_FLIPPED:
        error = design.error_variance(weighted, variances.runs) + 2 * variances.interaction / tasks
        like = design.population_factor(tasks, agents) * error**0.5
    return Detectable(name, len(runs), here, like)


def _expand(campaign: Campaign, **changes: Any) -> list[RunId]:
    """The campaign's whole matrix, with changes; a task has no run in a tier that its card lacks."""
    runs = expand_matrix(campaign.config.matrix.model_copy(update=changes), Selection())
    return [run for run in runs if run.tier in campaign.cards[run.task].tiers]


def _common_cells(campaign: Campaign, runs: Iterable[RunId]) -> dict[Place, int]:
    """Cells that all agents with a model have, with the fewest repeats of one of them."""
    counts = Counter((run.agent, (run.task, run.tier)) for run in runs if is_compared(campaign, run.agent))
    agents, places = {agent for agent, _ in counts}, sorted({place for _, place in counts})
    fewest = {place: min(counts[agent, place] for agent in agents) for place in places}
    return {place: n for place, n in fewest.items() if n}


def _count_agents(campaign: Campaign) -> int:
    return sum(not find_fault(agent) for agent in campaign.config.matrix.agents)


def _weigh(campaign: Campaign, cells: dict[Place, int]) -> list[tuple[float, int]]:
    """Weight in the pooled score, and repeats, of each cell."""
    weights = cell_weights(list(cells), list(cells.values()), campaign.config.pooling)
    return list(zip(weights.tolist(), cells.values(), strict=True))


def _other_tasks(campaign: Campaign) -> list[str]:
    """Further tasks of the campaign's tracks that have its tiers and need no agreement, in the order of their cards."""
    matrix = campaign.config.matrix
    tracks = {campaign.cards[task].track for task in matrix.tasks}
    cards = {task: card for task, card in campaign.cards.items() if task not in matrix.tasks and card.track in tracks}
    free = {task: card for task, card in cards.items() if not card.demo and card.dataset.access != "credentialed"}
    return [task for task, card in free.items() if {*matrix.tiers} <= {*card.tiers}]


# --- variances ------------------------------------------------------------------------------------------------

Scores = dict[Place, list[float]]
"""Cell → overall scores of an agent's runs."""


def estimate_variances(campaign: Campaign, planned: Iterable[RunId]) -> Variances:
    """Variances from runs that are finished and not planned again; the shipped ones where these are too few."""
    shipped = {name: each["value"] for name, each in load_yaml(SHIPPED).items()}
    usual = Variances(shipped["run_sd"] ** 2, shipped["interaction_sd"] ** 2)
    agents = _read_scores(campaign, planned)
    groups = [group for cells in agents for group in cells.values()]
    within, degrees = design.pooled_variance(groups)
    if degrees < MIN_DEGREES:
        return usual
    found = replace(usual, runs=within, n_runs=sum(map(len, groups)))
    interaction, degrees = _interaction(agents, within)
    return found if degrees < MIN_DEGREES else replace(found, interaction=interaction, n_interaction=found.n_runs)


def _read_scores(campaign: Campaign, planned: Iterable[RunId]) -> list[Scores]:
    """Overall scores of each agent with a model that has any; as many files are read for each, and not many."""
    folder, again = Path(campaign.config.results) / "runs", {run.path for run in planned}
    own: dict[str, list[RunId]] = {}
    for run in _expand(campaign):
        if is_compared(campaign, run.agent) and run.path not in again:
            own.setdefault(run.agent, []).append(run)
    found = []
    for runs in own.values():
        scores: Scores = {}
        for run in runs[: MAX_READ // len(own)]:
            if (score := _read_overall(folder / run.path / "score.json")) is not None:
                scores.setdefault((run.task, run.tier), []).append(score)
        found.append(scores)
    return [scores for scores in found if scores]


def _read_overall(path: Path) -> float | None:
    try:
        score = json.loads(path.read_bytes())
        return 0.0 if score["disqualified"] else float(score["scores"]["overall"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _interaction(agents: Sequence[Scores], within: float) -> tuple[float, int]:
    """Variance of task × agent over the cells that all agents have, less what runs add to it; degrees of freedom."""
    places = sorted(set.intersection(*map(set, agents)))
    tasks = [[place for place in places if place[0] == task] for task in dict(places)]
    if not tasks:
        return 0.0, 0
    rows = [[fmean(fmean(cells[place]) for place in own) for own in tasks] for cells in agents]
    found, degrees = design.interaction_variance(rows)
    noise = fmean(sum(within / len(cells[place]) for place in own) / len(own) ** 2 for cells in agents for own in tasks)
    return max(found - noise, 0.0), degrees


# --- the cheapest design --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CheapestDesign:
    """Tasks and repeats that tell a difference apart, or why none do; ``left``: forecast of the runs still to do."""

    question: str
    problem: str = ""
    tasks: tuple[str, ...] = ()
    repeats: int = 0
    runs: int = 0
    left: AgentForecast | None = None


def find_cheapest(campaign: Campaign, variances: Variances, target: float) -> list[CheapestDesign]:
    """Cheapest designs that tell ``target`` apart: on the campaign's own tasks, and on tasks like these."""
    return [_plan_these(campaign, variances, target), _plan_like_these(campaign, variances, target)]


def _plan_these(campaign: Campaign, variances: Variances, target: float) -> CheapestDesign:
    """The fewest repeats of the campaign's own tasks."""
    own, agents = campaign.config.matrix.tasks, _count_agents(campaign)
    weights = [weight for weight, _ in _single_repeats(campaign, own)]

    def closeness(repeats: int) -> float:
        cells = [(weight, repeats) for weight in weights]
        return -design.smallest_difference(cells, variances.runs, agents)

    repeats = bisect_left(range(MAX_REPEATS), -target, lo=MIN_REPEATS, key=closeness)
    if repeats == MAX_REPEATS:
        return CheapestDesign(THESE, f"{MAX_REPEATS} repeats of each cell are not enough")
    return _make_plan(campaign, THESE, own, repeats)


def _plan_like_these(campaign: Campaign, variances: Variances, target: float) -> CheapestDesign:
    """The cheapest pair of a number of tasks, the campaign's own first, then others of its tracks, and repeats."""
    own, agents = campaign.config.matrix.tasks, _count_agents(campaign)
    prices = {task: _price(campaign, task) for task in (*own, *_other_tasks(campaign))}
    tasks = [*own, *sorted(prices.keys() - set(own), key=lambda task: (prices[task], task))]
    if len(tasks) < MIN_FLIPPED:
        return CheapestDesign(LIKE, f"the campaign's tracks have {len(tasks)} tasks, {MIN_FLIPPED} are needed")
    designs = []
    for n in range(max(len(own), MIN_FLIPPED), len(tasks) + 1):
        # The variance that runs may add: the difference's, less the part of tasks, which repeats do not change.
        room = (target / design.population_factor(n, agents)) ** 2 - 2 * variances.interaction / n
        single = design.error_variance(_single_repeats(campaign, tasks[:n]), variances.runs)
        if single < room * MAX_REPEATS:
            repeats = max(MIN_REPEATS, ceil(single / room))
            designs.append((sum((repeats * prices[task] for task in tasks[:n]), Decimal(0)), n, repeats))
    if designs:
        _, n, repeats = min(designs)
        return _make_plan(campaign, LIKE, tasks[:n], repeats)
    least = design.population_factor(len(tasks), agents) * (2 * variances.interaction / len(tasks)) ** 0.5
    return CheapestDesign(
        LIKE, f"all {len(tasks)} tasks of the campaign's tracks tell {100 * least:.1f} points apart at best"
    )


def _single_repeats(campaign: Campaign, tasks: Sequence[str]) -> list[tuple[float, int]]:
    return _weigh(campaign, _common_cells(campaign, _expand(campaign, tasks=list(tasks), repeats=1, include=[])))


def _price(campaign: Campaign, task: str) -> Decimal:
    """Expected USD of one repeat of a task; its number of runs where no price is known, or nothing costs any."""
    runs = _expand(campaign, tasks=[task], repeats=1, include=[])
    return Decimal(total_forecast(campaign, runs).amounts[-2] or len(runs))


def _make_plan(campaign: Campaign, question: str, tasks: Sequence[str], repeats: int) -> CheapestDesign:
    runs = _expand(campaign, tasks=list(tasks), repeats=repeats)
    left = runs_to_do(replace(campaign, runs=runs))
    return CheapestDesign(
        question, "", tuple(tasks), repeats, len(runs), total_forecast(campaign, left) if left else None
    )


# --- as text --------------------------------------------------------------------------------------------------


def _variance_line(variances: Variances) -> str:
    def basis(n: int) -> str:
        return f"from {counted(n, 'finished run')}" if n else "shipped variance"

    run_sd, interaction_sd = (100 * each**0.5 for each in (variances.runs, variances.interaction))
    return (
        f"Standard deviations: {run_sd:.1f} points between runs ({basis(variances.n_runs)}), {interaction_sd:.1f} of "
        f"task × agent ({basis(variances.n_interaction)}). Sources: docs/statistics.md."
    )


def power_lines(campaign: Campaign, variances: Variances) -> list[str]:
    """Differences that the campaign tells apart, for a person."""
    found = list_detectable(campaign, variances)
    agents = _count_agents(campaign)
    hints = [
        f"With fewer than {MIN_REPEATS} repeats per cell nothing is tested." * (found[0].these_tasks is None),
        f"With fewer than {MIN_FLIPPED} tasks nothing is shown {LIKE}." * (found[0].like_these is None),
    ]
    return [
        f"Smallest difference between two of {agents} agents that is found (points; 80 % power, 5 % over all pairs):",
        *table([("design", "runs", THESE, LIKE), *map(_row, found)], right=(1, 2, 3)),
        *filter(None, hints),
        _variance_line(variances),
    ]


def _row(found: Detectable) -> tuple[str, str, str, str]:
    here, like = ("none" if each is None else f"{100 * each:.1f}" for each in (found.these_tasks, found.like_these))
    return found.design, f"{found.runs:,}", here, like


def plan_lines(campaign: Campaign, plans: Sequence[CheapestDesign], points: float) -> list[str]:
    """The cheapest designs for a person."""
    designs = (f"  {plan.question}: {_describe(campaign, plan)}" for plan in plans)
    return [f"Cheapest design that tells {points:g} points apart:", *designs]


def _describe(campaign: Campaign, plan: CheapestDesign) -> str:
    if plan.problem:
        return f"impossible, since {plan.problem}."
    more = len(plan.tasks) - len(campaign.config.matrix.tasks)
    added = f" ({more} more of the same tracks)" if more else ""
    size = f"{plan.repeats} repeats of {counted(len(plan.tasks), 'task')}{added}, {plan.runs:,} runs"
    if plan.left is None:
        return f"{size}, all finished."
    hours, *_, usd, _ = plan.left.amounts
    costs = "unknown USD" if usd is None else f"{usd_text(usd)} USD"
    time = "unknown hours" if hours is None else f"{hours:,.1f} hours"
    budget = "" if campaign.config.budget.max_cost_usd is None else f" {budget_line(campaign.config, plan.left)}"
    return f"{size}, of which {plan.left.runs:,} are still to do: {costs}, {time}.{budget}"


def as_json(campaign: Campaign, variances: Variances, plans: Sequence[CheapestDesign]) -> dict[str, Any]:
    """The same for a program: scores in [0, 1], expected hours and USD of the runs still to do."""
    return {
        "variances": asdict(variances),
        "detectable": [asdict(each) for each in list_detectable(campaign, variances)],
        "designs": [_plan_as_json(plan) for plan in plans],
    }


def _plan_as_json(plan: CheapestDesign) -> dict[str, Any]:
    hours, *_, usd, _ = plan.left.amounts if plan.left else (0.0, Decimal(0), None)
    return asdict(plan) | {"left": plan.left.runs if plan.left else 0, "hours": hours, "usd": usd}
