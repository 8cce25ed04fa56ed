"""Options, right answers and image markers of single rows; expectations by hand from the upstream forms."""

from __future__ import annotations

from typing import Any

import pytest

from automedbench.datasets.readers.question_files import (
    Unfit,
    equal_option,
    image_names,
    normalize_text,
    parse_options,
    renumbered,
    right_option,
)

TWO = {"A": "one", "B": "two"}
FORMS: dict[str, Any] = {
    "mapping": {"B": "two", "A": "one"},
    "mapping with an empty letter": {"A": "one", "B": "two", "C": None},
    "texts": ["one", " two "],
    "objects": [{"letter": "A", "content": "one"}, {"letter": "B", "content": "two"}],
    "literal": "['one', 'two']",
    "literal with other quotes": "['one', \"two\"]",
}


@pytest.mark.parametrize("value", FORMS.values(), ids=FORMS.keys())
def test_forms_of_options(value: Any) -> None:
    assert parse_options(value) == TWO


def test_letters_in_front_are_taken_away() -> None:
    """Only the option's own letter with its colon."""
    value = {"A": " A:one ", "B": "B : two", "C": "A: three", "D": "D-dimer: high"}
    assert parse_options(value, lettered=True) == {"A": "one", "B": "two", "C": "A: three", "D": "D-dimer: high"}
    assert parse_options(value)["A"] == "A:one"


def test_nothing_and_numbers() -> None:
    assert parse_options(None) == {}
    assert parse_options([1, 2.5]) == {"A": "1", "B": "2.5"}
    assert (
        normalize_text(" x "),
        normalize_text(3),
        normalize_text(True),
        normalize_text("  "),
        normalize_text(float("nan")),
    ) == (
        "x",
        "3",
        None,
        None,
        None,
    )


BAD_OPTIONS: dict[str, Any] = {
    "one": ["x"],
    "empty text": ["x", " "],
    "27 options": ["x"] * 27,
    "letter twice": [{"letter": "A", "content": "x"}, {"letter": "A", "content": "y"}],
    "small letter": {"a": "x", "b": "y"},
    "letter that is a list": [{"letter": "A", "content": "x"}, {"letter": None, "content": "y"}],
    "empty literal": "[]",
    "call": "[__import__('os').getcwd(), 'x']",
    "cut literal": "['x', 'y'",
    "deep literal": "[" * 5000 + "]" * 5000,
    "long literal": str(["x" * 30_000, "y"]),
    "number": 5,
}


@pytest.mark.parametrize("value", BAD_OPTIONS.values(), ids=BAD_OPTIONS.keys())
def test_bad_options(value: Any) -> None:
    with pytest.raises(Unfit, match="at least two texts") as caught:
        parse_options(value)
    assert caught.value.reason == "options"


def test_letter_without_text() -> None:
    with pytest.raises(Unfit, match="a letter without a text"):
        parse_options(["A:", "B:x"], lettered=True)


RIGHT: dict[str, tuple[Any, str]] = {
    "letter": ("B", "B"),
    "letter with space": (" B", "B"),
    "list of one letter": (["B"], "B"),
    "text": ("Two", "B"),
    "text with its letter": (" B:two", "B"),
}


@pytest.mark.parametrize(("value", "letter"), RIGHT.values(), ids=RIGHT.keys())
def test_right_option(value: Any, letter: str) -> None:
    assert right_option(TWO, value) == letter


@pytest.mark.parametrize("value", ["C", None, "", ["A", "B"], "three", 7])
def test_no_right_option(value: Any) -> None:
    with pytest.raises(Unfit) as caught:
        right_option(TWO, value)
    assert caught.value.reason == "label"


def test_answer_equals_one_option() -> None:
    """OmniMedVQA: strip and case-fold; none or several is no right answer."""
    assert equal_option({"A": "CT", "B": "MRI "}, " mri") == "B"
    for options in ({"A": "Lung", "B": "lung"}, {"A": "x", "B": "y"}):
        with pytest.raises(Unfit, match="of its options instead of one"):
            equal_option(options, "lung")


def test_a_letter_as_text_is_not_taken_for_a_letter() -> None:
    """Blood groups: the answer's text decides where no letter is promised."""
    assert equal_option({"A": "B", "B": "A"}, "A") == "B"


def test_markers() -> None:
    assert renumbered("<image 3> and <image 1> of <b>", {1: 1, 3: 2}) == "<image 2> and <image 1> of <b>"
    with pytest.raises(Unfit, match="speaks of <image 2>"):
        renumbered("<image 2>", {1: 1})


def test_image_names() -> None:
    assert image_names("a.jpg") == ["a.jpg"]
    assert image_names(["a", {"image_path": "b"}]) == ["a", "b"]
    for value in (None, "", [], ["a", None], [{"path": "b"}], 5):
        with pytest.raises(Unfit, match="names no image"):
            image_names(value)
