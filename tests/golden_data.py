"""Golden data beside the repository, as parameters of tests."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).resolve().parents[2] / "shared/golden"


@functools.cache
def load(folder: str, name: str) -> dict[str, Any]:
    """One file, rows of JSON Lines as ``cases``; nothing where there is no golden data."""
    path, rows = GOLDEN / folder / f"{name}.json", GOLDEN / folder / f"{name}.jsonl"
    if rows.is_file():
        return {"cases": [json.loads(line) for line in rows.read_text().splitlines()]}
    return json.loads(path.read_text()) if path.is_file() else {}


def golden(
    folder: str, name: str, keep: Callable[[Any], bool] = lambda case: True, *, key: str = "cases", **only: Any
) -> list[Any]:
    """The cases of one file as parameters; a single skipped one where there is no golden data."""
    if not load(folder, name):
        return [pytest.param({}, marks=pytest.mark.skip("no golden data beside the repository"), id="absent")]
    cases = [each for each in load(folder, name)[key] if all(each.get(name) == value for name, value in only.items())]
    return [pytest.param(case, id=case.get("id", str(place))) for place, case in enumerate(cases) if keep(case)]
