"""Forecast of the runs still to do, before anything is spent: hours, tokens, USD, and what the budget leaves.

A run is expected to use what this agent's finished runs of the same track and tier used on average, else what its
other finished runs used, else what ``budget.expected_*`` says. The most is what the limits allow. A price or a time
that is not known stays unknown: it is never 0.
"""

from __future__ import annotations

import functools
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from automedbench.agent.budget.ledger import (
    CampaignLedger,
    LedgerTotals,
    Position,
    cost_of,
    expected_usage,
    most_of_run,
)
from automedbench.base.cards import Limits
from automedbench.base.endpoint.completion import Usage
from automedbench.base.plaintable import table
from automedbench.base.records import RunId, Totals
from automedbench.campaign.load import Campaign

ValueT = TypeVar("ValueT", float, int, Decimal)
SAMPLE, LOOKED_AT = 20, 200
"""Finished runs that a mean is taken over, and the most files that are looked for to find them."""

FROM_LIKE, FROM_AGENT, FROM_CONFIG, NO_MODEL = "runs like these", "its other runs", "the configuration", "no model"


@dataclass(frozen=True)
class Expectation:
    """What one run is expected to use; ``hours`` is None when no run of the agent is finished."""

    usage: Usage
    hours: float | None
    basis: str


@dataclass(frozen=True)
class Amount:
    """Sums over runs; None: not known, or not limited."""

    hours: float | None = 0.0
    tokens: int | None = 0
    usd: Decimal | None = Decimal(0)

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            None if self.hours is None or other.hours is None else self.hours + other.hours,
            None if self.tokens is None or other.tokens is None else self.tokens + other.tokens,
            None if self.usd is None or other.usd is None else self.usd + other.usd,
        )

    def times(self, count: int) -> Amount:
        """The same for ``count`` runs."""
        return Amount(
            None if self.hours is None else self.hours * count,
            None if self.tokens is None else self.tokens * count,
            None if self.usd is None else self.usd * count,
        )


@dataclass(frozen=True)
class AgentForecast:
    """The runs of one agent: ``expected`` and at most; ``basis`` counts runs by where the expectation comes from."""

    agent: str
    runs: int = 0
    expected: Amount = Amount()
    most: Amount = Amount()
    priced: bool = True
    basis: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: AgentForecast) -> AgentForecast:
        return AgentForecast(
            self.agent,
            self.runs + other.runs,
            self.expected + other.expected,
            self.most + other.most,
            self.priced and other.priced,
            self.basis + other.basis,
        )


@dataclass(frozen=True)
class Forecast:
    """All agents with runs still to do, what was spent so far, and the budget (None: none)."""

    agents: list[AgentForecast]
    totals: LedgerTotals
    budget_usd: Decimal | None
    gpu: bool
    judge_asks: bool

    @property
    def all(self) -> AgentForecast:
        """The sum."""
        return sum(self.agents, AgentForecast("all"))


def make_forecast(campaign: Campaign, planned: Sequence[RunId]) -> Forecast:
    """What ``planned`` runs of the campaign will take."""
    config = campaign.config
    finished = FinishedRuns(campaign, planned)
    order = {name: place for place, name in enumerate(campaign.agents)}
    counts = Counter((run.agent, run.task, run.tier) for run in sorted(planned, key=lambda run: order[run.agent]))
    agents: dict[str, AgentForecast] = {}
    for (name, task, tier), count in counts.items():
        part = _part(campaign, finished, name, task, tier, count)
        agents[name] = agents[name] + part if name in agents else part
    budget = config.budget.max_cost_usd
    return Forecast(
        agents=list(agents.values()),
        totals=CampaignLedger(Path(config.results) / "ledger").totals(),
        budget_usd=None if budget is None else Decimal(budget),
        gpu=config.sandbox.gpu,
        judge_asks=config.answer_judge is not None,
    )


def runs_to_do(campaign: Campaign) -> list[RunId]:
    """Runs of the campaign without a result of this agent and this version of the task."""

    def is_done(run: RunId) -> bool:
        try:
            record = json.loads((Path(campaign.config.results) / "runs" / run.path / "run.json").read_bytes())
            found = record["agent_digest"], record["task_version"]
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return bool(found == (campaign.digest(run.agent, run.task), campaign.cards[run.task].version))

    return [run for run in campaign.runs if not is_done(run)]


def limits_of(campaign: Campaign, task: str) -> Limits:
    """The card's limits with those that the configuration replaces."""
    return Limits.model_validate(campaign.cards[task].limits.model_dump() | campaign.config.limits)


class FinishedRuns:
    """Totals of runs that are finished and not planned again; their files are read when asked for, and few of them."""

    def __init__(self, campaign: Campaign, planned: Iterable[RunId]) -> None:
        self._folder = Path(campaign.config.results) / "runs"
        again = {run.path for run in planned}
        self._groups: dict[tuple[str, str, str], list[str]] = {}
        for run in campaign.runs:
            if run.path not in again:
                key = (run.agent, campaign.cards[run.task].track, run.tier)
                self._groups.setdefault(key, []).append(run.path)

    @functools.cache  # noqa: B019 - one object per forecast
    def like(self, agent: str, track: str, tier: str) -> tuple[Totals, ...]:
        """Finished runs of the agent on this track and tier."""
        found: list[Totals] = []
        for path in self._groups.get((agent, track, tier), [])[:LOOKED_AT]:
            totals = _read_totals(self._folder / path / "run.json")
            if totals is not None:
                found.append(totals)
            if len(found) == SAMPLE:
                break
        return tuple(found)

    @functools.cache  # noqa: B019
    def of(self, agent: str) -> tuple[Totals, ...]:
        """Finished runs of the agent, of any kind."""
        groups = (self.like(*key) for key in self._groups if key[0] == agent)
        return tuple(totals for group in groups for totals in group)


def _part(campaign: Campaign, finished: FinishedRuns, name: str, task: str, tier: str, count: int) -> AgentForecast:
    agent, limits, budget = campaign.agents[name], limits_of(campaign, task), campaign.config.budget
    bound = most_of_run(agent, limits, budget)
    expectation = _expect(campaign, finished, name, campaign.cards[task].track, tier)
    limit_hours = None if limits.time_limit_s is None else limits.time_limit_s / 3600
    most = Amount(
        hours=limit_hours,
        tokens=limits.max_total_tokens if agent.paid else 0,
        usd=bound.usd if bound.is_limit else None,
    )
    cost = cost_of(expectation.usage, agent.pricing) if agent.paid else Decimal(0)
    expected = Amount(
        hours=_at_most(expectation.hours, most.hours),
        tokens=_at_most(expectation.usage.total, most.tokens),
        usd=_at_most(cost, most.usd),
    )
    priced = not agent.paid or agent.pricing is not None
    return AgentForecast(
        name, count, expected.times(count), most.times(count), priced, Counter({expectation.basis: count})
    )


def _expect(campaign: Campaign, finished: FinishedRuns, name: str, track: str, tier: str) -> Expectation:
    paid = campaign.agents[name].paid
    for totals, basis in ((finished.like(name, track, tier), FROM_LIKE), (finished.of(name), FROM_AGENT)):
        if totals:
            usage = _mean_usage(totals) if paid else Usage()
            hours = sum(each.wall_s for each in totals) / len(totals) / 3600
            return Expectation(usage, hours, basis if paid else NO_MODEL)
    return Expectation(expected_usage(campaign.config.budget), None, FROM_CONFIG) if paid else _NOTHING


_NOTHING = Expectation(Usage(), None, NO_MODEL)


def _mean_usage(totals: Sequence[Totals]) -> Usage:
    tokens = [each.tokens for each in totals]
    return Usage(
        prompt=round(sum(each.prompt for each in tokens) / len(tokens)),
        cached=round(sum(each.cached for each in tokens) / len(tokens)),
        completion=round(sum(each.completion for each in tokens) / len(tokens)),
    )


def _at_most(value: ValueT | None, most: ValueT | None) -> ValueT | None:
    return value if value is None or most is None else min(value, most)


def _read_totals(path: Path) -> Totals | None:
    """Totals of a finished run; None when there is no readable one."""
    try:
        return Totals.model_validate(json.loads(path.read_bytes())["totals"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


# --- as text --------------------------------------------------------------------------------------------------


def print_forecast(campaign: Campaign, planned: Iterable[Any]) -> None:
    """Print the forecast of planned steps, given by their wildcards, on standard error."""
    runs = [RunId(agent=step.agent, task=step.task, tier=step.tier, repeat=int(step.repeat)) for step in planned]
    for line in forecast_lines(make_forecast(campaign, runs)):
        print(line, file=sys.stderr)


def forecast_lines(forecast: Forecast) -> list[str]:
    """The forecast for a person; no lines when nothing is left to run."""
    total = forecast.all
    if total.runs == 0:
        return []
    several = [total] if len(forecast.agents) > 1 else []
    hours = "GPU-hours" if forecast.gpu else "hours"
    head = ("agent", "runs", hours, "at most", "tokens", "at most", "USD", "at most", "expected from")
    rows = [head, *(_row(agent) for agent in (*forecast.agents, *several))]
    return [
        f"Forecast of {total.runs} run{'s' * (total.runs != 1)} still to do; nothing is spent by a forecast:",
        *table(rows, right=range(1, 8)),
        *_money_lines(forecast, total),
    ]


def _row(agent: AgentForecast) -> tuple[str, ...]:
    expected, most = agent.expected, agent.most
    return (
        agent.agent,
        str(agent.runs),
        "unknown" if expected.hours is None else f"{expected.hours:.1f}",
        "no limit" if most.hours is None else f"{most.hours:.1f}",
        "unknown" if expected.tokens is None else f"{expected.tokens:,}",
        "no limit" if most.tokens is None else f"{most.tokens:,}",
        "unknown" if expected.usd is None else usd_text(expected.usd),
        "unknown" if not agent.priced else "no limit" if most.usd is None else usd_text(most.usd),
        ", ".join(agent.basis)
        if len(agent.basis) == 1
        else ", ".join(f"{n} {name}" for name, n in agent.basis.items()),
    )


def _money_lines(forecast: Forecast, total: AgentForecast) -> list[str]:
    position = forecast.totals.all
    lines = [spent_line(position)] if position != Position() else []
    lines += [f"The ledger is damaged: {problem}." for problem in forecast.totals.problems]
    if forecast.budget_usd is not None:
        left = forecast.budget_usd - position.committed
        budget = f"Budget: {usd_text(forecast.budget_usd)} USD, of which {usd_text(left)} USD are left"
        lines.append(f"{budget}: {_enough(left, total)}.")
    elif set(total.basis) != {NO_MODEL}:
        lines.append("No budget is set (budget.max_cost_usd).")
    if not total.priced:
        names = ", ".join(agent.agent for agent in forecast.agents if not agent.priced)
        lines.append(f"Without 'pricing' in the agents file the cost stays unknown: {names}.")
    if forecast.judge_asks:
        lines.append("The answer judge's requests are not part of this.")
    return lines


def spent_line(position: Position) -> str:
    """What was spent so far and what stands against it."""
    extras = [
        f"{usd_text(position.reserved)} USD reserved by runs in progress" * bool(position.reserved),
        f"{usd_text(position.doubtful)} USD at most for requests cut off by a crash" * bool(position.doubtful),
        f"{position.unpriced} request{'s' * (position.unpriced != 1)} at an unknown price" * bool(position.unpriced),
    ]
    return "; ".join(filter(None, [f"Spent so far: {usd_text(position.spent)} USD", *extras])) + "."


def _enough(left: Decimal, total: AgentForecast) -> str:
    if total.most.usd is not None and total.most.usd <= left:
        return "enough for all of them"
    if total.expected.usd is None:
        return "whether it is enough is unknown; runs without a price are refused while a budget is set"
    if total.expected.usd <= left:
        return "enough for what is expected"
    runs = int(total.runs * max(left, Decimal(0)) / total.expected.usd)
    return f"enough for about {runs} of {total.runs} runs; the others will be refused"


def usd_text(amount: Decimal) -> str:
    """USD with cents, or with more digits where cents would hide the amount."""
    return f"{amount:,.4f}" if 0 < abs(amount) < Decimal("0.1") else f"{amount:,.2f}"
