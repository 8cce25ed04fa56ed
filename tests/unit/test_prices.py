"""Costs are exact decimals over what providers report, request by request; unknown prices give no number."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from automedbench.agent.budget.bounds import (
    CostBound,
    RequestBound,
    bound_request,
    bound_run_cost,
    estimate_cost,
    require_room,
    reserve_for_run,
)
from automedbench.base.cards import Limits
from automedbench.base.endpoint.replies import read_completion
from automedbench.base.endpoint.usage import (
    Billed,
    asked_tokens,
    chat_usage,
    gemini_usage,
    merge_usage,
    messages_usage,
    reported_cost,
    responses_usage,
    service_tier,
)
from automedbench.base.errors import ConfigError
from automedbench.base.records import Tokens
from automedbench.campaign.agents import Agent
from automedbench.campaign.config import BudgetConfig
from automedbench.campaign.prices import Pricing, compute_cost, format_money

DATED = {"as_of": "2026-05-28", "source": "test"}
PRICES = Pricing(input="2.50", cached_input="0.25", output="15.00", **DATED)
WITHOUT_CACHE = PRICES.model_copy(update={"cached_input": None})

# As Anthropic's are built: reading 0.1, writing 1.25 and 2 times the input; twice the input and one and a half times
# the output above 200 000 tokens; half of everything in a batch. The numbers are round for the hand.
CLAUDE = Pricing.model_validate(
    {
        "input": "4",
        "cached_input": "0.4",
        "cache_write": "5",
        "cache_write_1h": "8",
        "output": "20",
        "long_context": {
            "above": 200_000,
            "input": "8",
            "cached_input": "0.8",
            "cache_write": "10",
            "cache_write_1h": "16",
            "output": "30",
        },
        "service_tiers": {
            "batch": {"input": "2", "cached_input": "0.2", "cache_write": "2.5", "cache_write_1h": "4", "output": "10"},
            "priority": {"input": "6", "output": "30"},
        },
        **DATED,
    }
)
GPT = Pricing.model_validate(
    {
        "input": "5",
        "cached_input": "0.5",
        "cache_write": "6.25",
        "cache_write_1h": "6.5",
        "output": "30",
        "service_tiers": {"flex": {"input": "2.5", "cached_input": "0.25", "output": "15"}},
        **DATED,
    }
)
GEMINI = Pricing.model_validate(
    {
        "input": "2",
        "cached_input": "0.2",
        "output": "12",
        "long_context": {"above": 200_000, "input": "4", "cached_input": "0.4", "output": "18"},
        "service_tiers": {"flex": {"input": "1", "output": "6"}},
        **DATED,
    }
)

# --- one kind of token after the other: tokens × USD per million ------------------------------------------------

COSTS = {
    "no price": (Billed(Tokens(prompt=5)), None, None),
    "nothing used": (Billed(Tokens()), PRICES, "0"),
    "nothing used at no price": (Billed(Tokens()), None, "0"),
    "prompt and reply": (Billed(Tokens(prompt=1_000_000, completion=100_000)), PRICES, "4"),
    "cached part is cheaper": (Billed(Tokens(prompt=1_000_000, cached=400_000)), PRICES, "1.6"),
    "no cached price": (Billed(Tokens(prompt=1_000_000, cached=400_000)), WITHOUT_CACHE, "2.5"),
    "more cached than sent": (Billed(Tokens(prompt=100, cached=1000)), PRICES, "0.000025"),
    "a single token": (Billed(Tokens(prompt=1)), PRICES, "0.0000025"),
    "reasoning is part of the reply": (Billed(Tokens(completion=10, reasoning=8)), PRICES, "0.00015"),
    "written at no price": (Billed(Tokens(prompt=100, cache_write=1)), PRICES, None),
    # 100 × 4 + 200 × 0.4 + 300 × 5 + 400 × 8 millionths
    "all four kinds": (Billed(Tokens(prompt=1000, cached=200, cache_write=700, cache_write_1h=400)), CLAUDE, "0.00518"),
    "up to the threshold": (Billed(Tokens(prompt=200_000, completion=1000)), CLAUDE, "0.82"),
    # 200 001 × 8 + 1000 × 30 millionths: the whole request, not what is beyond
    "above the threshold": (Billed(Tokens(prompt=200_001, completion=1000)), CLAUDE, "1.630008"),
    "the cached part counts for the threshold": (Billed(Tokens(prompt=300_000, cached=300_000)), CLAUDE, "0.24"),
    "batch": (Billed(Tokens(prompt=1000, cached=500, completion=100), "batch"), CLAUDE, "0.0021"),
    "a tier has its own threshold or none": (Billed(Tokens(prompt=300_000), "batch"), CLAUDE, "0.6"),
    "a tier without a price": (Billed(Tokens(prompt=1000), "flex"), CLAUDE, None),
    "a tier without a price of writing": (Billed(Tokens(prompt=1000, cache_write=1), "priority"), CLAUDE, None),
}


@pytest.mark.parametrize(("billed", "pricing", "expected"), COSTS.values(), ids=COSTS.keys())
def test_cost(billed: Billed, pricing: Pricing | None, expected: str | None) -> None:
    assert format_money(compute_cost([billed], pricing)) == expected


def test_requests_are_priced_one_by_one() -> None:
    """By hand: twice 150 000 × 4 millionths; as one prompt of 300 000 it would be 2.4 USD."""
    short, late = Billed(Tokens(prompt=150_000)), Billed(Tokens(prompt=1), "flex")
    assert compute_cost([short, short], CLAUDE) == Decimal("1.2")
    assert compute_cost([short, late], CLAUDE) is None
    assert compute_cost([], CLAUDE) == compute_cost([], None) == 0


MISSING = {
    "nothing": (Billed(Tokens(prompt=5, cache_write=5), ""), None),
    "a tier": (Billed(Tokens(prompt=5), "flex"), "service_tiers.flex"),
    "a kind of a tier": (Billed(Tokens(prompt=5, cache_write=5), "priority"), "service_tiers.priority.cache_write"),
}


@pytest.mark.parametrize(("billed", "missing"), MISSING.values(), ids=MISSING.keys())
def test_what_price_is_missing(billed: Billed, missing: str | None) -> None:
    assert CLAUDE.missing(billed) == missing
    assert PRICES.missing(Billed(Tokens(prompt=5, cache_write=5, cache_write_1h=5))) == "cache_write_1h"


def test_money_has_no_exponent() -> None:
    assert format_money(Decimal("1E-9")) == "0.000000001"
    assert format_money(Decimal("100")) == "100"


# --- recorded replies -------------------------------------------------------------------------------------------
REPLIES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("priced_replies.yaml").read_text())
READERS = {"chat": chat_usage, "responses": responses_usage, "messages": messages_usage, "gemini": gemini_usage}
PRICINGS = {"GPT": GPT, "CLAUDE": CLAUDE, "GEMINI": GEMINI}


@pytest.mark.parametrize("name", REPLIES)
def test_recorded_replies(name: str) -> None:
    """Tokens, and USD as worked out beside them; what a stream told is merged."""
    row, body = REPLIES[name], REPLIES[name]["body"]
    tokens, usd = Tokens(**row["tokens"]), Decimal(row["usd"].partition(" = ")[0])
    told = body.get("usage", body.get("usageMetadata"))
    if isinstance(told, list):
        told = merge_usage(told)
        body = dict.fromkeys(body, told)
    usage = READERS[row["read"]](told)
    assert usage == tokens
    assert compute_cost([Billed(usage, service_tier(body))], PRICINGS[row["pricing"]]) == Decimal(usd)
    if row["read"] == "chat":
        choice = {"index": 0, "message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}
        whole = {"object": "chat.completion", "model": "m", "choices": [choice], **body}
        found = read_completion(json.dumps(whole).encode())
        assert (found.usage, found.service_tier) == (tokens, service_tier(body))


NONSENSE: list[Any] = [None, 7, [], {}, {"prompt_tokens": 5}, {"prompt_tokens": -1, "completion_tokens": 1}, "usage"]


@pytest.mark.parametrize("read", [chat_usage, responses_usage, messages_usage, gemini_usage])
@pytest.mark.parametrize("usage", NONSENSE, ids=map(str, NONSENSE))
def test_what_is_not_told_is_no_number(read: Callable[[Any], Tokens | None], usage: Any) -> None:
    assert read(usage) is None


@pytest.mark.parametrize(
    ("usage", "cost"),
    [({"cost": 0.95}, 0.95), ({"cost": 0}, 0.0), ({"cost": "0.95"}, None), ({"cost": -1}, None), (None, None)],
)
def test_cost_that_the_provider_tells(usage: Any, cost: float | None) -> None:
    assert reported_cost(usage) == cost


@pytest.mark.parametrize(
    ("body", "tier"),
    [
        ({"service_tier": "priority"}, "priority"),
        ({"service_tier": None, "usage": {"service_tier": "batch"}}, "batch"),
        ({"usage": {"service_tier": "standard", "speed": "fast"}}, "fast"),
        ({"usageMetadata": {"trafficType": "ON_DEMAND_PRIORITY"}}, "priority"),
        ({"usageMetadata": {"serviceTier": "FLEX"}}, "flex"),
        ({"service_tier": "auto", "usage": 5}, ""),
        ({}, ""),
    ],
)
def test_service_tiers(body: dict[str, Any], tier: str) -> None:
    assert service_tier(body) == tier


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_tokens": 5, "max_completion_tokens": 9}, 9),
        ({"max_output_tokens": 7}, 7),
        ({"generationConfig": {"maxOutputTokens": 3}}, 3),
        ({"max_tokens": None}, None),
    ],
)
def test_what_was_asked_for(body: dict[str, Any], asked: int | None) -> None:
    assert asked_tokens(body) == asked


# --- bounds -----------------------------------------------------------------------------------------------------


def paid_agent(pricing: Pricing | None = PRICES, **changes: Any) -> Agent:
    endpoint = {"base_url": "http://127.0.0.1/v1", "api_key_env": "KEY"}
    return Agent.model_validate({"provider": "openai", "model": "m", "pricing": pricing, **endpoint, **changes})


# By hand, per million tokens 2.50 USD in and 15 USD out: 100 000 tokens at the higher price 1.5 USD; a turn of a whole
# window of 200 000 and a reply of 8192 tokens 0.62288 USD.
BOUNDS = {
    "cost limit": (paid_agent(), {"max_cost_usd": 2}, "2", "max_cost_usd"),
    "token limit": (paid_agent(), {"max_total_tokens": 100_000}, "1.5", "max_total_tokens"),
    "the lower of both": (
        paid_agent(),
        {"max_cost_usd": 2, "max_total_tokens": 100_000},
        "1.5",
        "max_total_tokens",
    ),
    "turns": (paid_agent(), {"max_turns": 150}, "93.432", "max_turns"),
    "few turns": (paid_agent(), {"max_turns": 3, "max_cost_usd": 2}, "1.86864", "max_turns"),
    "no limit": (paid_agent(), {}, None, "no limit"),
    "no price": (paid_agent(None), {"max_total_tokens": 5}, None, "price unknown"),
    "no model": (Agent(provider="scripted", script="x.yaml"), {}, "0", "no model"),
    # Written for an hour at 8 in the priority tier, replies at 30; a window of a million at the long price 16.
    "dearer kinds and tiers": (paid_agent(CLAUDE), {"max_total_tokens": 100_000}, "3", "max_total_tokens"),
    "long prompts": (paid_agent(CLAUDE, context_tokens=1_000_000), {"max_turns": 1}, "16.24576", "max_turns"),
    # Without a limit of its replies one may be as long as the window: 200 000 × 2.5 + 200 000 × 15.
    "a program": (paid_agent(provider="command", command=["x"]), {"max_turns": 1}, "3.5", "max_turns"),
    # 5 × (200 000 × 2.5 + 10 000 × 15)
    "a longer reply in extra_body": (
        paid_agent(extra_body={"max_completion_tokens": 10_000}),
        {"max_turns": 5},
        "3.25",
        "max_turns",
    ),
}


@pytest.mark.parametrize(("agent", "limits", "usd", "basis"), BOUNDS.values(), ids=BOUNDS.keys())
def test_most_of_a_run(agent: Agent, limits: dict[str, float], usd: str | None, basis: Any) -> None:
    bound = bound_run_cost(agent, Limits.model_validate({"max_turns": None, **limits}))
    assert bound == CostBound(None if usd is None else Decimal(usd), basis)


def test_most_of_a_request() -> None:
    """By hand: 1000 × 2.5 + 100 × 15 millionths; above the threshold at the long prices 16 and 30."""
    assert bound_request(paid_agent(), 1000, 100) == RequestBound(Decimal("0.004"), 1100)
    assert bound_request(paid_agent(None), 1000, 100) == RequestBound(None, 1100)
    assert bound_request(paid_agent(CLAUDE), 200_000, 8192).usd == Decimal("1.84576")  # 200 000 × 8 + 8192 × 30
    assert bound_request(paid_agent(CLAUDE), 200_001, 8192).usd == Decimal("3.445776")  # 200 001 × 16 + 8192 × 30


def test_a_limit_below_one_reply_is_refused() -> None:
    """8192 × 15 millionths are 0.12288 USD."""
    require_room(paid_agent(), Limits(max_cost_usd=0.13, max_total_tokens=8192), "a")
    with pytest.raises(
        ConfigError, match=r"max_cost_usd: 0\.12 is less(.|\n)*agents\.a\.max_tokens(.|\n)*total_tokens"
    ):
        require_room(paid_agent(), Limits(max_cost_usd=0.12, max_total_tokens=8191), "a")


# 33 turns of 15 000 + 1 000 tokens: 1.2375 + 0.495 USD; 10 000 tokens at most at 15.
RESERVED = {
    "what is expected": ({"max_cost_usd": 20}, "1.7325"),
    "what a limit allows": ({"max_total_tokens": 10_000}, "0.15"),
    "what is expected of few turns": ({"max_turns": 10}, "0.525"),
    "without any limit": ({"max_turns": None}, "1.7325"),
}


@pytest.mark.parametrize(("limits", "usd"), RESERVED.values(), ids=RESERVED.keys())
def test_what_is_set_aside(limits: dict[str, Any], usd: str) -> None:
    assert reserve_for_run(paid_agent(), Limits.model_validate(limits), BudgetConfig()) == Decimal(usd)
    assert reserve_for_run(paid_agent(None), Limits.model_validate(limits), BudgetConfig()) is None


def test_what_is_expected_has_prompts_of_mean_length() -> None:
    """By hand: 3 turns of 250 000 at the long price 8; of 100 000 at 4; as batch at 2."""
    assert estimate_cost(paid_agent(CLAUDE), Tokens(prompt=750_000), 3) == 6
    assert estimate_cost(paid_agent(CLAUDE), Tokens(prompt=300_000), 3) == Decimal("1.2")
    batch = paid_agent(CLAUDE, extra_body={"service_tier": "batch"})
    assert estimate_cost(batch, Tokens(prompt=300_000), 3) == Decimal("0.6")
