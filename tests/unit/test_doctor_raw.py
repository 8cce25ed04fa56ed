"""The doctor's look at raw data that is still to be fetched."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from toys.detection import make_card

from automedbench.base.cards import Source
from automedbench.base.files import write_record
from automedbench.base.records import FIXTURE_OF, Receipt, now
from automedbench.commands._machine import inputs
from automedbench.commands._machine.examine import Host
from automedbench.commands._machine.inputs import raw

KAGGLE = Source(kind="kaggle", where="me/set", credentials=["TOY_USER", "TOY_KEY"])
MANUAL = Source(kind="manual", where="a form")
PLAIN = Source(kind="url", where="https://h.example/x")


def look(place: Path, *sources: Source, gb: float | None = None, **settings: Any) -> list[tuple[str, str]]:
    """Status and message with its advice of every finding, for one data set with these sources."""
    card = make_card()
    dataset = card.dataset.model_copy(update={"name": "toy", "sources": list(sources), "download_gb": gb})
    plain = {"fixtures": False, "datasets": {}, "fetch": SimpleNamespace(offline=False)}
    campaign = SimpleNamespace(
        config=SimpleNamespace(data=SimpleNamespace(raw=str(place / "raw/here")), **(plain | settings)),
        cards={card.id: card.model_copy(update={"dataset": dataset}), "another-task": card},
        tasks=[card.id],
    )
    found = raw(Host(cast(Any, campaign), place))
    return [(finding.status, f"{finding.message} | {finding.fix}") for finding in found]


@pytest.fixture(autouse=True)
def _disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "read_folder", lambda place: SimpleNamespace(free_bytes=100e9))
    for name in KAGGLE.credentials:
        monkeypatch.delenv(name, raising=False)


def test_nothing_to_do(tmp_path: Path) -> None:
    """Without a campaign, with made-up data, and when all is there."""
    assert list(raw(Host(None, tmp_path))) == []
    assert look(tmp_path, KAGGLE, fixtures=True) == []
    (tmp_path / "raw/here/toy").mkdir(parents=True)
    (tmp_path / "raw/here/toy/receipt.json").write_text("{}")
    assert look(tmp_path, KAGGLE) == [("ok", "1 of 1 data sets are there | ")]


def test_made_up_data(tmp_path: Path) -> None:
    """A fixture where the data should be is no data."""
    folder = tmp_path / "raw/here/toy"
    receipt = Receipt(
        dataset="toy",
        source=f"{FIXTURE_OF}url x",
        revision=None,
        licence="",
        attribution="",
        fetched_at=now(),
        files={},
    )
    write_record(folder / "receipt.json", receipt)
    ((status, text),) = look(tmp_path, PLAIN)
    assert (status, text.partition(" | ")[2]) == (
        "FAIL",
        "Delete this folder; `snakemake prepare` then fetches the data.",
    )
    assert f"{folder} holds made-up data" in text


def test_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named while they are not set, unless another source does without."""
    ((status, text),) = look(tmp_path, KAGGLE)
    assert (status, "toy does not exist: set TOY_USER, TOY_KEY" in text) == ("warn", True)
    assert [status for status, _ in look(tmp_path, KAGGLE, PLAIN)] == ["ok"]
    assert [status for status, _ in look(tmp_path, KAGGLE, MANUAL)] == ["warn"]
    for name in KAGGLE.credentials:
        monkeypatch.setenv(name, "x")
    assert [status for status, _ in look(tmp_path, KAGGLE)] == ["ok"]


def test_by_hand(tmp_path: Path) -> None:
    """Only a person can get it, or has: then the folder must be there."""
    ((status, text),) = look(tmp_path, MANUAL)
    assert (status, "toy does not exist: by hand" in text) == ("warn", True)
    own = {"toy": SimpleNamespace(path=str(tmp_path / "own"))}
    ((status, text),) = look(tmp_path, MANUAL, datasets=own)
    assert (status, "own is not a folder" in text) == ("FAIL", True)
    (tmp_path / "own").mkdir()
    assert look(tmp_path, MANUAL, datasets=own) == []
    assert look(tmp_path, Source(kind="path", where=str(tmp_path / "own"))) == []


def test_room(tmp_path: Path) -> None:
    """Twice the download: archives and what becomes of them."""
    assert [status for status, _ in look(tmp_path, PLAIN, gb=49.0)] == ["ok"]
    ((status, text),) = look(tmp_path, PLAIN, gb=51.0)
    assert status == "warn"
    assert "1 data set to be fetched may need 102 GB" in text


def test_offline(tmp_path: Path) -> None:
    (status, text), _ = look(tmp_path, PLAIN, fetch=SimpleNamespace(offline=True))
    assert (status, "toy does not exist, and fetch.offline is true" in text) == ("warn", True)
