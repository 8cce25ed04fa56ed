"""Every card found renders in every tier and sandbox: nothing unresolved, the real limits, paths and classes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from automedbench.agent.brief import Setting, write_brief
from automedbench.cards import Limits, TaskCard, find_cards, load_card
from automedbench.records import TIERS, Tier

ROOT = Path(__file__).resolve().parents[2]
CARDS = find_cards([str(ROOT / "config/tasks")])
LIMITS = Limits(time_limit_s=1234, max_turns=77, exec_timeout_s=55, max_total_tokens=9876, max_cost_usd=3, disk_gb=12)


def test_there_are_cards() -> None:
    assert CARDS


@pytest.mark.parametrize("network", ["sealed", "open"])
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("path", CARDS, ids=[path.stem for path in CARDS])
def test_brief(path: Path, tier: Tier, network: str) -> None:
    card = load_card(path)
    if tier not in card.tiers:
        pytest.skip(f"{card.id} has no tier {tier}")
    assert_brief(card, tier, network)


@pytest.mark.parametrize("path", CARDS, ids=[path.stem for path in CARDS])
def test_brief_of_a_track_without_words(path: Path) -> None:
    """Every card says enough by itself."""
    card = load_card(path)
    assert_brief(card.model_copy(update={"track": "a_new_track"}), card.tiers[0], "sealed")


def assert_brief(card: TaskCard, tier: Tier, network: str) -> None:
    """Complete, true, and nothing private."""
    cases = [f"{card.staging.case_prefix}_{number:04d}" for number in (1, 2, 3)]
    setting = Setting("/data/public", "/workspace", network, False, LIMITS, 1, 8192)
    brief = write_brief(ROOT / "config/prompts", card, tier, cases, setting)
    text = brief.markdown

    # No placeholder, no template syntax, no stray backslash at a line's end survives.
    assert not re.search(r"\{\{|\{%|\{[a-z_]+\}|Undefined|\\\n", text)
    assert not re.search(r"\bNone\b", brief.system)

    # What is enforced is told.
    for limit in ("1234 s", "Turns: 77", "55 s", "9876", "3 USD", "12 GB", "8192 tokens"):
        assert limit in brief.system
    assert ("has no network" in text) == (network == "sealed")

    # Paths and contract, with an example each.
    for output in [path for path, each in card.expected_outputs(cases[:1]).items() if not each.optional]:
        assert f"/workspace/agents_outputs/{output}" in brief.system
    for file in card.inputs:
        assert file.file in brief.system
    assert "/workspace/plan/plan.md" in brief.system

    # Nothing private: an upstream name of the data set's labels or a path of this machine.
    assert str(ROOT) not in text
    assert not any(source.where in text for source in card.dataset.sources)
