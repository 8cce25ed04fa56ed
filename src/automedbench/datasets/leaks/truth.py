"""Truth that the public side must not tell: upstream's names, their order, and classes.

Read from ``split.json``, which every track writes (case → where it comes from), and from the truth of the cases. Keys
differ between tracks; what they hold is told by its form, so that a new track needs no change here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

SPLIT = "split.json"
_HASH = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"(\d+)")
# Names of a case's place upstream, the first of which orders the cases; and what is no name of anything.
_SOURCES = ("row", "source", "image_id", "subject", "study", "source_id")
_NO_NAMES = frozenset({"label"})


Split = dict[str, dict[str, Any]]
"""Case → where it comes from."""


def read_split(private: Path) -> Split:
    """The record of the choice below a task's private folder; empty when its track writes none."""
    split = _json(private / SPLIT)
    cases = split.get("cases") if isinstance(split, dict) else None
    if not isinstance(cases, dict):
        return {}
    return {case: entry for case, entry in cases.items() if isinstance(entry, dict)}


def upstream_names(split: Split) -> dict[str, set[str]]:
    """Case → names by which upstream knows it and its files, with and without folder and suffix."""
    found = {}
    for case, entry in split.items():
        names = set()
        for text in _texts(entry):
            path = PurePosixPath(text)
            names |= {text, path.name, path.name.split(".")[0], *path.parts}
        found[case] = names
    return found


def upstream_order(split: Split, cases: Sequence[str]) -> list[int]:
    """Place of each case among the cases in upstream's order: by row, else by name, numbers as numbers."""
    key = next((name for name in _SOURCES if all(name in split.get(case, {}) for case in cases)), None)
    if key is None:
        return []
    ordered = sorted(range(len(cases)), key=lambda place: _natural(str(split[cases[place]][key])))
    places = [0] * len(cases)
    for rank, place in enumerate(ordered):
        places[place] = rank
    return places


def class_of(split: Split, private: Path, case: str) -> str | None:
    """The case's answer where it is one of few: its class, its letter, yes or no, the classes it shows; else None."""
    label = split.get(case, {}).get("label")
    if isinstance(label, str):
        return label
    for name in ("answer.json", "boxes.json"):
        truth = _json(private / case / name)
        if isinstance(truth, dict) and isinstance(truth.get("answer_label"), str):
            return str(truth["answer_label"])
        if isinstance(truth, dict) and truth.get("kind") == "yes_no":
            return str(truth.get("answer_text", "")).strip().lower()
        if isinstance(truth, dict) and isinstance(truth.get("boxes"), list):
            return " + ".join(sorted({str(box.get("class")) for box in truth["boxes"]})) or "none"
    return None


def _texts(value: Any, key: str = "") -> list[str]:
    """Strings and names of hashed files in an entry; hashes, numbers and the label are none."""
    if isinstance(value, dict):
        hashed = [name for name, inner in value.items() if isinstance(inner, str) and _HASH.fullmatch(inner)]
        named = [name for name in hashed if "sha256" not in name]
        return named + [text for name, inner in value.items() for text in _texts(inner, name)]
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner, key)]
    return [value] if isinstance(value, str) and key not in _NO_NAMES and not _HASH.fullmatch(value) else []


def _natural(text: str) -> list[tuple[int, int | str]]:
    return [(0, int(part)) if part.isdigit() else (1, part) for part in _NUMBER.split(text)]


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
