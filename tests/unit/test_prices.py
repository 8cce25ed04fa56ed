"""Costs are exact decimals, and unknown prices give no number."""

from __future__ import annotations

from decimal import Decimal

import pytest

from automedbench.agent.budget.ledger import cost_of, most_of_request, most_of_run
from automedbench.base.cards import Limits
from automedbench.base.records import Tokens
from automedbench.campaign.agents import Agent, Pricing, as_money
from automedbench.campaign.config import BudgetConfig

PRICES = Pricing(input="2.50", cached_input="0.25", output="15.00", as_of="2026-05-28", source="test")
WITHOUT_CACHE = PRICES.model_copy(update={"cached_input": None})

# By hand: tokens × USD per million.
COSTS = {
    "no price": (Tokens(prompt=5), None, None),
    "nothing used": (Tokens(), PRICES, "0"),
    "prompt and reply": (Tokens(prompt=1_000_000, completion=100_000), PRICES, "4"),
    "cached part is cheaper": (Tokens(prompt=1_000_000, cached=400_000), PRICES, "1.6"),
    "no cached price": (Tokens(prompt=1_000_000, cached=400_000), WITHOUT_CACHE, "2.5"),
    "more cached than sent": (Tokens(prompt=100, cached=1000), PRICES, "0.000025"),
    "a single token": (Tokens(prompt=1), PRICES, "0.0000025"),
    "reasoning is part of the reply": (Tokens(completion=10, reasoning=8), PRICES, "0.00015"),
}


@pytest.mark.parametrize(("usage", "pricing", "expected"), COSTS.values(), ids=COSTS.keys())
def test_cost(usage: Tokens, pricing: Pricing | None, expected: str | None) -> None:
    assert as_money(cost_of(usage, pricing)) == expected


def test_money_has_no_exponent() -> None:
    assert as_money(Decimal("1E-9")) == "0.000000001"
    assert as_money(Decimal("100")) == "100"


def paid_agent(pricing: Pricing | None = PRICES) -> Agent:
    return Agent(provider="openai", model="m", base_url="http://127.0.0.1/v1", api_key_env="KEY", pricing=pricing)


# By hand, per million tokens 2.50 USD in and 15 USD out: a last reply of 8192 tokens on a prompt that is longer by
# twice as much costs 0.16384 USD; 100 000 tokens at the higher price 1.5 USD; 33 turns of 15 000 + 1 000 tokens
# 1.2375 + 0.495 USD.
BOUNDS = {
    "cost limit": (paid_agent(), {"max_cost_usd": 2}, "2.16384", "max_cost_usd", True),
    "token limit": (paid_agent(), {"max_total_tokens": 100_000}, "1.66384", "max_total_tokens", True),
    "the lower of both": (
        paid_agent(),
        {"max_cost_usd": 2, "max_total_tokens": 100_000},
        "1.66384",
        "max_total_tokens",
        True,
    ),
    "no limit": (paid_agent(), {}, "1.7325", "expected", False),
    "no price": (paid_agent(None), {"max_total_tokens": 5}, None, "price unknown", False),
    "no model": (Agent(provider="scripted", script="x.yaml"), {}, "0", "no model", True),
}


@pytest.mark.parametrize(("agent", "limits", "usd", "basis", "is_limit"), BOUNDS.values(), ids=BOUNDS.keys())
def test_most_of_a_run(agent: Agent, limits: dict[str, float], usd: str | None, basis: str, is_limit: bool) -> None:
    bound = most_of_run(agent, Limits.model_validate(limits), BudgetConfig())
    assert (bound.usd, bound.basis, bound.is_limit) == (None if usd is None else Decimal(usd), basis, is_limit)


def test_most_of_a_request() -> None:
    """By hand: 1000 × 2.5 + 8192 × 15 millionths."""
    assert most_of_request(paid_agent(), 1000) == Decimal("0.12538")
    assert most_of_request(paid_agent(None), 1000) is None
