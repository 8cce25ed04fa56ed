"""Patterns of a card: for files (``*``, ``?``, ``[…]`` within one folder, ``**`` for any number) and for texts."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence


@functools.lru_cache(maxsize=256)
def expression(pattern: str) -> re.Pattern[str]:
    """The pattern for whole paths below a folder, as ``Path.glob`` takes it; ``**`` at the end takes all below."""
    text = ""
    parts = pattern.split("/")
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            text += ".+" if last else "(?:[^/]+/)*"
            continue
        text += _segment(part) + ("" if last else "/")
    return re.compile(text)


def _segment(part: str) -> str:
    """One name of a pattern."""
    pieces = re.split(r"(\*+|\?|\[!?\]?[^\]]*\])", part)
    return "".join(_piece(piece) for piece in pieces)


def _piece(piece: str) -> str:
    if piece[:1] == "*":
        return "[^/]*"
    if piece == "?":
        return "[^/]"
    if piece[:1] == "[" and piece[-1:] == "]" and len(piece) > 2:
        inner = piece[1:-1].replace("\\", r"\\").replace("[", r"\[")
        return f"[^/{inner[1:]}]" if inner[0] == "!" else f"[{inner}]"
    return re.escape(piece)


def path_matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Build a matcher of paths for any of the patterns; without patterns all paths match."""
    known = [expression(pattern) for pattern in patterns]
    return lambda path: not known or any(each.fullmatch(path) for each in known)


def search_pattern(pattern: re.Pattern[str] | None, text: str) -> str | None:
    """Search a regular expression: its first group if it has one, else the whole match; None without a match."""
    match = pattern.search(text) if pattern is not None else None
    return None if match is None else match[min(1, match.re.groups)] or ""


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern."""
    return re.search(r"[*?\[]", name) is not None
