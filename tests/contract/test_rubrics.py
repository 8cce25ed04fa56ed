"""Every track that exists has a rubric that loads, says something, and is known to the heuristic judge."""

from __future__ import annotations

import pkgutil
from pathlib import Path

import pytest

import automedbench.tracks
from automedbench.base.cards import find_cards, load_card
from automedbench.judge import load_rubric
from automedbench.judge.rules import RULES
from automedbench.tracks import track_names

ROOT = Path(__file__).resolve().parents[2]
MODULES = {module.name for module in pkgutil.iter_modules(automedbench.tracks.__path__)}
TRACKS = sorted(
    {load_card(path).track for path in find_cards([str(ROOT / "config/tasks")])}
    | {name for name in MODULES if (ROOT / "config/tasks" / name).is_dir()}
)


def test_there_is_a_track() -> None:
    assert "detection" in TRACKS


@pytest.mark.parametrize("track", TRACKS)
def test_rubric_loads(track: str) -> None:
    rubric = load_rubric(ROOT / "config/rubrics", track)
    assert rubric.track == track
    assert all(criterion.title.strip() and criterion.earned_when.strip() for criterion in rubric.criteria)


@pytest.mark.parametrize("track", TRACKS)
def test_outputs_are_those_of_the_cards(track: str) -> None:
    named = set(load_rubric(ROOT / "config/rubrics", track).vocabulary.outputs)
    for path in find_cards([str(ROOT / "config/tasks" / track)]):
        assert named & {Path(output.path).name for output in load_card(path).outputs}, path.name


def test_every_criterion_has_a_rule() -> None:
    for track in TRACKS:
        assert {item.id for item in load_rubric(ROOT / "config/rubrics", track).criteria} == set(RULES)


def test_skeleton_alone_is_a_rubric() -> None:
    """A new track is judged before anybody wrote words for it."""
    plain = load_rubric(ROOT / "config/rubrics", "a_new_track")
    assert {item.id for item in plain.criteria} == set(RULES)


def test_no_rubric_without_a_skeleton_entry() -> None:
    """Files beside the skeleton are tracks, so that a misspelt file name is noticed."""
    known = set(TRACKS) | {"skeleton"}
    assert {path.stem for path in (ROOT / "config/rubrics").glob("*.yaml")} <= known


@pytest.mark.parametrize("track", track_names())
def test_each_track_has_its_own_wording(track: str) -> None:
    """What a pipeline, a method, an input and a checked output are differs between tracks."""
    own, plain = (load_rubric(ROOT / "config/rubrics", name) for name in (track, "a_new_track"))
    pairs = {item.id: (item, other) for item, other in zip(own.criteria, plain.criteria, strict=True)}
    for name in ("s1b", "s1c", "s2b"):
        assert pairs[name][0].earned_when != pairs[name][1].earned_when, name
    assert [level.text for level in pairs["s3"][0].levels] != [level.text for level in pairs["s3"][1].levels]
    assert [level.value for level in pairs["s3"][0].levels] == [0, 0.5, 1]


@pytest.mark.parametrize("track", track_names())
def test_credits_of_the_lite_tier(track: str) -> None:
    """Candidates and drawing are credited in lite, nothing in the other tiers (docs/specification.md, 6)."""
    credited = {item.id: item.auto_tiers for item in load_rubric(ROOT / "config/rubrics", track).criteria}
    assert {name for name, tiers in credited.items() if tiers} == {"s1d", "s1e", "s1f"}
    assert all(tiers in ([], ["lite"]) for tiers in credited.values())
