"""A card's raw data as it lies on disk after fetching it from its fixture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from automedbench.base.cards import TaskCard, load_card
from automedbench.base.records import Manifest
from automedbench.datasets.download.access import Access
from automedbench.datasets.download.fetch import fetch_dataset
from automedbench.steps.stage_task import stage_cases
from automedbench_rehearsal.upstreams.server import stand_in


def raw_folder(card: TaskCard, tmp: Path) -> Path:
    """``tmp/<data set>``, filled by the real fetch from a server on loopback that offers the fixture."""
    folder = tmp / card.dataset.name
    with stand_in(card.dataset.name) as (mirrors, own):
        fetch_dataset(card, own, folder, Access(mirrors, stand_in=True))
    return folder


class StagedFixture:
    """One task's fixture, fetched and staged below ``folder``."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.folder = path, folder
        self.card: TaskCard = load_card(path)
        self.raw = raw_folder(self.card, folder / "raw")
        self.manifest = self.stage(folder)
        self.public, self.private = folder / "public" / self.card.id, folder / "private" / self.card.id
        self.split: dict[str, Any] = json.loads((self.private / "split.json").read_bytes())

    def stage(self, folder: Path) -> Manifest:
        """Stage it below another folder."""
        places = (folder / "public", folder / "private", folder / "manifests" / f"{self.card.id}.json")
        return stage_cases(self.path, self.raw, *places, excerpt=True)
