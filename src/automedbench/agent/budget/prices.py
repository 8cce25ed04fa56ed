"""Prices of tokens: a dated list, exact decimals, and no number where the price is unknown."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from automedbench.agent.models.chat import Usage
from automedbench.base.cards import Limits
from automedbench.campaign.agents import Agent, Pricing, as_money
from automedbench.campaign.config import BudgetConfig

__all__ = ["CostBound", "as_money", "cost_of", "expected_usage", "most_of_request", "most_of_run"]

_PER = Decimal(1_000_000)


def cost_of(usage: Usage, pricing: Pricing | None) -> Decimal | None:
    """USD of ``usage``; None when the price is unknown. Cached prompt tokens without a price of their own cost full."""
    return None if pricing is None else pricing.cost(usage.prompt, usage.cached, usage.completion)


@dataclass(frozen=True)
class CostBound:
    """USD that a run may cost, and where the number comes from; ``usd`` is None where the price is unknown."""

    usd: Decimal | None
    basis: Literal["no model", "price unknown", "max_cost_usd", "max_total_tokens", "expected"]

    @property
    def is_limit(self) -> bool:
        """A limit of the run keeps it, so that the run cannot cost more."""
        return self.basis in ("no model", "max_cost_usd", "max_total_tokens")


def expected_usage(budget: BudgetConfig) -> Usage:
    """Tokens of a typical run as the configuration expects them."""
    return Usage(
        prompt=budget.expected_turns * budget.expected_prompt_tokens,
        completion=budget.expected_turns * budget.expected_completion_tokens,
    )


def most_of_run(agent: Agent, limits: Limits, budget: BudgetConfig) -> CostBound:
    """The most that a run of ``agent`` can cost under its limits, or what it is expected to cost without such limits.

    The driver looks at cost and tokens before each request, so the last reply may go beyond a limit: one reply of full
    length, and a prompt longer by the reply before it and by what its calls printed, is part of the bound. A token
    limit says nothing about the kind of token, so that all are counted at the higher price.
    """
    if not agent.paid:
        return CostBound(Decimal(0), "no model")
    pricing = agent.pricing
    if pricing is None:
        return CostBound(None, "price unknown")
    last = most_of_request(agent, min(agent.context_tokens, 2 * agent.max_tokens)) or Decimal(0)
    bounds: list[CostBound] = []
    if limits.max_cost_usd is not None:
        bounds.append(CostBound(Decimal(str(limits.max_cost_usd)) + last, "max_cost_usd"))
    if limits.max_total_tokens is not None:
        price = max(Decimal(pricing.input), Decimal(pricing.output))
        bounds.append(CostBound(limits.max_total_tokens * price / _PER + last, "max_total_tokens"))
    if not bounds:
        return CostBound(cost_of(expected_usage(budget), pricing), "expected")
    return min(bounds, key=lambda bound: bound.usd or Decimal(0))


def most_of_request(agent: Agent, prompt_tokens: int) -> Decimal | None:
    """The most that one request costs: its prompt without any cached part and a reply of full length."""
    return cost_of(Usage(prompt=prompt_tokens, completion=agent.max_tokens), agent.pricing)
