"""A card's raw data as it lies on disk after fetching it from its fixture."""

from __future__ import annotations

from pathlib import Path

from automedbench.cards import TaskCard
from automedbench.datasets.fetch import fetch_dataset
from automedbench.fixtures.server import stand_in


def raw_folder(card: TaskCard, tmp: Path) -> Path:
    """``tmp/<data set>``, filled by the real fetch from a server on loopback that offers the fixture."""
    folder = tmp / card.dataset.name
    with stand_in(card.dataset.name) as (mirrors, own):
        fetch_dataset(card, own, folder, mirrors=mirrors, stand_in=True)
    return folder
