"""Limits of a run and what it has used: time, turns, tokens, cost. One clock, injected."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

from automedbench.agent.budget.ledger import cost_of
from automedbench.base.cards import Limits
from automedbench.base.errors import ConfigError
from automedbench.base.records import Outcome, Tokens
from automedbench.campaign.agents import Pricing

NOTICE_AT = (0.95, 0.80, 0.50)

Clock = Callable[[], float]


@dataclass(frozen=True)
class Ending:
    """How a run ends: its outcome and one line for a person."""

    outcome: Outcome
    detail: str


@dataclass
class Budget:
    """What a run may use and has used. The clock runs from creation; provider errors are taken off the time."""

    limits: Limits
    pricing: Pricing | None = None
    clock: Clock = time.monotonic
    turns: int = 0
    usage: Tokens = field(default_factory=Tokens)
    api_s: float = 0.0
    retry_s: float = 0.0
    exec_s: float = 0.0
    last_prompt: int = 0
    _noticed: float = 0.0

    def __post_init__(self) -> None:
        if self.limits.max_cost_usd is not None and self.pricing is None:
            raise ConfigError(
                ["limits.max_cost_usd: is set, but the agent has no 'pricing': its cost cannot be limited"]
            )
        self._started = self.clock()

    @property
    def wall_s(self) -> float:
        """Seconds since the start, waiting for a broken provider included."""
        return max(0.0, self.clock() - self._started)

    @property
    def elapsed_s(self) -> float:
        """Seconds charged to the agent."""
        return max(0.0, self.wall_s - self.retry_s)

    @property
    def remaining_s(self) -> float | None:
        """Seconds left, never negative; None without a time limit."""
        limit = self.limits.time_limit_s
        return None if limit is None else max(0.0, limit - self.elapsed_s)

    @property
    def cost(self) -> Decimal | None:
        """USD so far; None when the price is unknown."""
        return cost_of(self.usage, self.pricing)

    def exec_timeout_s(self) -> float:
        """Cap of one code call: what is left of the run, or the limit per call if that is less."""
        caps = [cap for cap in (self.remaining_s, self.limits.exec_timeout_s) if cap is not None]
        return min(caps, default=float("inf"))

    def reply_timeout_s(self) -> float:
        """Cap of one request: what is left of the run."""
        remaining = self.remaining_s
        return float("inf") if remaining is None else remaining

    def spend(self, spent: Tokens, api_s: float = 0.0, retry_s: float = 0.0) -> None:
        """Book a request, answered or not."""
        self.usage += spent
        self.api_s += api_s
        self.retry_s += retry_s

    def exceeded(self) -> Ending | None:
        """The limit that forbids another request; the last prompt stands in for the next one's size."""
        limits = self.limits
        if (over := self.out_of_time()) is not None:
            return over
        if limits.max_turns is not None and self.turns >= limits.max_turns:
            return Ending("turn_limit", f"{self.turns} turns used of {limits.max_turns}")
        if limits.max_total_tokens is not None and self.usage.total + self.last_prompt > limits.max_total_tokens:
            used = f"{self.usage.total} tokens used of {limits.max_total_tokens}"
            return Ending("token_limit", f"{used}; the next request needs about {self.last_prompt}")
        return self._cost_exceeded()

    def out_of_time(self) -> Ending | None:
        """The end of the run when its time is used up."""
        limit = self.limits.time_limit_s
        if limit is None or self.elapsed_s < limit:
            return None
        return Ending("time_limit", f"{self.elapsed_s:.0f} s used of {limit:g} s")

    def out_of_disk(self, used_bytes: int) -> Ending | None:
        """The end of the run when its workspace is too large."""
        limit, used_gb = self.limits.disk_gb, used_bytes / 1e9
        if limit is None or used_gb <= limit:
            return None
        return Ending("out_of_disk", f"the workspace holds {used_gb:.3g} GB; the limit is {limit:g} GB")

    def notice(self) -> str | None:
        """``[BUDGET]`` text when 50, 80 or 95 % of the time went by since the last call of this method."""
        limit = self.limits.time_limit_s
        if limit is None:
            return None
        share = self.elapsed_s / limit
        passed = next((mark for mark in NOTICE_AT if share >= mark > self._noticed), None)
        if passed is None:
            return None
        self._noticed = passed
        left = max(0, int(limit - self.elapsed_s))
        return f"[BUDGET] {passed:.0%} of the time limit has passed: {left} s of {limit:g} s are left."

    def _cost_exceeded(self) -> Ending | None:
        limit, cost = self.limits.max_cost_usd, self.cost
        if limit is None or cost is None:
            return None
        next_cost = cost_of(Tokens(prompt=self.last_prompt), self.pricing) or Decimal(0)
        if cost + next_cost <= Decimal(str(limit)):
            return None
        return Ending("cost_limit", f"{cost:.4f} USD used of {limit:g} USD; the next request needs {next_cost:.4f}")
