"""Which cases are chosen, and what their ids and order give away."""

from __future__ import annotations

import itertools

import pytest
from toys.detection import make_card

from automedbench.base.errors import InfrastructureError
from automedbench.datasets.sampling import as_cases, choose, shuffled

NAMES = [f"image_{number:05d}" for number in range(200)]


def test_no_ids() -> None:
    """Nothing to choose from is not an error by itself."""
    assert choose({}, None, 42) == []


def test_all_are_taken_in_an_order_that_says_nothing() -> None:
    """Without a count every id comes, neither in the order of names nor in the order given."""
    order = choose(dict.fromkeys(NAMES, frozenset[str]()), None, 42)
    assert sorted(order) == NAMES
    assert order != NAMES
    neighbours = sum(NAMES.index(b) - NAMES.index(a) == 1 for a, b in itertools.pairwise(order))
    assert neighbours < 10


def test_same_seed_same_order() -> None:
    """Seed and id decide, not the order in which files are listed; another seed gives another order."""
    forwards = choose(dict.fromkeys(NAMES, frozenset[str]()), None, 42)
    backwards = choose(dict.fromkeys(reversed(NAMES), frozenset[str]()), None, 42)
    assert forwards == backwards
    assert forwards != shuffled(set(NAMES), 43)


def test_order_is_fixed_for_good() -> None:
    """By hand with sha256sum: printf '42\\na' begins 0d…, 'b' 58…, 'c' d5…."""
    assert shuffled({"a", "b", "c"}, 42) == ["a", "c", "b"]


def test_a_new_id_moves_no_other() -> None:
    """Adding an image upstream keeps the order of the rest."""
    assert [name for name in shuffled({*NAMES, "new"}, 42) if name != "new"] == shuffled(set(NAMES), 42)


def test_every_class_is_kept() -> None:
    """One image of 200 holds the rare class: it is among any ten."""
    classes = {name: frozenset({"common"}) for name in NAMES} | {NAMES[117]: frozenset({"rare"})}
    for seed in range(5):
        chosen = choose(classes, 10, seed)
        assert len(chosen) == len(set(chosen)) == 10
        assert NAMES[117] in chosen


@pytest.mark.parametrize(
    ("n_positive", "fraction", "expected"),
    [
        pytest.param(100, 0.8, 8, id="enough of both"),
        pytest.param(100, 1.0, 10, id="only positives"),
        pytest.param(5, 0.8, 5, id="too few positives: negatives fill up"),
        pytest.param(198, 0.5, 8, id="too few negatives: positives fill up"),
        pytest.param(0, 0.8, 0, id="no positives"),
    ],
)
def test_positive_fraction(n_positive: int, fraction: float, expected: int) -> None:
    """Of ten cases."""
    classes = {name: frozenset({"x"} if place < n_positive else ()) for place, name in enumerate(NAMES)}
    chosen = choose(classes, 10, 42, fraction)
    assert len(chosen) == 10
    assert sum(bool(classes[name]) for name in chosen) == expected


def test_too_few_images() -> None:
    """Fewer than the card asks for is said, not papered over."""
    with pytest.raises(InfrastructureError, match="asks for 100 cases, but the split has 72"):
        choose(dict.fromkeys(NAMES[:72], frozenset[str]()), 100, 42)


def test_case_ids_are_opaque() -> None:
    """Prefix and running number only."""
    assert as_cases(make_card(), "abc") == {"bccd_0001": "a", "bccd_0002": "b", "bccd_0003": "c"}
