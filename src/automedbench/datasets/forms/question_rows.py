"""Rows of a table of questions: options, the right one, and the images that they speak of.

All functions take cells as they come from JSON, CSV or Parquet and raise ``Unfit`` when a row cannot be asked.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any, Literal

Reason = Literal["image", "broken_image", "answer", "options", "label"]
"""Why a row cannot be asked: no image or an unreadable one, no answer, no options, no right one among them."""
MAX_LIST_CHARS = 20_000
_MARKER = re.compile(r"<image (\d{1,3})>")


class Unfit(Exception):
    """A row that cannot be asked; without a ``reason`` no card can leave it out."""

    def __init__(self, reason: Reason | None, why: str) -> None:
        super().__init__(why)
        self.reason = reason


def as_text(value: Any) -> str | None:
    """A cell as text without white space around it; None for what is empty or no text or number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        value = str(value)
    return value.strip() or None if isinstance(value, str) else None


def options_of(value: Any, *, lettered: bool = False) -> dict[str, str]:
    """Answer options by letter, in the order of the letters; empty when the cell is.

    ``value``: letter → text, a list of texts, a list of objects with ``letter`` and ``content``, or the Python literal
    of a list of texts. ``lettered``: texts begin with their own letter and a colon, which is taken away.
    """
    if value is None:
        return {}
    pairs = _pairs(value)
    options = {letter: as_text(text) for letter, text in pairs}
    good = {letter: text for letter, text in sorted(options.items(), key=str) if letter in tuple(ascii_uppercase)}
    if len(pairs) < 2 or len(options) < len(pairs) or len(good) < len(pairs) or not all(good.values()):
        raise Unfit("options", "has options that are not at least two texts with a letter each")
    texts = {letter: text or "" for letter, text in good.items()}
    bare = {letter: without_letter(text, letter) for letter, text in texts.items()} if lettered else texts
    if not all(bare.values()):
        raise Unfit("options", "has an option that is a letter without a text")
    return bare


def without_letter(text: str, letter: str) -> str:
    """The text without its letter and colon in front, if it has them."""
    return re.sub(rf"^\s*{letter}\s*:", "", text).strip()


def equal_option(options: Mapping[str, str], answer: str) -> str:
    """The letter of the one option that equals the answer but for case and white space around it."""
    forms = {answer.strip().casefold()}
    forms |= {without_letter(answer, letter).casefold() for letter in options}
    equal = [letter for letter, text in options.items() if text.strip().casefold() in forms]
    if len(equal) != 1:
        raise Unfit("label", f"has an answer that equals {len(equal)} of its options instead of one")
    return equal[0]


def right_option(options: Mapping[str, str], value: Any) -> str:
    """The letter that a cell means: a letter, a list of one, or the text of an option."""
    label = value[0] if isinstance(value, list) and len(value) == 1 else value
    text = as_text(label)
    if text in options:
        return str(text)
    if text is None or len(text) == 1:
        raise Unfit("label", f"has the label {value!r}, which is none of its options")
    return equal_option(options, text)


def renumbered(text: str, numbers: Mapping[int, int]) -> str:
    """The text with each ``<image k>`` as the number under which that image is staged (``numbers``)."""

    def new(found: re.Match[str]) -> str:
        number = int(found[1])
        if number not in numbers:
            raise Unfit("image", f"speaks of {found[0]}, which it does not have")
        return f"<image {numbers[number]}>"

    return _MARKER.sub(new, text)


def image_names(value: Any) -> list[str]:
    """Names of images: a name, a list of names, or a list of objects with ``image_path``."""
    items = value if isinstance(value, list) else [value]
    names = [item.get("image_path") if isinstance(item, dict) else item for item in items]
    good = [name for name in names if isinstance(name, str) and name]
    if not good or len(good) < len(names):
        raise Unfit("image", "names no image")
    return good


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    """Options in any of the known shapes as pairs of letter and text; empty for another shape."""
    if isinstance(value, str):
        value = _literal(value)
    if isinstance(value, dict):
        # A table gives every row all the letters.
        return [(letter, text) for letter, text in value.items() if text is not None]
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > len(ascii_uppercase):
        return []
    if all(isinstance(item, dict) for item in value):
        return [(item.get("letter"), item.get("content")) for item in value]
    return list(zip(ascii_uppercase, value, strict=False))


def _literal(text: str) -> Any:
    """A list that is written as a text; nothing is evaluated."""
    if not text.lstrip().startswith("[") or len(text) > MAX_LIST_CHARS:
        return None
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
