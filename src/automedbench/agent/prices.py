"""What tokens cost: a dated price list, exact decimals, and no number where the price is unknown."""

from __future__ import annotations

from decimal import Decimal

from automedbench.agent.chat import Usage
from automedbench.agents import Pricing

_PER = Decimal(1_000_000)


def cost_of(usage: Usage, pricing: Pricing | None) -> Decimal | None:
    """USD of ``usage``; None when the price is unknown. Cached prompt tokens without a price of their own cost full."""
    if pricing is None:
        return None
    cached_price = Decimal(pricing.cached_input or pricing.input)
    cached = min(usage.cached, usage.prompt)
    return (
        (usage.prompt - cached) * Decimal(pricing.input)
        + cached * cached_price
        + usage.completion * Decimal(pricing.output)
    ) / _PER


def as_money(cost: Decimal | None) -> str | None:
    """A cost as the records hold it: plain decimal text without exponent or trailing zeros."""
    if cost is None:
        return None
    text = format(cost, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
