"""Limits of a run and what it has used: time, turns, tokens, cost. One clock, injected."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from automedbench.agent.budget.bounds import NOTHING, RequestBound
from automedbench.agent.models.model import CostLimit, Reply, TokenLimit
from automedbench.base.cards import Limits
from automedbench.base.endpoint.usage import Billed, tokens_in
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Outcome, Tokens
from automedbench.campaign.prices import Pricing, compute_cost

NOTICE_AT = (0.95, 0.80, 0.50)


@dataclass(frozen=True)
class Ending:
    """End of a run: its outcome and one line for a person."""

    outcome: Outcome
    detail: str


@dataclass
class Budget:
    """Limits of a run and its usage. The clock runs from creation; provider errors are taken off the time.

    ``cost`` is USD so far, of every request by its own price; None once one of them has no known price. ``must_know``:
    the campaign's budget needs it. ``served``: names of the model in its replies, in their order.
    """

    limits: Limits
    pricing: Pricing | None = None
    clock: Callable[[], float] = time.monotonic
    must_know: bool = False
    turns: int = 0
    usage: Tokens = field(default_factory=Tokens)
    api_s: float = 0.0
    retry_s: float = 0.0
    exec_s: float = 0.0
    doubtful: RequestBound = NOTHING
    """The most of requests that broke off without an account."""
    cost: Decimal | None = None
    served: dict[str, None] = field(default_factory=dict)
    _noticed: float = 0.0

    def __post_init__(self) -> None:
        self._started = self.clock()
        self.cost = None if self.pricing is None else Decimal(0)

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

    def stand_still(self, seconds: float) -> None:
        """Leave out seconds that were not the run's."""
        self._started += seconds

    def exec_timeout_s(self) -> float:
        """Cap of one code call: what is left of the run, or the limit per call if that is less."""
        caps = [cap for cap in (self.remaining_s, self.limits.exec_timeout_s) if cap is not None]
        return min(caps, default=float("inf"))

    def reply_timeout_s(self) -> float:
        return float("inf") if self.remaining_s is None else self.remaining_s

    def book(self, reply: Reply) -> None:
        """Book a reply and the failed attempts before it; raises as ``spend`` does."""
        if reply.model:
            self.served[reply.model] = None
        self.spend(reply.spent, reply.api_s, reply.retry_s)

    def spend(self, spent: Sequence[Billed], api_s: float = 0.0, retry_s: float = 0.0) -> None:
        """Book billed requests, answered or not.

        Raises InfrastructureError for one at an unknown price where no other limit than one of cost could end the run.
        """
        self.usage += tokens_in(spent)
        self.api_s += api_s
        self.retry_s += retry_s
        if self.pricing is None:
            return
        cost = compute_cost(spent, self.pricing)
        self.cost = None if cost is None or self.cost is None else self.cost + cost
        only_cost_is_limited = self.limits.max_cost_usd is not None and self.limits.max_total_tokens is None
        if cost is None and (self.must_know or only_cost_is_limited):
            missing = next(name for each in spent if (name := self.pricing.missing(each)))
            raise InfrastructureError(
                f"What a request cost is not known: the agent's pricing has no '{missing}', so max_cost_usd cannot be "
                "kept.\nAdd that price, or for the limit of the run max_total_tokens; then run the same command again."
            )

    def check_limits(self) -> Ending | None:
        """The limit of time or turns that forbids another request."""
        limit = self.limits.max_turns
        if (over := self.check_time()) is not None or limit is None or self.turns < limit:
            return over
        return Ending("turn_limit", f"{self.turns} turns used of {limit}")

    def admit(self, request: RequestBound) -> None:
        """Raise CostLimit or TokenLimit for a request that may go beyond what is left."""
        limits, known = self.limits, self.cost
        tokens = self.usage.total + self.doubtful.tokens
        if limits.max_total_tokens is not None and tokens + request.tokens > limits.max_total_tokens:
            used = f"{tokens} tokens used of {limits.max_total_tokens}"
            raise TokenLimit(f"{used}; the next request may need {request.tokens}")
        if limits.max_cost_usd is None or known is None or request.usd is None:
            return
        cost = known + (self.doubtful.usd or Decimal(0))
        if cost + request.usd > Decimal(str(limits.max_cost_usd)):
            used = f"{cost:.4f} USD used of {limits.max_cost_usd:g} USD"
            raise CostLimit(f"{used}; the next request may cost {request.usd:.4f}")

    def check_time(self) -> Ending | None:
        limit = self.limits.time_limit_s
        if limit is None or self.elapsed_s < limit:
            return None
        return Ending("time_limit", f"{self.elapsed_s:.0f} s used of {limit:g} s")

    def check_disk(self, used_bytes: int) -> Ending | None:
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
