"""An own copy of a data set that lacks a whole kind of files is refused when it is given, not while it is staged."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixture_raw import raw_folder

from automedbench.base.cards import TaskCard, find_cards, load_card
from automedbench.base.errors import MissingDataError
from automedbench.datasets.download.fetch import MARKER, RECEIPT, fetch_dataset
from automedbench.datasets.patterns import path_matcher

ROOT = Path(__file__).resolve().parents[2]
CARDS = [load_card(path) for path in find_cards([str(ROOT / "config/tasks")])]
KEYS = ("image", "label", "mask", "input", "target", "images", "labels", "annotations", "reports", "table", "questions")
"""Options of readers that say where a kind of files is."""
ALL_NEEDED = frozenset({"nifti_volumes", "question_files"})
"""Readers that read every place of a list; others take the first that is there."""
ONE_KIND = frozenset({"deeplesion-denoising-task"})
"""Here the reader's option says which of files of one kind are taken; a copy may hold more patients, or fewer."""


def kinds_of_files(card: TaskCard) -> Iterator[list[str]]:
    """Patterns of each kind of files that staging cannot do without, from the options of the card's reader."""
    staging = card.staging
    calibration: Any = staging.sampling.options.get("calibration") or {}
    for options in (staging.options, calibration.get("options") or {}):
        for value in (options.get(key) for key in KEYS):
            listed = [value] if isinstance(value, str) else value if isinstance(value, list) else []
            places = [re.sub(r"\{\w+\}", "*", place) for place in listed]
            yield from [[place] for place in places] if staging.reader in ALL_NEEDED else [places]
    if staging.reader == "class_folders":
        yield from ([target.source or target.name] for target in card.targets)


def lies_in(name: str, place: str) -> bool:
    """Whether a file is what the pattern says, or below a folder that it says; roots may lie above."""
    return path_matcher([place, f"{place}/**", f"**/{place}", f"**/{place}/**"])(name)


@pytest.mark.parametrize("card", [card for card in CARDS if card.id not in ONE_KIND], ids=lambda card: card.id)
def test_a_copy_without_a_kind_of_files(card: TaskCard, tmp_path: Path) -> None:
    """Each in turn: images without labels, questions without images, a class less."""
    whole = raw_folder(card, tmp_path / "raw")
    for name in (RECEIPT, MARKER):
        (whole / name).unlink()
    names = [path.relative_to(whole).as_posix() for path in whole.rglob("*") if path.is_file()]
    looked_at = 0
    for number, places in enumerate(kinds_of_files(card)):
        gone = {name for name in names if any(lies_in(name, place) for place in places)}
        if not gone:
            continue
        looked_at += 1
        own = tmp_path / f"own{number}"
        shutil.copytree(whole, own)
        for name in gone:
            (own / name).unlink()
        with pytest.raises(MissingDataError, match="holds nothing that matches") as caught:
            fetch_dataset(card, own, tmp_path / "there")
        assert "How to get it: " in str(caught.value)
        assert not (tmp_path / "there").exists(), places
    assert looked_at, "the fixture has none of what the reader's options name"
