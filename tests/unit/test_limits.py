"""Limits of a run: what ends it, when the agent is told, and what is not charged."""

from __future__ import annotations

import contextlib
from decimal import Decimal

import pytest
from harness_fakes import Clock

from automedbench.agent.budget.bounds import RequestBound
from automedbench.agent.budget.limits import Budget
from automedbench.agent.models.model import CostLimit, TokenLimit
from automedbench.base.cards import Limits
from automedbench.base.endpoint.usage import Billed
from automedbench.base.records import Tokens
from automedbench.campaign.prices import Pricing

PRICES = Pricing(input="1", output="10", as_of="2026-01-01", source="test")
NONE = Limits(time_limit_s=None, max_turns=None, disk_gb=None)


def budget(limits: Limits, pricing: Pricing | None = None) -> tuple[Budget, Clock]:
    clock = Clock()
    return Budget(limits, pricing, clock), clock


def test_without_limits_nothing_ends() -> None:
    used, clock = budget(NONE)
    clock.now += 1e9
    used.turns = 10**6
    used.spend([Billed(Tokens(prompt=10**12))])
    assert used.check_limits() is None
    assert used.notice() is None
    assert used.remaining_s is None
    assert used.exec_timeout_s() == float("inf")


@pytest.mark.parametrize(("seconds", "ends"), [(0, False), (99.9, False), (100, True), (500, True)])
def test_time(seconds: float, ends: bool) -> None:
    used, clock = budget(Limits(time_limit_s=100))
    clock.now += seconds
    ending = used.check_limits()
    assert (ending is not None and ending.outcome == "time_limit") == ends


def test_provider_errors_are_not_charged() -> None:
    used, clock = budget(Limits(time_limit_s=100))
    clock.now += 150
    used.spend([Billed(Tokens())], retry_s=80)
    assert used.check_limits() is None
    assert used.elapsed_s == 70
    assert used.remaining_s == 30
    assert used.wall_s == 150


@pytest.mark.parametrize(("turns", "ends"), [(0, False), (149, False), (150, True)])
def test_turns(turns: int, ends: bool) -> None:
    used, _ = budget(Limits(max_turns=150))
    used.turns = turns
    ending = used.check_limits()
    assert (ending is not None and ending.outcome == "turn_limit") == ends


# Spent: 900 tokens, 810 × 1 + 90 × 10 millionths of a USD; in doubt: 100 tokens for 100 millionths.
@pytest.mark.parametrize(
    ("limits", "request_", "refused"),
    [
        ({"max_total_tokens": 1100}, RequestBound(None, 100), None),
        ({"max_total_tokens": 1100}, RequestBound(None, 101), TokenLimit),
        ({"max_cost_usd": 0.002}, RequestBound(Decimal("0.00019"), 10**9), None),
        ({"max_cost_usd": 0.002}, RequestBound(Decimal("0.000191")), CostLimit),
        ({}, RequestBound(Decimal(10**9), 10**12), None),
    ],
)
def test_a_request_that_may_go_beyond_a_limit_is_refused(
    limits: dict[str, float], request_: RequestBound, refused: type[Exception] | None
) -> None:
    used, _ = budget(Limits.model_validate(limits), PRICES)
    used.spend([Billed(Tokens(prompt=810, completion=90))])
    used.doubtful += RequestBound(Decimal("0.0001"), 100)
    with pytest.raises(refused) if refused else contextlib.nullcontext():
        used.admit(request_)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(time_limit_s=100), 60),
        (Limits(time_limit_s=100, exec_timeout_s=10), 10),
        (Limits(exec_timeout_s=900), 900),
    ],
    ids=["what is left", "own limit", "less than what is left"],
)
def test_cap_of_one_call(limits: Limits, expected: float) -> None:
    used, clock = budget(limits)
    clock.now += 40
    assert used.exec_timeout_s() == expected


def test_notices_come_once_each_and_only_the_latest() -> None:
    used, clock = budget(Limits(time_limit_s=1000))
    said = []
    for elapsed in (0, 499, 500, 501, 960, 999):
        clock.now = 100 + elapsed
        said.append(used.notice())
    assert said[:2] == [None, None]
    assert said[2] == "[BUDGET] 50% of the time limit has passed: 500 s of 1000 s are left."
    assert said[3] is None
    assert said[4] is not None and said[4].startswith("[BUDGET] 95%")
    assert said[5] is None
