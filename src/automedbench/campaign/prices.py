"""Price lists, and what requests cost by them: the one place where usage becomes money.

Exact decimals in USD; None where a price is not known, never 0 for unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Annotated

from pydantic import Field

from automedbench.base.endpoint.usage import Billed
from automedbench.base.records import Model, Money, Tokens

Price = Annotated[str, Field(pattern=r"^\d+(\.\d+)?$")]
MILLION = Decimal(1_000_000)


class Prices(Model):
    """USD per million tokens, by kind; reasoning is part of the output."""

    input: Price
    cached_input: Price | None = Field(None, description="read from the provider's cache; null: as input")
    cache_write: Price | None = Field(None, description="written to the cache; null: unknown, as is what it cost")
    cache_write_1h: Price | None = Field(None, description="written to be kept longer, an hour or more; null: unknown")
    output: Price

    def parts(self, tokens: Tokens) -> dict[str, tuple[int, Price | None]]:
        """Tokens of a request by kind, each with its price; together they are prompt and completion."""
        cached = min(tokens.cached, tokens.prompt)
        written = min(tokens.cache_write, tokens.prompt - cached)
        longer = min(tokens.cache_write_1h, written)
        return {
            "input": (tokens.prompt - cached - written, self.input),
            "cached_input": (cached, self.cached_input or self.input),
            "cache_write": (written - longer, self.cache_write),
            "cache_write_1h": (longer, self.cache_write_1h),
            "output": (tokens.completion, self.output),
        }


class LongContext(Prices):
    """Prices of a whole request whose prompt, with what is read from and written to the cache, is longer."""

    above: int = Field(ge=1, description="tokens of the prompt; above it all tokens of the request cost these prices")


class TierPrices(Prices):
    """Prices of one service tier, complete in themselves."""

    long_context: LongContext | None = None

    def select_prices(self, prompt_tokens: int) -> Prices:
        """The prices of a request with a prompt of so many tokens."""
        longer = self.long_context
        return longer if longer is not None and prompt_tokens > longer.above else self


class Pricing(TierPrices):
    """Prices of the standard tier and of others, with the date and the place they were read."""

    service_tiers: dict[str, TierPrices] = Field(
        default_factory=dict,
        description="prices of requests that the provider says it served so: batch, flex, priority",
    )
    as_of: str
    source: str

    def cost(self, billed: Billed, length: int | None = None) -> Decimal | None:
        """USD of one request, None where a price is missing; ``length``: of a prompt, in place of its own."""
        prices = self._prices(billed, length)
        parts = prices.parts(billed.tokens).values() if prices else ()
        if prices is None or any(price is None for count, price in parts if count):
            return None
        return sum((count * Decimal(price or 0) for count, price in parts), Decimal(0)) / MILLION

    def missing(self, billed: Billed) -> str | None:
        """The key of a price that a request needs and this list does not have."""
        tier, prices = f"service_tiers.{billed.tier}." if billed.tier else "", self._prices(billed)
        if prices is None:
            return tier.rstrip(".")
        longer = "long_context." if isinstance(prices, LongContext) else ""
        parts = prices.parts(billed.tokens).items()
        return next((f"{tier}{longer}{kind}" for kind, (count, price) in parts if count and price is None), None)

    def dearest(self, prompt_tokens: int) -> tuple[Decimal, Decimal]:
        """The most that a token of the prompt and one of the reply cost, in any tier, up to this length of prompt."""
        lists = self._lists(prompt_tokens)
        prompt = [each.parts(Tokens()) for each in lists]
        known = [Decimal(price) for parts in prompt for kind, (_, price) in parts.items() if price and kind != "output"]
        return max(known) / MILLION, max(Decimal(each.output) for each in lists) / MILLION

    def _prices(self, billed: Billed, length: int | None = None) -> Prices | None:
        tier = self.service_tiers.get(billed.tier) if billed.tier else self
        return None if tier is None else tier.select_prices(billed.tokens.prompt if length is None else length)

    def _lists(self, prompt_tokens: int) -> list[Prices]:
        tiers: tuple[TierPrices, ...] = (self, *self.service_tiers.values())
        return [prices for tier in tiers for prices in (tier, tier.select_prices(prompt_tokens))]


def compute_cost(spent: Iterable[Billed], pricing: Pricing | None) -> Decimal | None:
    """USD of requests, each by its own length and tier; without any tokens 0, None where a price is not known."""
    costs = [pricing.cost(each) if pricing else None for each in spent if each.tokens.total]
    known = [cost for cost in costs if cost is not None]
    return sum(known, Decimal(0)) if len(known) == len(costs) else None


def format_money(cost: Decimal | None) -> str | None:
    """A cost as the records hold it: plain decimal text without exponent or trailing zeros."""
    if cost is None:
        return None
    text = format(cost, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def sum_costs(costs: Sequence[Money | None]) -> Money | None:
    """USD of all of them; unknown when one is."""
    return None if None in costs else format_money(sum((Decimal(cost or "0") for cost in costs), Decimal(0)))
