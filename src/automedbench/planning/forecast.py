"""Forecast of the runs still to do, before anything is spent: hours, tokens, USD, and what the budget leaves.

A run is expected to use what this agent's finished runs of the same track and tier used on average, else what its
other finished runs used, else what ``budget.expected_*`` says. The most is what the limits allow. A price or a time
that is not known stays unknown: it is never 0.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

from automedbench.agent.budget.bounds import bound_run_cost, estimate_cost, estimate_usage
from automedbench.agent.budget.ledger import CampaignLedger, Position
from automedbench.base.cards import Limits
from automedbench.base.files import known_record
from automedbench.base.plaintable import counted, table
from automedbench.base.records import RunId, RunRecord, Tokens, Totals
from automedbench.campaign.agents import Agent
from automedbench.campaign.config import CampaignConfig
from automedbench.campaign.load import Campaign, build_campaign_record
from automedbench.campaign.treatments import find_fault

SHARES = range(1, 7)
"""Runs on the same GPUs that a forecast compares."""

SAMPLE, MAX_READ = 20, 200
"""Finished runs that a mean is taken over, and the most files that are read to find them."""

FROM_LIKE, FROM_AGENT, FROM_CONFIG, NO_MODEL = "runs like these", "its other runs", "the configuration", "no model"


@dataclass(frozen=True)
class AgentForecast:
    """The runs of one agent; ``basis`` counts them by where the expectation comes from.

    ``amounts``: hours, GPU hours, tokens and USD, each as expected and at most. None: not known, or not limited.
    """

    agent: str
    runs: int
    amounts: tuple[Any, ...]
    priced: bool
    basis: Counter[str]


def make_forecast(
    campaign: Campaign, planned: Sequence[RunId], finished: FinishedRuns | None = None
) -> list[AgentForecast]:
    """Forecast the ``planned`` runs of the campaign, agent by agent."""
    finished = finished or FinishedRuns(campaign, planned)
    order = {name: place for place, name in enumerate(campaign.agents)}
    counts = Counter((run.agent, run.task, run.tier) for run in sorted(planned, key=lambda run: order[run.agent]))
    parts: dict[str, list[AgentForecast]] = {}
    for (name, task, tier), count in counts.items():
        parts.setdefault(name, []).append(_part(campaign, finished, name, task, tier, count))
    return [_total(name, own) for name, own in parts.items()]


def total_forecast(campaign: Campaign, planned: Sequence[RunId]) -> AgentForecast:
    """The forecast of all ``planned`` runs together."""
    return _total("all", make_forecast(campaign, planned))


def _total(name: str, parts: Sequence[AgentForecast]) -> AgentForecast:
    """The sum; what is not known of one part is not known of all."""
    return AgentForecast(
        name,
        sum(part.runs for part in parts),
        tuple(_times(1, *column) for column in zip(*(part.amounts for part in parts), strict=True)),
        all(part.priced for part in parts),
        sum((part.basis for part in parts), Counter()),
    )


def _times(count: int, *amounts: Any) -> Any:
    return None if None in amounts else count * sum(amounts[1:], amounts[0])


def planned_runs(steps: Iterable[Any]) -> list[RunId]:
    """Runs of planned steps, given by their wildcards."""
    return [RunId(agent=step.agent, task=step.task, tier=step.tier, repeat=int(step.repeat)) for step in steps]


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


class FinishedRuns:
    """Usage of finished runs that are not planned again; few of their files are read, on demand."""

    def __init__(self, campaign: Campaign, planned: Iterable[RunId]) -> None:
        self._folder = Path(campaign.config.results) / "runs"
        again = {run.path for run in planned}
        self._groups: dict[tuple[str, str, str], list[str]] = {}
        for run in campaign.runs:
            if run.path not in again:
                key = (run.agent, campaign.cards[run.task].track, run.tier)
                self._groups.setdefault(key, []).append(run.path)

    @functools.cache  # noqa: B019 - one object per forecast
    def like(self, agent: str, track: str, tier: str) -> tuple[RunRecord, ...]:
        """Finished runs of the agent on this track and tier."""
        paths = self._groups.get((agent, track, tier), [])[:MAX_READ]
        records = (known_record(self._folder / path / "run.json", RunRecord) for path in paths)
        return tuple(islice(filter(None, records), SAMPLE))

    @functools.cache  # noqa: B019
    def of(self, agent: str) -> tuple[RunRecord, ...]:
        """Finished runs of the agent, of any kind."""
        groups = (self.like(*key) for key in self._groups if key[0] == agent)
        return tuple(run for group in groups for run in group)


def _part(campaign: Campaign, finished: FinishedRuns, name: str, task: str, tier: str, count: int) -> AgentForecast:
    agent = campaign.agents[name]
    limits = build_campaign_record(campaign).limits(campaign.cards[task], agent)
    usage, turns, hours, held, basis = _expect(campaign, finished, name, task, tier)
    # Runs that are finished may have had other limits: of a run with fewer turns, as much per turn.
    share = min(1.0, (limits.max_turns or turns) / turns) if turns else 1.0
    hours, held = (None if each is None else share * each for each in (hours, held))
    cost = estimate_cost(agent, usage, turns)
    cost = None if cost is None else cost * Decimal(share)
    most_hours = None if limits.time_limit_s is None else limits.time_limit_s / 3600
    pairs: list[tuple[Any, Any]] = [
        (hours, most_hours),
        (held, None if most_hours is None else most_hours * campaign.config.sandbox.gpu),
        (round(share * usage.total), _most_tokens(agent, limits)),
        (cost, bound_run_cost(agent, limits).usd),
    ]
    bounded = (each for expected, most in pairs for each in (_at_most(expected, most), most))
    priced = not agent.paid or agent.pricing is not None
    return AgentForecast(name, count, tuple(_times(count, each) for each in bounded), priced, Counter({basis: count}))


def _most_tokens(agent: Agent, limits: Limits) -> int | None:
    """The most tokens of one run, by its limits of tokens and of turns; None without either."""
    if not agent.paid:
        return 0
    each = agent.context_tokens + agent.reply_tokens
    of_turns = None if limits.max_turns is None else limits.max_turns * each
    return min((most for most in (limits.max_total_tokens, of_turns) if most is not None), default=None)


def _expect(
    campaign: Campaign, finished: FinishedRuns, name: str, task: str, tier: str
) -> tuple[Tokens, float, float | None, float | None, str]:
    """Tokens, turns, hours and GPU hours of one run, and where that comes from; no hours without a finished run."""
    agent, card, box = campaign.agents[name], campaign.cards[task], campaign.config.sandbox
    paid, track = agent.paid, card.track
    for runs, basis in ((finished.like(name, track, tier), FROM_LIKE), (finished.of(name), FROM_AGENT)):
        if runs:
            usage = _mean_usage([run.totals for run in runs]) if paid else Tokens()
            turns = sum(run.totals.turns for run in runs) / len(runs)
            hours = sum(run.totals.wall_s for run in runs) / len(runs) / 3600
            alone_s = sum(map(_alone_s, runs))
            computing = min(1.0, sum(run.totals.exec_s for run in runs) / alone_s) if alone_s else 0.0
            alone_s *= estimate_slow_down(computing, box.gpu_share) / box.gpu_share
            held = box.gpu * alone_s / len(runs) / 3600
            return usage, turns, hours, held, basis if paid else NO_MODEL
    if not paid:
        return Tokens(), 0, None, None, NO_MODEL
    usage, turns = estimate_usage(build_campaign_record(campaign).limits(card, agent), campaign.config.budget)
    return usage, turns, None, None, FROM_CONFIG


def _mean_usage(totals: Sequence[Totals]) -> Tokens:
    total = sum((each.tokens for each in totals), Tokens())
    kinds = ("prompt", "cached", "cache_write", "cache_write_1h", "completion")
    return Tokens(**{name: round(getattr(total, name) / len(totals)) for name in kinds})


def _at_most(value: Any, most: Any) -> Any:
    return value if value is None or most is None else min(value, most)


def _alone_s(run: RunRecord) -> float:
    """Wall-clock seconds for which a finished run held its node, without those in which it waited for shared GPUs."""
    return run.totals.wall_s if run.used.held_s is None else run.used.held_s - (run.used.gpu_waited_s or 0.0)


def estimate_slow_down(computing: float, share: int) -> float:
    """Duration of a run on GPUs that ``share`` runs share ÷ its duration alone; ``computing``: share of time in calls.

    Mean value analysis of a closed queue with one server (Reiser and Lavenberg 1980), with exponential times.
    """
    queue, response = 0.0, computing
    for runs in range(1, share + 1):
        response = computing * (1 + queue)
        queue = runs * response / (1 - computing + response)
    return 1 - computing + response


def is_compared(campaign: Campaign, agent: str) -> bool:
    """Check whether the agent has a model, and nothing goes wrong in its runs on purpose."""
    return campaign.agents[agent].paid and not find_fault(agent)


def compares_models(campaign: Campaign) -> bool:
    """Check whether the campaign has two such agents: only then is a difference a question."""
    return sum(is_compared(campaign, name) for name in campaign.config.matrix.agents) > 1


# --- as text --------------------------------------------------------------------------------------------------


def forecast_lines(campaign: Campaign, planned: Sequence[RunId]) -> list[str]:
    """The forecast of ``planned`` runs for a person; no lines when nothing is left to run."""
    agents = make_forecast(campaign, planned)
    if not agents:
        return []
    total = _total("all", agents)
    several = [total] if len(agents) > 1 else []
    head = ("agent", "runs", "hours", "at most", "GPU-hours", "at most", "tokens", "at most", "USD", "at most")
    rows = [(*head, "expected from"), *map(_row, (*agents, *several))]
    if not campaign.config.sandbox.gpu:
        rows = [row[:4] + row[6:] for row in rows]
    unpriced = [agent.agent for agent in agents if not agent.priced]
    return [
        f"Forecast of {counted(total.runs, 'run')} still to do; nothing is spent by a forecast:",
        *table(rows, right=range(1, len(rows[0]) - 1)),
        *_share_lines(campaign, planned),
        *_money_lines(campaign.config, total),
        *([f"Without 'pricing' in the agents file the cost stays unknown: {', '.join(unpriced)}."] if unpriced else []),
        *(["The answer judge's requests are not part of this."] if campaign.config.answer_judge else []),
    ]


def forecast_shares(campaign: Campaign, planned: Sequence[RunId]) -> dict[int, float]:
    """GPU hours expected if so many runs shared the GPUs, by ``gpu_share``; empty where that is not known."""
    box, finished = campaign.config.sandbox, FinishedRuns(campaign, planned)
    hours: dict[int, float] = {}
    for share in SHARES if box.gpu else ():
        config = campaign.config.model_copy(update={"sandbox": box.model_copy(update={"gpu_share": share})})
        expected = _total("all", make_forecast(replace(campaign, config=config), planned, finished)).amounts[2]
        hours |= {} if expected is None else {share: expected}
    return hours


def _share_lines(campaign: Campaign, planned: Sequence[RunId]) -> list[str]:
    """GPU hours for each ``gpu_share``, and by how much runs take longer then."""
    hours = forecast_shares(campaign, planned)
    if not hours.get(1):
        return []
    shown = [f"{share}: {each:.1f} ({share * each / hours[1] - 1:+.0%} time)" for share, each in hours.items()]
    return [f"GPU-hours by sandbox.gpu_share: {', '.join(shown)}."]


def as_json(campaign: Campaign, planned: Sequence[RunId]) -> dict[str, Any]:
    """The forecast for a program: per agent and in all; money as decimal strings, null: not known, or not limited."""
    agents = make_forecast(campaign, planned)
    totals = CampaignLedger(Path(campaign.config.results) / "ledger").totals()
    return {
        "runs": len(planned),
        "agents": {agent.agent: _as_json(agent) for agent in agents},
        "all": _as_json(_total("all", agents)) if agents else None,
        "gpu_hours_by_share": forecast_shares(campaign, planned),
        "spent_usd": str(totals.all.spent),
        "reserved_usd": str(totals.all.reserved),
        "max_cost_usd": campaign.config.budget.max_cost_usd,
        "problems": totals.problems,
    }


def _as_json(agent: AgentForecast) -> dict[str, Any]:
    names = [f"{name}{most}" for name in ("hours", "gpu_hours", "tokens", "usd") for most in ("", "_at_most")]
    amounts = dict(zip(names, agent.amounts, strict=True))
    return {"runs": agent.runs, **amounts, "priced": agent.priced, "expected_from": dict(agent.basis)}


def _row(agent: AgentForecast) -> tuple[str, ...]:
    forms = (*["{:.1f}".format] * 4, *["{:,}".format] * 2, *[usd_text] * 2)
    unknown = (*["unknown", "no limit"] * 3, "unknown", "no limit" if agent.priced else "unknown")
    shown = zip(agent.amounts, forms, unknown, strict=True)
    one = len(agent.basis) == 1
    return (
        agent.agent,
        str(agent.runs),
        *(word if amount is None else form(amount) for amount, form, word in shown),
        ", ".join(name if one else f"{n} {name}" for name, n in agent.basis.items()),
    )


def _money_lines(config: CampaignConfig, total: AgentForecast) -> list[str]:
    totals = CampaignLedger(Path(config.results) / "ledger").totals()
    lines = [spent_line(totals.all)] if totals.all != Position() else []
    lines += [f"The ledger is damaged: {problem}." for problem in totals.problems]
    if config.budget.max_cost_usd is not None:
        lines.append(budget_line(config, total))
    elif set(total.basis) != {NO_MODEL}:
        lines.append("No budget is set (budget.max_cost_usd).")
    return lines


def budget_line(config: CampaignConfig, total: AgentForecast) -> str:
    """Line of the budget, of what is left of it, and whether that is enough for the runs of a forecast."""
    budget = Decimal(config.budget.max_cost_usd or 0)
    left = budget - CampaignLedger(Path(config.results) / "ledger").totals().all.committed
    return f"Budget: {usd_text(budget)} USD, of which {usd_text(left)} USD are left: {_enough(left, total)}."


def spent_line(position: Position) -> str:
    """Line of the money spent so far, reserved, and unpriced."""
    extras = [
        f"{usd_text(position.reserved)} USD reserved by runs in progress" * bool(position.reserved),
        f"{usd_text(position.doubtful)} USD at most for requests cut off by a crash" * bool(position.doubtful),
        f"{counted(position.unpriced, 'request')} at an unknown price" * bool(position.unpriced),
    ]
    return "; ".join(filter(None, [f"Spent so far: {usd_text(position.spent)} USD", *extras])) + "."


def _enough(left: Decimal, total: AgentForecast) -> str:
    *_, expected, most = total.amounts
    if most is not None and most <= left:
        return "enough for all of them"
    if expected is None:
        return "whether it is enough is unknown; runs without a price are refused while a budget is set"
    if expected <= left:
        return "enough for what is expected"
    runs = int(total.runs * max(left, Decimal(0)) / Decimal(expected))
    return f"enough for about {runs} of {total.runs} runs; the others will be refused"


def usd_text(amount: Decimal) -> str:
    """USD with cents, or with more digits where cents would hide the amount."""
    return f"{amount:,.4f}" if 0 < abs(amount) < Decimal("0.1") else f"{amount:,.2f}"
