"""Ranks in joint resamples, and letters of ties."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest

from automedbench.statistics.pairs import compare_pairs, tie_groups
from automedbench.statistics.samples import PairedComparison, Sample

Agents = dict[str, list[Sample]]


def tasks(values: list[float], repeats: int = 3) -> list[Sample]:
    return [Sample(f"t{task}", "lite", r, value, value) for task, value in enumerate(values) for r in range(repeats)]


def noisy(seed: int, n_tasks: int) -> Agents:
    chance = np.random.default_rng(seed)
    return {
        name: [
            Sample(f"t{task}", "lite", r, float(chance.random()), float(chance.random()))
            for task in range(n_tasks)
            for r in range(4)
        ]
        for name in "abcd"
    }


def pair(a: str, b: str, different: bool) -> PairedComparison:
    return PairedComparison(a, b, 1, 0.1, different=different, sufficient=True)


def all_pairs(names: str, different: set[str]) -> list[PairedComparison]:
    return [pair(a, b, a + b in different) for a, b in combinations(names, 2)]


@pytest.mark.parametrize(
    ("names", "different", "expected"),
    [
        ("", set(), {}),
        ("a", set(), {"a": "a"}),
        ("ab", set(), {"a": "a", "b": "a"}),
        ("ab", {"ab"}, {"a": "a", "b": "b"}),
        ("abc", {"ac"}, {"a": "a", "b": "ab", "c": "b"}),
        ("abc", {"ab", "ac"}, {"a": "a", "b": "b", "c": "b"}),
        ("abc", {"ab", "ac", "bc"}, {"a": "a", "b": "b", "c": "c"}),
        ("abcd", {"ac", "ad", "bd"}, {"a": "a", "b": "ab", "c": "bc", "d": "c"}),
        ("abcd", {"ab", "cd"}, {"a": "ab", "b": "cd", "c": "ac", "d": "bd"}),
    ],
)
def test_letters(names: str, different: set[str], expected: dict[str, str]) -> None:
    assert tie_groups(list(names), all_pairs(names, different)) == expected


@pytest.mark.parametrize("seed", range(5))
def test_a_letter_is_shared_exactly_by_those_who_cannot_be_told_apart(seed: int) -> None:
    names = "abcdefgh"
    chance = random.Random(seed)
    different = {a + b for a, b in combinations(names, 2) if chance.random() < 0.5}
    letters = tie_groups(list(names), all_pairs(names, different))
    for a, b in combinations(names, 2):
        assert bool(set(letters[a]) & set(letters[b])) == (a + b not in different)


def test_more_than_26_groups() -> None:
    """Thirty agents that all differ: z, then aa, and nobody shares one."""
    names = [f"agent-{number:02d}" for number in range(30)]
    letters = tie_groups(names, [pair(a, b, True) for a, b in combinations(names, 2)])
    assert (letters["agent-25"], letters["agent-26"], len(set(letters.values()))) == ("z", "aa", 30)


def test_without_data_all_share() -> None:
    agents = {"a": tasks([0.9], repeats=2), "b": tasks([0.1], repeats=2), "c": tasks([0.5])}
    assert tie_groups(["a", "c", "b"], compare_pairs(agents)) == {"a": "a", "b": "a", "c": "a"}
