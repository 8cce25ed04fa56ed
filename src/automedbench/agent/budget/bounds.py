"""Upper bounds of the cost of a run and of a request, and its expected cost, in USD by the agent's price list."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from automedbench.base.cards import Limits
from automedbench.base.endpoint.usage import Billed
from automedbench.base.records import Tokens
from automedbench.campaign.agents import Agent
from automedbench.campaign.config import BudgetConfig


@dataclass(frozen=True)
class CostBound:
    """USD that a run costs at most, and by which limit; ``usd`` is None without a limit or a price."""

    usd: Decimal | None
    basis: Literal["no model", "price unknown", "no limit", "max_cost_usd", "max_total_tokens", "max_turns"]


def bound_run_cost(agent: Agent, limits: Limits) -> CostBound:
    """The most that a run of ``agent`` can cost under its limits, by the lowest of the bounds that they give.

    Every token is counted at the dearest price that it may have: in any service tier, written to the cache, of a long
    prompt. The driver looks at cost and tokens before each request and takes the prompt before it for the next one, at
    the price of plain input. So the last request may go beyond a limit: by a reply of full length, by what makes its
    prompt longer (the reply before it and what its calls printed; of a program's, all), and by a dearer price.
    """
    if not agent.paid:
        return CostBound(Decimal(0), "no model")
    pricing, window, reply = agent.pricing, agent.context_tokens, agent.reply_tokens
    if pricing is None:
        return CostBound(None, "price unknown")
    dear_in, dear_out = pricing.dearest(window)
    grown = window if agent.provider == "command" else min(window, 2 * reply)
    bounds = []
    if limits.max_cost_usd is not None:
        last = window * dear_in - (window - grown) * pricing.cheapest_input(window) + reply * dear_out
        bounds.append(CostBound(Decimal(str(limits.max_cost_usd)) + last, "max_cost_usd"))
    if limits.max_total_tokens is not None:
        most = limits.max_total_tokens * max(dear_in, dear_out) + grown * dear_in + reply * dear_out
        bounds.append(CostBound(most, "max_total_tokens"))
    if limits.max_turns is not None:
        bounds.append(CostBound(limits.max_turns * (window * dear_in + reply * dear_out), "max_turns"))
    return min(bounds, key=lambda bound: bound.usd or Decimal(0), default=CostBound(None, "no limit"))


def bound_request_cost(agent: Agent, prompt_tokens: int, reply_tokens: int | None = None) -> Decimal | None:
    """The most that one request costs: a prompt estimated at so many tokens and a reply of full length.

    ``reply_tokens``: what the request asks for, where that is known. The estimate of the prompt may be too low by half
    when it decides whether long-context prices can apply.
    """
    if agent.pricing is None:
        return None
    dear_in, dear_out = agent.pricing.dearest(2 * prompt_tokens)
    return prompt_tokens * dear_in + (reply_tokens or agent.reply_tokens) * dear_out


def estimate_usage(limits: Limits, budget: BudgetConfig) -> tuple[Tokens, int]:
    """Tokens and turns of a typical run as the configuration expects them, within the limit of turns."""
    turns = min(budget.expected_turns, limits.max_turns or budget.expected_turns)
    prompt, completion = turns * budget.expected_prompt_tokens, turns * budget.expected_completion_tokens
    return Tokens(prompt=prompt, completion=completion), turns


def estimate_cost(agent: Agent, usage: Tokens, turns: float) -> Decimal | None:
    """USD of so many tokens in so many turns, as if all prompts were of mean length; in the tier that is asked for."""
    if not agent.paid:
        return Decimal(0)
    if agent.pricing is None:
        return None
    tier = str(agent.extra_body.get("service_tier"))
    billed = Billed(usage, tier if tier in agent.pricing.service_tiers else "")
    return agent.pricing.cost(billed, round(usage.prompt / turns) if turns else 0)


def reserve_for_run(agent: Agent, limits: Limits, budget: BudgetConfig) -> Decimal | None:
    """USD set aside for a run before it starts: what is expected, at most what its limits allow; it grows when needed.

    Limits are there for runs that go wrong: money set aside for all of them would keep others from starting.
    """
    most, expected = bound_run_cost(agent, limits).usd, estimate_cost(agent, *estimate_usage(limits, budget))
    return expected if most is None or expected is None else min(most, expected)
