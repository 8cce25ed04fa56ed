"""Which questions become cases: the published draw, distinct images, even strata, and what is handed out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from toys.vqa import CARD

from automedbench.base.cards import Sampling
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.datasets.forms.pictures import Picture
from automedbench.datasets.forms.sources import SourceQuestion
from automedbench.tracks.vqa.sampling import (
    VqaSampling,
    balance,
    calibration_questions,
    choose_questions,
    sampling_options,
)


def question(row: int, image: str = "", group: str = "") -> SourceQuestion:
    picture = Picture(image or f"{row}.jpg", Path("none").read_bytes)
    return SourceQuestion(f"q{row}", row, "Where?", "lung", (picture,), groups={"modality": group} if group else {})


def chosen(questions: list[SourceQuestion], count: int | None, **options: Any) -> list[SourceQuestion]:
    return choose_questions(questions, Sampling(rule="", count=count), VqaSampling(**options))


def test_published_draw() -> None:
    """random.Random(42).sample(range(100), 10), as documented widely for Python 3; the order says nothing of it."""
    found = chosen([question(row) for row in range(100)], 10, method="random_sample")
    rows = [each.row for each in found]
    assert sorted(rows) == [3, 13, 14, 17, 28, 31, 35, 81, 86, 94] != rows
    assert {each.row for each in chosen([question(row) for row in range(5)], None, method="random_sample")} == set(
        range(5)
    )


def test_shuffled_takes_the_first_of_an_order_that_does_not_depend_on_the_count() -> None:
    questions = [question(row) for row in range(20)]
    assert chosen(questions, 5) == chosen(questions, 9)[:5] == chosen(questions[::-1], 5)


def test_distinct_images() -> None:
    questions = [question(row, image="abc"[row % 3]) for row in range(9)]
    found = chosen(questions, None, distinct_images=True)
    assert sorted(each.images[0].name for each in found) == ["a", "b", "c"]
    with pytest.raises(InfrastructureError, match="asks for 4 cases, but the split has 3"):
        chosen(questions, 4, distinct_images=True)


def test_even_over_strata() -> None:
    """Ten CT, three MRI, one OCT: each in turn until a stratum is used up."""
    kinds = ["CT"] * 10 + ["MRI"] * 3 + ["OCT"]
    questions = [question(row, group=kind) for row, kind in enumerate(kinds)]
    counts = [
        Counter(each.groups["modality"] for each in chosen(questions, n, stratify="modality")) for n in (3, 7, 14)
    ]
    assert counts == [{"CT": 1, "MRI": 1, "OCT": 1}, {"CT": 3, "MRI": 3, "OCT": 1}, {"CT": 10, "MRI": 3, "OCT": 1}]


def test_strata_are_counted() -> None:
    """Of the cases, by name; a question without the group counts under an empty one; nothing where none is balanced."""
    cases = [question(row, group=kind) for row, kind in enumerate(["MRI", "CT", "MRI", ""])]
    assert balance(cases, VqaSampling(stratify="modality")) == {"modality": {"": 1, "CT": 1, "MRI": 2}}
    assert balance(cases, VqaSampling()) == {}


def test_too_few() -> None:
    with pytest.raises(InfrastructureError, match="asks for 2 cases, but the split has 1"):
        chosen([question(0)], 2, method="random_sample")


def test_calibration_shows_nothing_that_a_case_shows() -> None:
    questions = [question(row, image="abcd"[row % 4]) for row in range(12)]
    cases = questions[:2]  # a and b
    found = calibration_questions(questions, cases, 9, seed=42)
    assert sorted(each.images[0].name for each in found) == ["c", "d"]
    assert len(calibration_questions(questions, cases, 1, seed=42)) == 1


def test_options_that_contradict_each_other() -> None:
    sampling = CARD.staging.sampling.model_copy(update={"options": {"method": "random_sample", "stratify": "organ"}})
    card = CARD.model_copy(update={"staging": CARD.staging.model_copy(update={"sampling": sampling})})
    with pytest.raises(ConfigError, match="takes rows as they come"):
        sampling_options(card)
