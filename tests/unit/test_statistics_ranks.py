"""Letters of ties and possible ranks, by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from automedbench.statistics.pairs import compare_pairs, rank_ranges, tie_groups
from automedbench.statistics.samples import PairedComparison, Sample


def tasks(values: list[float], repeats: int = 3) -> list[Sample]:
    return [Sample(f"t{task}", "lite", r, value, value) for task, value in enumerate(values) for r in range(repeats)]


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


def test_more_than_26_groups() -> None:
    """Thirty agents that all differ: z, then aa, and nobody shares one."""
    names = [f"agent-{number:02d}" for number in range(30)]
    letters = tie_groups(names, [pair(a, b, True) for a, b in combinations(names, 2)])
    assert (letters["agent-25"], letters["agent-26"], len(set(letters.values()))) == ("z", "aa", 30)


@pytest.mark.parametrize(
    ("different", "expected"),
    [
        (set(), {"a": (1, 4), "b": (1, 4), "c": (1, 4), "d": (1, 4)}),
        ({"ad"}, {"a": (1, 3), "b": (1, 4), "c": (1, 4), "d": (2, 4)}),
        ({"ac", "ad", "bd"}, {"a": (1, 2), "b": (1, 3), "c": (2, 4), "d": (3, 4)}),
        ({"ab", "ac", "ad", "bc", "bd", "cd"}, {"a": (1, 1), "b": (2, 2), "c": (3, 3), "d": (4, 4)}),
    ],
)
def test_possible_ranks(different: set[str], expected: dict[str, tuple[int, int]]) -> None:
    """The first of a pair is the better one."""
    assert rank_ranges("abcd", all_pairs("abcd", different)) == expected


def test_possible_ranks_follow_the_sign_and_the_agents_shown() -> None:
    pairs = [replace(pair("a", "b", True), difference=-0.1), pair("a", "c", True)]
    assert rank_ranges("ab", pairs) == {"a": (2, 2), "b": (1, 1)}


def test_without_data_every_letter_and_rank_is_open() -> None:
    agents = {"a": tasks([0.9], repeats=2), "b": tasks([0.1], repeats=2), "c": tasks([0.5])}
    pairs = compare_pairs(agents)
    assert tie_groups(["a", "c", "b"], pairs) == {"a": "a", "b": "a", "c": "a"}
    assert rank_ranges(list(agents), pairs) == dict.fromkeys(agents, (1, 3))
