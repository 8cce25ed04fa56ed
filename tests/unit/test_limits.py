"""Limits of a run: what ends it, when the agent is told, and what is not charged."""

from __future__ import annotations

import pytest
from harness_fakes import Clock

from automedbench.agent.budget.limits import Budget
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


@pytest.mark.parametrize(
    ("spent", "last_prompt", "ends"),
    [(900, 100, False), (900, 101, True), (1001, 0, True)],
    ids=["fits exactly", "the next request would not fit", "over already"],
)
def test_tokens(spent: int, last_prompt: int, ends: bool) -> None:
    used, _ = budget(Limits(max_total_tokens=1000))
    used.spend([Billed(Tokens(prompt=spent))])
    used.last_prompt = last_prompt
    ending = used.check_limits()
    assert (ending is not None and ending.outcome == "token_limit") == ends


@pytest.mark.parametrize(("completion", "ends"), [(90_000, False), (90_001, True)])
def test_cost(completion: int, ends: bool) -> None:
    """By hand: 90 000 × 10 USD/M = 0.90, next prompt 100 000 × 1 USD/M = 0.10, limit 1 USD."""
    used, _ = budget(Limits(max_cost_usd=1.0), PRICES)
    used.spend([Billed(Tokens(completion=completion))])
    used.last_prompt = 100_000
    ending = used.check_limits()
    assert (ending is not None and ending.outcome == "cost_limit") == ends


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
