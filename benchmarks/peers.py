"""Libraries to compare with: which are here, imported before anything is timed, and the values that they gave."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import TypeVar

from side_by_side import Candidate

Value = TypeVar("Value")


def has_monai() -> bool:
    """MONAI and torch are large and optional."""
    return all(importlib.util.find_spec(name) for name in ("monai", "torch"))


def load(*names: str) -> None:
    """Import these modules, and MONAI if it is there, so that no first call pays for it."""
    for name in (*names, *(["torch", "monai.metrics"] if has_monai() else [])):
        importlib.import_module(name)


def keep_values(candidates: Mapping[str, Callable[[], Value]]) -> tuple[dict[str, Candidate], dict[str, Value]]:
    """The candidates, and a dictionary that fills with what each returned last: equality costs no call of its own."""
    values: dict[str, Value] = {}

    def kept(name: str, candidate: Callable[[], Value]) -> Candidate:
        def run() -> None:
            values[name] = candidate()

        return run

    return {name: kept(name, candidate) for name, candidate in candidates.items()}, values
