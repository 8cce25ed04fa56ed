"""Which cases are chosen, and what their ids and order give away."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from toys.detection import make_card

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.datasets.sampling import assign_case_ids, choose, draw_cases, replace_sampling, shuffled, too_few

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
    assert assign_case_ids(make_card(), "abc") == {"bccd_0001": "a", "bccd_0002": "b", "bccd_0003": "c"}


@dataclass(frozen=True)
class Shown:
    """A case upstream."""

    id: str
    subject: str = ""
    kind: str = ""


def first_of(card: TaskCard, sources: list[Shown]) -> list[Shown]:
    """As many as the card asks for, in shuffled order."""
    by_id = {source.id: source for source in sources}
    wanted = card.staging.sampling.count or 0
    if wanted > len(by_id):
        raise too_few(card, f"but there are {len(by_id)}")
    return [by_id[name] for name in shuffled(by_id.keys(), card.staging.sampling.seed)[:wanted]]


def draw(sources: list[Shown], count: int, seed: int | None) -> list[str]:
    card = replace_sampling(make_card(), count=count, seed=42)
    if seed is not None:
        card = replace_sampling(card, **dict(card.staging.sampling.fresh(seed)))
    return [
        source.id for source in draw_cases(card, sources, first_of, lambda found: found, lambda source: source.kind)
    ]


def test_a_fresh_draw_has_no_published_case() -> None:
    """The published draw is what it was; two others have as many, none of which is in it, and differ."""
    sources = [Shown(name) for name in NAMES]
    published, first, second = (set(draw(sources, 50, seed)) for seed in (None, 7, 8))
    assert published == set(shuffled(set(NAMES), 42)[:50])
    assert len(first) == len(second) == 50
    assert published.isdisjoint(first | second) and first != second


def test_subjects_of_the_published_draw_are_left_out() -> None:
    """Two images of each of four patients: two of the published draw are two patients, or one."""
    sources = [Shown(f"{patient}{eye}", patient) for patient in "abcd" for eye in "lr"]
    seen = {name[0] for name in draw(sources, 2, None)}
    assert seen.isdisjoint(name[0] for name in draw(sources, 2, 7))


def test_no_more_cases_are_no_fresh_draw() -> None:
    with pytest.raises(InfrastructureError, match=r"has no fresh draw: 1 of 4 are left besides the published one of 3"):
        draw([Shown(name) for name in NAMES[:4]], 3, 7)


def test_other_kinds_are_no_fresh_draw() -> None:
    """One of two kinds is in the published draw with its only case."""
    names = shuffled(set(NAMES[:9]), 42)
    sources = [Shown(name, kind="rare" if name == names[0] else "usual") for name in names]
    with pytest.raises(InfrastructureError, match="not of the same kinds"):
        draw(sources, 3, 7)
