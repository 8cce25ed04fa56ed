"""Places below the raw data, for archives whose outer folder differs from one source to the next."""

from __future__ import annotations

from pathlib import Path

from automedbench.datasets.forms.problems import unexpected


def one_place(raw: Path, pattern: str) -> Path:
    """The one file or folder that a pattern finds; where nothing is found, the pattern itself, for the message.

    Raises InfrastructureError when there are several.
    """
    found = sorted(raw.glob(pattern))
    if len(found) > 1:
        raise unexpected(raw, f"holds {len(found)} places that match '{pattern}'; one is needed")
    return found[0] if found else raw / pattern
