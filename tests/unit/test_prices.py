"""Costs are exact decimals, and unknown prices give no number."""

from __future__ import annotations

from decimal import Decimal

import pytest

from automedbench.agent.chat import Usage
from automedbench.agent.prices import as_money, cost_of
from automedbench.agents import Pricing

PRICES = Pricing(input="2.50", cached_input="0.25", output="15.00", as_of="2026-05-28", source="test")
WITHOUT_CACHE = PRICES.model_copy(update={"cached_input": None})

# By hand: tokens × USD per million.
COSTS = {
    "no price": (Usage(prompt=5), None, None),
    "nothing used": (Usage(), PRICES, "0"),
    "prompt and reply": (Usage(prompt=1_000_000, completion=100_000), PRICES, "4"),
    "cached part is cheaper": (Usage(prompt=1_000_000, cached=400_000), PRICES, "1.6"),
    "no cached price": (Usage(prompt=1_000_000, cached=400_000), WITHOUT_CACHE, "2.5"),
    "more cached than sent": (Usage(prompt=100, cached=1000), PRICES, "0.000025"),
    "a single token": (Usage(prompt=1), PRICES, "0.0000025"),
    "reasoning is part of the reply": (Usage(completion=10, reasoning=8), PRICES, "0.00015"),
}


@pytest.mark.parametrize(("usage", "pricing", "expected"), COSTS.values(), ids=COSTS.keys())
def test_cost(usage: Usage, pricing: Pricing | None, expected: str | None) -> None:
    assert as_money(cost_of(usage, pricing)) == expected


def test_money_has_no_exponent() -> None:
    assert as_money(Decimal("1E-9")) == "0.000000001"
    assert as_money(Decimal("100")) == "100"
