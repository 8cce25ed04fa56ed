"""Which labelled images become cases, and what their order gives away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from automedbench.datasets.forms.pictures import Picture
from automedbench.datasets.forms.sources import LabelledImage, choose_balanced

SIZES = {"glioma": 10, "meningioma": 12, "notumor": 150, "pituitary": 10}
CLASSES = {label: {f"{label}/{number:04d}" for number in range(size)} for label, size in SIZES.items()}


def choose(
    classes: Mapping[str, set[str]],
    *,
    per_class: Mapping[str, int | None],
    count: int | None = None,
    seed: int = 42,
    groups: Mapping[str, str] | None = None,
    per_group: int | None = None,
) -> list[str]:
    """Ids of the chosen; ``classes`` maps a class to its ids."""
    labels = {name: label for label, names in classes.items() for name in names}
    images = [LabelledImage(name, Picture(name, bytes), labels[name], (groups or {}).get(name, "")) for name in labels]
    return [
        image.id for image in choose_balanced(images, labels, per_class, count=count, seed=seed, per_group=per_group)
    ]


def counts(names: list[str]) -> Counter[str]:
    return Counter(name.partition("/")[0] for name in names)


def test_nothing() -> None:
    assert choose({"a": set()}, per_class={"a": 5}) == []


@pytest.mark.parametrize(
    ("per_class", "count", "expected"),
    [
        pytest.param(dict.fromkeys(SIZES), None, SIZES, id="all"),
        pytest.param(dict.fromkeys(SIZES, 10), None, dict.fromkeys(SIZES, 10), id="ten of each"),
        pytest.param(dict.fromkeys(SIZES, 12), None, SIZES | {"notumor": 12}, id="twelve where there are"),
        pytest.param({"glioma": 3, "notumor": 0}, None, {"glioma": 3}, id="only classes of the map"),
    ],
)
def test_numbers(per_class: dict[str, int | None], count: int | None, expected: dict[str, int]) -> None:
    assert counts(choose(CLASSES, per_class=per_class, count=count)) == expected


def test_rest_is_filled_by_frequency() -> None:
    """Five of each and thirty more: nobody falls below five, and most of the thirty are of the largest class."""
    found = counts(choose(CLASSES, per_class=dict.fromkeys(SIZES, 5), count=50))
    assert found.total() == 50
    assert min(found.values()) >= 5
    assert found["notumor"] > 20


def test_one_of_a_group() -> None:
    """Ten images of two lesions: two cases, however many are asked for."""
    names = {f"a/{number}" for number in range(10)}
    groups = {name: f"lesion {int(name[2:]) % 2}" for name in names}
    chosen = choose({"a": names}, per_class={"a": 10}, groups=groups)
    assert sorted(groups[name] for name in chosen) == ["lesion 0", "lesion 1"]


def test_few_of_a_group_and_class() -> None:
    """A slide with twenty patches of each class gives two of each, however many are asked for."""
    classes = {label: {f"{label}/{number}" for number in range(20)} for label in ("negative", "positive")}
    groups = {name: "slide 1" for names in classes.values() for name in names}
    many = dict.fromkeys(classes, 10)
    chosen = choose(classes, per_class=many, groups=groups, per_group=2)
    assert counts(chosen) == {"negative": 2, "positive": 2}
    assert len(choose(classes, per_class=many, groups=groups)) == 1


def test_same_seed_same_order() -> None:
    """Seed and id decide; another seed chooses and orders differently."""
    first, again, other = (
        choose(classes, per_class=dict.fromkeys(SIZES, 10), seed=seed)
        for classes, seed in ((CLASSES, 1), (dict(reversed(CLASSES.items())), 1), (CLASSES, 2))
    )
    assert first == again
    assert first != other
    assert set(first) != set(other)


def test_order_says_nothing_about_the_class() -> None:
    """Classes of very different size upstream: the mean place of a class stays in the middle.

    By hand: the mean place of 10 of 40 cases drawn at random is 19.5 with a standard deviation of
    sqrt((40² - 1) / 12 / 10 · 30 / 39) = 3.2, over 100 seeds 0.32; 1.3 is four of them.
    """
    places: Counter[str] = Counter()
    for seed in range(100):
        chosen = choose(CLASSES, per_class=dict.fromkeys(SIZES, 10), seed=seed)
        for place, name in enumerate(chosen):
            places[name.partition("/")[0]] += place
    assert {label: total / 1000 for label, total in places.items() if abs(total / 1000 - 19.5) > 1.3} == {}
