"""Staging as a whole: public and private data and the manifest, never half of it, never moved without need."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from automedbench.base import files
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.records import Manifest, Receipt, now
from automedbench.steps import stage_task as staging
from automedbench.steps.stage_task import refuse_made_up, stage_cases

CARD = Path(__file__).resolve().parents[2] / "config/tasks/detection/bccd-det-task.yaml"
TASK = "bccd-det-task"


class Place:
    """Raw data of three 40 × 30 images with one box each, and where they are staged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.raw = folder / "raw"
        self.public, self.private = folder / "public", folder / "private"
        self.manifest = folder / "manifests" / f"{TASK}.json"
        self.card = folder / f"{TASK}.yaml"
        self.card.write_text(CARD.read_text())
        for number in range(3):
            self.image(f"image{number}", "RBC" if number else "WBC")

    def image(self, name: str, kind: str) -> Path:
        for part in ("JPEGImages", "Annotations", "ImageSets/Main"):
            (self.raw / "BCCD" / part).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30), (9, 9, 9)).save(self.raw / f"BCCD/JPEGImages/{name}.jpg")
        annotation = self.raw / f"BCCD/Annotations/{name}.xml"
        corners = "<xmin>1</xmin><ymin>1</ymin><xmax>10</xmax><ymax>10</ymax>"
        annotation.write_text(
            f"<annotation><object><name>{kind}</name><bndbox>{corners}</bndbox></object></annotation>"
        )
        with open(self.raw / "BCCD/ImageSets/Main/test.txt", "a") as stream:
            stream.write(f"{name}\n")
        return annotation

    def stage(self, *, excerpt: bool = False) -> Manifest:
        return stage_cases(self.card, self.raw, self.public, self.private, self.manifest, excerpt=excerpt)

    def everything(self) -> dict[str, tuple[int, bytes]]:
        """Path → inode and content of all staged files."""
        return {
            str(path): (path.stat().st_ino, path.read_bytes())
            for root in (self.public, self.private)
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# --- nothing there --------------------------------------------------------------------------------------------


def test_no_raw_data(place: Place) -> None:
    """Says what is missing and how to get it, and leaves nothing behind."""
    place.raw.rename(place.folder / "elsewhere")
    with pytest.raises(MissingDataError, match=r"test\.txt .* does not exist") as caught:
        place.stage()
    assert "fetch it again" in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3
    assert not place.everything()
    assert not place.manifest.exists()


# --- what is written ------------------------------------------------------------------------------------------


def test_manifest_and_files(place: Place) -> None:
    manifest = place.stage()
    assert files.read_record(place.manifest, Manifest) == manifest
    assert manifest.case_ids == ["bccd_0001", "bccd_0002", "bccd_0003"]
    assert (manifest.task, manifest.task_version, manifest.track, manifest.dataset) == (TASK, 1, "detection", "bccd")
    for case in manifest.cases:
        for root, entries in ((place.public, case.inputs), (place.private, case.private)):
            for name, entry in entries.items():
                path = root / TASK / case.id / name
                assert (files.sha256_file(path), path.stat().st_size) == (entry.sha256, entry.bytes)


def test_manifest_gives_no_answer_away(place: Place) -> None:
    """Agents do not see it, but operators show it around: hashes of private files and nothing else of them."""
    place.stage()
    text = place.manifest.read_text()
    assert not any(secret in text for secret in ("image0", "rbc", "RBC", "x1", '"boxes"', "image_id"))


def test_private_root_is_closed_to_others(place: Place) -> None:
    place.stage()
    assert stat.S_IMODE(place.private.stat().st_mode) & 0o007 == 0
    assert stat.S_IMODE((place.public / TASK).stat().st_mode) & 0o055 == 0o055


def test_two_tasks_beside_each_other(place: Place) -> None:
    """Staging one task leaves another one alone."""
    place.stage()
    before = place.everything()
    data = yaml.safe_load(place.card.read_text()) | {"id": "other-task"}
    card = place.folder / "other-task.yaml"
    card.write_text(yaml.safe_dump(data))
    stage_cases(card, place.raw, place.public, place.private, place.folder / "manifests/other-task.json")
    assert before.items() <= place.everything().items()
    assert sorted(path.name for path in place.public.iterdir()) == [TASK, "other-task"]


# --- again ----------------------------------------------------------------------------------------------------


def test_again_moves_nothing(place: Place) -> None:
    """A run may be reading the public data at this moment: same files, same inodes, same manifest."""
    place.stage()
    before, manifest = place.everything(), place.manifest.read_bytes()
    place.stage()
    assert place.everything() == before
    assert place.manifest.read_bytes() == manifest


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda place: _cut(place.public / TASK / "bccd_0001/image.png"), id="an image cut off"),
        pytest.param(lambda place: (place.private / TASK / "bccd_0002/boxes.json").unlink(), id="an answer gone"),
        pytest.param(lambda place: place.manifest.unlink(), id="manifest gone"),
        pytest.param(lambda place: place.manifest.write_text("{"), id="manifest damaged"),
    ],
)
def test_again_repairs(place: Place, damage: Any) -> None:
    """Whatever was lost comes back with the same bytes."""
    manifest = place.stage()
    contents = {path: content for path, (_, content) in place.everything().items()}
    damage(place)
    assert place.stage() == manifest
    assert {path: content for path, (_, content) in place.everything().items()} == contents
    assert files.read_record(place.manifest, Manifest) == manifest


def test_changed_data_replaces_everything(place: Place) -> None:
    """Cases that are gone upstream are gone, on both sides."""
    place.stage()
    split = place.raw / "BCCD/ImageSets/Main/test.txt"
    split.write_text("image0\n")
    assert place.stage().case_ids == ["bccd_0001"]
    assert {path.name for path in (place.public / TASK).iterdir()} == {"bccd_0001"}
    assert {path.name for path in (place.private / TASK).iterdir()} == {
        "bccd_0001",
        "ground_truth.csv",
        "split.json",
    }


# --- failures -------------------------------------------------------------------------------------------------


def test_unreadable_annotation_keeps_what_is_staged(place: Place) -> None:
    """The old data stays until the new one is complete."""
    place.stage()
    before, manifest = place.everything(), place.manifest.read_bytes()
    place.image("image3", "RBC").write_text("<annotation><object>")
    with pytest.raises(InfrastructureError, match=r"image3\.xml: is not a readable annotation.*\n.*fetch") as caught:
        place.stage()
    assert str(caught.value).startswith(f"{TASK}: ")
    assert len(str(caught.value).splitlines()) <= 3
    assert (place.everything(), place.manifest.read_bytes()) == (before, manifest)
    assert sorted(path.name for path in place.public.iterdir()) == [TASK]


def test_interrupted_between_the_two_sides(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Public data is new and private data old: without its manifest nothing uses them, and the next call repairs."""
    place.stage()
    (place.raw / "BCCD/ImageSets/Main/test.txt").write_text("image0\nimage1\n")
    replace, calls = staging._replace, []

    def once(*arguments: Path) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        replace(*arguments)

    monkeypatch.setattr(staging, "_replace", once)
    with pytest.raises(KeyboardInterrupt):
        place.stage()
    assert not place.manifest.exists()
    monkeypatch.undo()
    assert place.stage().case_ids == ["bccd_0001", "bccd_0002"]
    for root in (place.public, place.private):
        cases = {path.name for path in (root / TASK).iterdir() if path.is_dir()}
        assert cases == {"bccd_0001", "bccd_0002"}


@pytest.fixture
def killed(place: Place) -> Path:
    """What a staging that was killed leaves on the public side."""
    place.stage()
    folder = place.public / f".{TASK}.a1b2c3_d"
    (folder / TASK / "bccd_0001").mkdir(parents=True)
    (folder / TASK / "bccd_0001/image.png").write_bytes(b"half")
    return folder


def test_what_a_killed_staging_left_is_removed(place: Place, killed: Path) -> None:
    """Not what other tasks have there."""
    other = place.public / ".other-task.a1b2c3_d"
    other.mkdir()
    place.stage()
    assert {path.name for path in place.public.iterdir()} == {TASK, other.name}


def test_a_staging_that_lives_is_left_alone(place: Place, killed: Path) -> None:
    with staging._lock_folder(killed) as ours:
        assert ours
        place.stage()
        assert (killed / TASK / "bccd_0001/image.png").exists()


def test_made_up_data_is_refused(place: Place) -> None:
    """Also where its receipt lies in the real data's folder."""
    known: dict[str, Any] = {"dataset": "bccd", "revision": None, "licence": "MIT", "attribution": ""}
    known["files"] = {"a.txt": {"sha256": "0" * 64, "bytes": 1}}
    for source, made_up in (("git https://example.org", False), ("fixture of git https://example.org", True)):
        files.write_record(place.raw / "receipt.json", Receipt(**known, source=source, fetched_at=now()))
        with pytest.raises(InfrastructureError, match="made-up") if made_up else contextlib.nullcontext() as caught:
            refuse_made_up(place.raw)
        assert caught is None or len(str(caught.value).splitlines()) <= 3


def test_a_folder_without_receipt_is_refused(place: Place) -> None:
    """A download that broke off has none."""
    with pytest.raises(MissingDataError, match=r"no receipt\.json.*\n.*snakemake prepare"):
        refuse_made_up(place.raw)


# --- a part of a data set ---------------------------------------------------------------------------------------


def test_too_few_cases_are_an_error_unless_it_is_said_so(tmp_path: Path) -> None:
    """A download that broke off must not become a smaller benchmark; an excerpt is staged whole and says what it is."""
    place = Place(tmp_path)
    card = yaml.safe_load(place.card.read_text())
    card["staging"]["sampling"]["count"] = 4
    place.card.write_text(yaml.safe_dump(card))
    with pytest.raises(InfrastructureError, match="asks for 4 cases, but the split has 3"):
        place.stage()
    staged = place.stage(excerpt=True)
    assert len(staged.cases) == 3
    assert "of an excerpt of the data set" in staged.sampling
