"""Fixtures that all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Reference material beside the repository (golden data, real data sets); absent on a user's machine."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no reference material beside the repository (../shared)")
    return folder
