"""The gold set is complete, every expectation can be quoted, and the documented figures are those of judge-eval."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
from gold_rules import gold_problems

from automedbench.judge import judge_run, load_rubric
from automedbench.judge.gold import SPLITS, Quality, load_gold
from automedbench.judge.rubric import JUDGED_STAGES
from automedbench.judge.rules import HeuristicJudge
from automedbench.scoring.run import agentic
from automedbench.tracks import track_names

ROOT = Path(__file__).resolve().parents[2]
TRAPS = {
    "empty_plan",
    "copied_plan",
    "fabricated_validation",
    "hidden_failure",
    "brief_echoed",
    "keyword_stuffing",
    "late_validation",
    "unweighed_candidates",
    "touched_weights",
    "gpu_claimed",
    "blank_plot",
    "unread_pilot",
    "vacuous_check",
    "refused_call",
    "judge_order",
}
GOLD = load_gold(ROOT / "config/gold")
PAGE = ROOT / "docs/judge-evaluation.md"
NEEDED = {
    (track, tier, quality) for track in track_names() for tier in ("lite", "standard") for quality in get_args(Quality)
}


def test_size() -> None:
    assert len(GOLD) >= 120
    assert len({item.id for item in GOLD}) == len(GOLD)


def test_every_track_tier_and_quality() -> None:
    assert NEEDED - {(item.track, item.tier, item.quality) for item in GOLD} == set()
    assert sum(item.tier == "pro" for item in GOLD) >= 3


def test_every_trap() -> None:
    assert {trap for item in GOLD for trap in item.traps} == TRAPS


def test_splits() -> None:
    """A good part is kept from those who improve rules."""
    counts = Counter(item.split for item in GOLD)
    assert set(counts) == set(SPLITS)
    assert 0.3 <= (len(GOLD) - counts["dev"]) / len(GOLD) <= 0.7


@pytest.mark.parametrize("transcript", GOLD, ids=lambda item: item.id)
def test_expectations_are_whole_and_quoted(transcript: object) -> None:
    item = next(one for one in GOLD if one is transcript)
    assert gold_problems(item, load_rubric(ROOT / "config/rubrics", item.track)) == []


def test_every_verdict_occurs() -> None:
    """A criterion that is always or never earned measures nothing."""
    rubrics = {track: load_rubric(ROOT / "config/rubrics", track) for track in track_names()}
    seen = {(name, wanted.verdict) for item in GOLD for name, wanted in item.expected.items()}
    wanted = {(rule.id, value) for rubric in rubrics.values() for rule in rubric.criteria for value in rule.values}
    assert wanted - seen == set()
    assert {rule.stage for rubric in rubrics.values() for rule in rubric.criteria} == set(JUDGED_STAGES)


def test_good_ones_score_higher_than_bad_ones() -> None:
    shares: dict[str, list[float]] = {}
    for item in GOLD:
        verdicts = [wanted.verdict for wanted in item.expected.values()]
        shares.setdefault(item.quality, []).append(sum(verdicts) / len(verdicts))
    assert min(shares["good"]) > max(shares["bad"])


def test_transcripts_are_run_in_order() -> None:
    for item in GOLD:
        stages = [call.stage for call in item.conversation.calls]
        assert stages, item.id
        assert [call.turn for call in item.conversation.calls] == sorted(call.turn for call in item.conversation.calls)


def test_documented_figures_are_those_of_the_judge() -> None:
    """After a change: ``python docs/make_judge_figures.py docs/judge-evaluation.md``."""
    updated = runpy.run_path(str(ROOT / "docs/make_judge_figures.py"))["updated"]
    page = PAGE.read_text(encoding="utf-8")
    assert updated(page, ROOT / "config") == page
    with pytest.raises(ValueError, match="figures of the heuristic judge: begin"):
        updated("# Judges", ROOT / "config")


def test_gamers_without_a_method_earn_little() -> None:
    """Agentic of runs whose outputs have no effect of their case (S4 0.3, the second half of S5): at most 0.3."""
    gamers = [item for item in GOLD if item.id.startswith("g-") and item.effect == "none"]
    assert len(gamers) >= 18
    found = {}
    for item in gamers:
        rubric = load_rubric(ROOT / "config/rubrics", item.track)
        stages = judge_run(item.conversation, rubric, item.tier, HeuristicJudge(), effect=item.measured).stages
        found[item.id] = agentic({**{stage.lower(): score for stage, score in stages.items()}, "s4": 0.3, "s5": 0.5})
    assert {name: score for name, score in found.items() if score > 0.3} == {}


def test_what_has_no_effect_has_no_method() -> None:
    """Definitions of the rubric: without an effect of the case the criteria that need a method are 0."""
    needing = {"s1b", "s1c", "s2a", "s2c", "s2d", "s2e", "s3"}
    earned = [
        (item.id, name)
        for item in GOLD
        for name in needing & item.expected.keys()
        if item.effect == "none" and item.expected[name].verdict
    ]
    assert earned == []
