"""Upper bounds of the cost of a run and of a request, and its expected cost, in USD by the agent's price list."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from automedbench.base.cards import Limits
from automedbench.base.endpoint.usage import Billed
from automedbench.base.errors import ConfigError
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

    No request is sent that may go beyond a limit (``Budget.admit``). Every token is counted at the dearest price that
    it may have: in any service tier, written to the cache, of a long prompt.
    """
    if not agent.paid:
        return CostBound(Decimal(0), "no model")
    pricing, window, reply = agent.pricing, agent.context_tokens, agent.reply_tokens
    if pricing is None:
        return CostBound(None, "price unknown")
    dear_in, dear_out = pricing.dearest(window)
    bounds = []
    if limits.max_cost_usd is not None:
        bounds.append(CostBound(Decimal(str(limits.max_cost_usd)), "max_cost_usd"))
    if limits.max_total_tokens is not None:
        bounds.append(CostBound(limits.max_total_tokens * max(dear_in, dear_out), "max_total_tokens"))
    if limits.max_turns is not None:
        bounds.append(CostBound(limits.max_turns * (window * dear_in + reply * dear_out), "max_turns"))
    return min(bounds, key=lambda bound: bound.usd or Decimal(0), default=CostBound(None, "no limit"))


@dataclass(frozen=True)
class RequestBound:
    """The most that a request costs and uses; ``usd`` is None where its price is not known."""

    usd: Decimal | None = Decimal(0)
    tokens: int = 0

    def __add__(self, other: RequestBound) -> RequestBound:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return RequestBound(usd, self.tokens + other.tokens)


NOTHING = RequestBound()


def bound_request(agent: Agent, prompt_tokens: int, reply_tokens: int) -> RequestBound:
    """The most that a request with a prompt and a reply of so many tokens at most costs and uses."""
    if agent.pricing is None:
        return RequestBound(None, prompt_tokens + reply_tokens)
    dear_in, dear_out = agent.pricing.dearest(prompt_tokens)
    return RequestBound(prompt_tokens * dear_in + reply_tokens * dear_out, prompt_tokens + reply_tokens)


def require_room(agent: Agent, limits: Limits, name: str) -> None:
    """Raise ConfigError when a limit leaves no room for one reply of full length."""
    reply = bound_request(agent, 0, agent.reply_tokens)
    wanted = {
        "max_cost_usd": (limits.max_cost_usd, reply.usd),
        "max_total_tokens": (limits.max_total_tokens, reply.tokens),
    }
    problems = [
        f"limits.{key}: {limit:g} is less than the {most:f} of one reply of {agent.reply_tokens} tokens: raise it, or "
        f"set agents.{name}.max_tokens"
        for key, (limit, most) in wanted.items()
        if limit is not None and most is not None and Decimal(str(limit)) < most
    ]
    if problems:
        raise ConfigError(problems)


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
