"""Every track that exists has a rubric that loads, says something, and is known to the heuristic judge."""

from __future__ import annotations

import pkgutil
from pathlib import Path

import pytest

import automedbench.tracks
from automedbench.cards import find_cards, load_card
from automedbench.judge import load_rubric
from automedbench.judge.heuristic import RULES

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
