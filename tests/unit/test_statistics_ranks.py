"""Ranks in joint resamples, and letters of ties."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest

from automedbench.statistics.pairs import compare_pairs, tie_groups
from automedbench.statistics.ranks import rank_distribution
from automedbench.statistics.samples import PairedComparison, RankRange, Sample

Agents = dict[str, list[Sample]]


def tasks(values: list[float], repeats: int = 3) -> list[Sample]:
    return [Sample(f"t{task}", "lite", r, value, value) for task, value in enumerate(values) for r in range(repeats)]


def test_nobody() -> None:
    assert rank_distribution({}) == {}


def test_one_agent_is_first() -> None:
    assert rank_distribution({"a": tasks([0.5])}) == {"a": RankRange(1, 1, True, (1.0,))}


def test_clear_order() -> None:
    found = rank_distribution({"low": tasks([0.1, 0.2]), "high": tasks([0.8, 0.9]), "middle": tasks([0.5, 0.5])})
    assert {name: (own.best, own.worst, own.shares[0]) for name, own in found.items()} == {
        "high": (1, 1, 1.0),
        "middle": (2, 2, 0.0),
        "low": (3, 3, 0.0),
    }
    assert found["middle"].shares == (0.0, 1.0, 0.0)


def test_equals_take_the_better_rank() -> None:
    found = rank_distribution({"a": tasks([0.5, 0.5]), "b": tasks([0.5, 0.5])})
    assert found["a"] == found["b"] == RankRange(1, 1, True, (1.0, 0.0))


def test_tasks_are_resampled_together() -> None:
    """b is 0.01 better on every task, and tasks differ by far more: their common chance must not blur that."""
    levels = [0.1, 0.9, 0.3, 0.7, 0.5, 0.2]
    found = rank_distribution({"a": tasks(levels), "b": tasks([level + 0.01 for level in levels])})
    assert (found["b"].worst, found["b"].shares[0]) == (1, 1.0)


def test_cases_are_resampled_together() -> None:
    cases = np.array([0.0, 0.1, 0.5, 0.8, 0.2])
    agents = {
        name: [Sample("t", "lite", r, 0.5, float(own.mean()), own) for r in range(3)]
        for name, own in (("a", cases), ("b", cases + 0.01))
    }
    assert rank_distribution(agents)["b"].shares[0] == 1.0


def test_too_few_repeats_may_be_anywhere() -> None:
    """And may be above anybody: the others' worst ranks move down by one."""
    found = rank_distribution({"a": tasks([0.9]), "b": tasks([0.1]), "short": tasks([0.5], repeats=2), "none": []})
    assert found["short"] == found["none"] == RankRange(1, 4, False)
    assert [(found[name].best, found[name].worst) for name in ("a", "b")] == [(1, 3), (2, 4)]


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


@pytest.mark.parametrize("n_tasks", [1, 4, 8])
def test_shares_add_up(n_tasks: int) -> None:
    found = rank_distribution(noisy(1, n_tasks))
    assert all(sum(own.shares) == pytest.approx(1) for own in found.values())
    assert all(1 <= own.best <= own.worst <= 4 for own in found.values())
    assert any(own.best < own.worst for own in found.values())


@pytest.mark.parametrize("n_tasks", [1, 8])
def test_order_does_not_matter(n_tasks: int) -> None:
    agents = noisy(2, n_tasks)
    shuffled = {name: random.Random(1).sample(own, len(own)) for name, own in reversed(agents.items())}
    assert rank_distribution(shuffled) == rank_distribution(agents)


def test_equal_agents_are_first_equally_often() -> None:
    """Two agents with the same values on different repeats: ½ each, within four standard errors of 2 000 resamples."""
    values = [0.2, 0.4, 0.5, 0.9]
    agents = {
        name: [Sample("t", "lite", r, value, value) for r, value in enumerate(order)]
        for name, order in (("a", values), ("b", values[::-1]))
    }
    assert rank_distribution(agents)["a"].shares[0] == pytest.approx(0.5, abs=0.045)


def pair(a: str, b: str, different: bool) -> PairedComparison:
    return PairedComparison(a, b, 1, 0.1, None, None, None, None, different, True, None)


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
