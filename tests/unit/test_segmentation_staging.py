"""Segmentation's staging: which subjects are taken in which order, what is passed over, and unusual volumes."""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from toys.segmentation import AFFINE, CARD, nifti

from automedbench.base.cards import TaskCard, load_card
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.workers import limit_workers
from automedbench.datasets.forms.volumes import SourceReader, open_source
from automedbench.datasets.sampling import replace_sampling
from automedbench.steps.stage_task import stage_cases
from automedbench.tracks.segmentation import TRACK as segmentation

NIBABEL: Any = nibabel
SHAPE = (5, 4, 3)
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


def card(
    count: int | None = None, table: dict[str, Any] | None = None, lacking: bool = False, **sampling: Any
) -> TaskCard:
    """The toy's card for label maps of two targets."""
    value = CARD.model_dump()
    value["targets"] = [{"id": 1, "name": "organ"}, {"id": 2, "name": "tumour"}]
    value["staging"] |= {"reader": "label_maps", "options": {"table": table, "lacking_labels": lacking}}
    value["staging"]["sampling"] |= {"count": count, "options": sampling}
    return TaskCard.model_validate(value)


def subject(raw: Path, name: str, label: bytes | None = None, *, tumour: bool = True) -> None:
    """Image and label map of one subject; every one with an organ."""
    values = np.zeros(SHAPE, np.uint8)
    values[1:3] = 1
    values[2, 2, 1] = 2 if tumour else 1
    for folder, data in (("imagesTr", nifti(np.zeros(SHAPE, np.int16))), ("labelsTr", label or nifti(values))):
        (raw / folder).mkdir(parents=True, exist_ok=True)
        (raw / folder / f"{name}.nii.gz").write_bytes(data)


def stage(tmp_path: Path, chosen: TaskCard, raw: Path | None = None) -> dict[str, Any]:
    """``split.json`` after staging."""
    segmentation.stage(chosen, raw or tmp_path / "raw", tmp_path / "public", tmp_path / "private")
    split: dict[str, Any] = json.loads((tmp_path / "private/split.json").read_text())
    return split


def order_of(split: dict[str, Any]) -> list[str]:
    return [case["subject"] for case in split["cases"].values()]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        pytest.param("sorted", ["liver_0", "liver_1", "liver_10", "liver_2"], id="as text"),
        pytest.param("numeric", ["liver_0", "liver_1", "liver_2", "liver_10"], id="by number"),
        pytest.param("listed", ["liver_2", "liver_10", "liver_0", "liver_1"], id="as the table"),
        pytest.param("shuffled", None, id="by seed"),
    ],
)
def test_order(order: str, expected: list[str] | None, tmp_path: Path) -> None:
    names = ["liver_2", "liver_10", "liver_0", "liver_1"]
    for name in names:
        subject(tmp_path / "raw", name)
    (tmp_path / "raw/list.csv").write_text("".join(f"{name}\n" for name in ["name", *names]))
    split = stage(tmp_path, card(table={"file": "list.csv", "id": "name"}, order=order))
    by_hash = sorted(names, key=lambda name: hashlib.sha256(f"42\n{name}".encode()).hexdigest())
    assert order_of(split) == (expected or by_hash)


@pytest.mark.parametrize("workers", [1, 3])
def test_first_that_have_every_target(tmp_path: Path, workers: int) -> None:
    for name, tumour in (("a", False), ("b", True), ("c", False), ("d", True), ("e", True)):
        subject(tmp_path / "raw", name, tumour=tumour)
    with limit_workers(workers):
        assert order_of(stage(tmp_path, card(2, order="sorted", require=["tumour"]))) == ["b", "d"]


@pytest.mark.parametrize("workers", [1, 3])
def test_scanning_for_targets_reads_no_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    """An image is opened only where its subject is taken, and no label map behind the last that is.

    A label map is opened for its geometry and once for the voxels of all its targets, beside looking for them.
    """
    for name, tumour in (("a", False), ("b", True), ("c", True)):
        subject(tmp_path / "raw", name, tumour=tumour)
    opened: list[Path] = []

    def recorded(path: Path) -> contextlib.AbstractContextManager[SourceReader]:
        opened.append(path)
        return open_source(path)

    monkeypatch.setattr("automedbench.tracks.segmentation.stage.open_source", recorded)
    monkeypatch.setattr("automedbench.datasets.forms.volumes.open_source", recorded)
    with limit_workers(workers):
        stage(tmp_path, card(1, order="sorted", require=["tumour"]))
    assert {path.name for path in opened if path.parent.name == "imagesTr"} == {"b.nii.gz"}
    assert {path.name for path in opened if path.parent.name == "labelsTr"} == {"a.nii.gz", "b.nii.gz"}
    assert opened.count(tmp_path / "raw/labelsTr/b.nii.gz") == 3


def test_passed_over(tmp_path: Path) -> None:
    """Where upstream is known to lack label maps the next subject is taken; the table says why."""
    for name in ("a", "c", "e"):
        subject(tmp_path / "raw", name)
    subject(tmp_path / "raw", "b", POINTER)
    (tmp_path / "raw/list.csv").write_text("name\na\nb\nx\nc\ne\n")
    table = {"file": "list.csv", "id": "name"}
    split = stage(tmp_path, card(2, table, lacking=True, order="listed"))
    assert order_of(split) == ["a", "c"]
    assert split["passed_over"] == {
        "b": "b.nii.gz is a Git LFS pointer, not the volume",
        "x": "x.nii.gz does not exist",
    }
    with pytest.raises(InfrastructureError, match="asks for 4 cases, but only 3 of 5 are fit"):
        stage(tmp_path, card(4, table, lacking=True, order="listed"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("b", "b.nii.gz is a Git LFS pointer", id="pointer"),
        pytest.param("x", "x.nii.gz does not exist", id="absent"),
    ],
)
def test_truth_must_be_there(name: str, message: str, tmp_path: Path) -> None:
    """Without that knowledge a missing label map is an error, but not before its subject's turn."""
    subject(tmp_path / "raw", "a")
    subject(tmp_path / "raw", "b", POINTER)
    (tmp_path / "raw/list.csv").write_text(f"name\na\n{name}\n")
    table = {"file": "list.csv", "id": "name"}
    assert order_of(stage(tmp_path, card(1, table, order="listed"))) == ["a"]
    with pytest.raises(MissingDataError, match=message) as caught:
        stage(tmp_path, card(2, table, order="listed"))
    assert len(str(caught.value).splitlines()) <= 3


def test_a_scan_must_be_there(tmp_path: Path) -> None:
    """A subject with a label map but without a scan is never passed over: the choice would depend on the download."""
    subject(tmp_path / "raw", "a")
    subject(tmp_path / "raw", "b")
    (tmp_path / "raw/imagesTr/a.nii.gz").unlink()
    (tmp_path / "raw/list.csv").write_text("name\na\nb\n")
    with pytest.raises(MissingDataError, match=r"imagesTr/a\.nii\.gz does not exist; subject 'a'"):
        stage(tmp_path, card(1, {"file": "list.csv", "id": "name"}, lacking=True, order="listed"))


@pytest.mark.parametrize("folder", ["imagesTr", "labelsTr"])
@pytest.mark.parametrize("damage", ["half of it", "not a volume inside"])
def test_a_damaged_file_among_good_ones(folder: str, damage: str, tmp_path: Path) -> None:
    """It is named with what to do, and nothing is staged."""
    for name in ("a", "b", "c"):
        subject(tmp_path / "raw", name)
    path = tmp_path / f"raw/{folder}/b.nii.gz"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] if damage == "half of it" else gzip.compress(bytes(5000), mtime=0))
    with pytest.raises(InfrastructureError, match=rf"{folder}/b\.nii\.gz: .*\nDelete the file and fetch") as caught:
        stage(tmp_path, card(order="sorted"))
    assert len(str(caught.value).splitlines()) <= 3
    assert not (tmp_path / "private/split.json").exists()


def test_two_channels(tmp_path: Path) -> None:
    """A 4-D image is handed on as it is; truth and the expected geometry are 3-D."""
    subject(tmp_path / "raw", "a")
    image = np.arange(5 * 4 * 3 * 2, dtype=np.float32).reshape(*SHAPE, 2)
    (tmp_path / "raw/imagesTr/a.nii.gz").write_bytes(nifti(image))
    (entry,) = segmentation.stage(card(), tmp_path / "raw", tmp_path / "public", tmp_path / "private")
    staged: Any = NIBABEL.load(tmp_path / f"public/{entry.id}/ct.nii.gz")
    np.testing.assert_array_equal(np.asarray(staged.dataobj), image)
    truth: Any = NIBABEL.load(tmp_path / f"private/{entry.id}/dseg.nii.gz")
    assert truth.shape == SHAPE
    assert entry.geometry["shape"] == list(SHAPE)
    assert len(entry.geometry["spacing"]) == 3
    np.testing.assert_allclose(truth.affine, AFFINE)


def test_real_volumes(shared: Path, root: Path, tmp_path: Path) -> None:
    """The published example through label maps and through one mask per structure: the same truth, ids remapped.

    Its 41 structures are those that the example's SOURCE.md counts; upstream 1, 2, 3, 5 and 52 become 84, 43, 42, 44
    and 3 (alphabetical order).
    """
    folder = shared / "data/totalsegmentator_example"
    upstream: Any = NIBABEL.load(folder / "example_seg.nii.gz")
    labels = np.asarray(upstream.dataobj)
    with open(folder / "label_map_upstream_v2.csv", encoding="utf-8") as stream:
        ids = {row["name"]: int(row["id"]) for row in csv.DictReader(stream)}
    path = root / "config/tasks/segmentation/tsg-multiorgan-seg-task.yaml"
    value = load_card(path).model_dump()
    value["staging"] |= {
        "reader": "label_maps",
        "options": {"labels": {name: [number] for name, number in ids.items()}},
    }
    value["staging"]["sampling"]["count"] = None
    maps, masks = tmp_path / "maps", tmp_path / "masks/raw"
    for place in (maps / "raw/imagesTr", maps / "raw/labelsTr", masks / "s0001/segmentations"):
        place.mkdir(parents=True)
    for name, part in (("example_ct_sm", "imagesTr"), ("example_seg", "labelsTr")):
        (maps / f"raw/{part}/s0001.nii.gz").write_bytes((folder / f"{name}.nii.gz").read_bytes())
    (masks / "s0001/ct.nii.gz").write_bytes((folder / "example_ct_sm.nii.gz").read_bytes())
    for name, number in ids.items():
        data = nifti((labels == number).astype(np.uint8), upstream.affine)
        (masks / f"s0001/segmentations/{name}.nii.gz").write_bytes(data)

    (entry,) = segmentation.stage(TaskCard.model_validate(value), maps / "raw", maps / "public", maps / "private")
    manifest = stage_cases(path, masks, masks / "public", masks / "private", masks / "m.json", excerpt=True)
    assert entry.private["dseg.nii.gz"].sha256 == manifest.cases[0].private["dseg.nii.gz"].sha256
    truth: Any = NIBABEL.load(maps / "private/TSG_0001/dseg.nii.gz")
    remapped = np.asarray(truth.dataobj)
    assert {int(number) for number in np.unique(remapped)} - {0} == {
        target.id for target in load_card(path).targets if (labels == ids[target.name]).any()
    }
    assert len(np.unique(labels)) - 1 == 41
    for before, after in ((1, 84), (2, 43), (3, 42), (5, 44), (52, 3)):
        np.testing.assert_array_equal(labels == before, remapped == after)
    with open(maps / "private/ground_truth.csv", encoding="utf-8") as stream:
        assert sum(int(row["voxels"]) > 0 for row in csv.DictReader(stream)) == 41


@pytest.mark.parametrize("order", ["shuffled", "numeric"])
def test_a_fresh_draw_takes_other_subjects(tmp_path: Path, order: str) -> None:
    """Ten subjects, four published: four of the other six, and another four of them by another seed."""
    for number in range(10):
        subject(tmp_path / "raw", f"liver_{number}")
    published = card(4, order=order)
    found = {}
    for seed in (None, 7, 8):
        sampling = published.staging.sampling
        chosen = published if seed is None else replace_sampling(published, **dict(sampling.fresh(seed)))
        found[seed] = set(order_of(stage(tmp_path / str(seed), chosen, raw=tmp_path / "raw")))
    assert all(len(subjects) == 4 for subjects in found.values())
    assert found[None].isdisjoint(found[7] | found[8]) and found[7] != found[8]


def test_a_fresh_draw_needs_more_subjects(tmp_path: Path) -> None:
    """Five subjects, three published; an excerpt is staged whole. Nothing is left behind."""
    for number in range(5):
        subject(tmp_path / "raw", f"liver_{number}")
    path = tmp_path / f"{CARD.id}.yaml"
    path.write_text(json.dumps(card(3).model_dump(mode="json", by_alias=True)))
    places = tmp_path / "raw", tmp_path / "public", tmp_path / "private", tmp_path / "manifest.json"
    with pytest.raises(InfrastructureError, match="no fresh draw: 2 of 5 are left besides the published one of 3"):
        stage_cases(path, *places, draw=7)
    with pytest.raises(InfrastructureError, match="no fresh draw: of an excerpt"):
        stage_cases(path, *places, draw=7, excerpt=True)
    assert not (tmp_path / "manifest.json").exists() and list((tmp_path / "public").iterdir()) == []
