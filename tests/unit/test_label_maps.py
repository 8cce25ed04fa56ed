"""Reader of label maps in a folder of their own (MSD) or beside the image (KiTS)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from toys.segmentation import CARD

from automedbench.cards import TaskCard
from automedbench.datasets.readers import label_maps
from automedbench.datasets.volumes import MaskPart
from automedbench.errors import ConfigError, MissingDataError

KITS = {"image": "data/{id}/imaging.nii.gz", "label": "data/{id}/segmentation.nii.gz"}


def card(**options: Any) -> TaskCard:
    """The toy's card for label maps."""
    value = CARD.model_dump()
    value["staging"]["options"] = options
    return TaskCard.model_validate(value)


def touch(raw: Path, *names: str) -> None:
    for name in names:
        (raw / name).parent.mkdir(parents=True, exist_ok=True)
        (raw / name).touch()


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="No file fits"):
        label_maps.read(tmp_path, card())


def test_msd(tmp_path: Path) -> None:
    """Labelled cases only, in sorted order; files of macOS are skipped; targets are their ids."""
    touch(tmp_path, "imagesTr/liver_0.nii.gz", "imagesTr/liver_10.nii.gz", "imagesTr/._liver_0.nii.gz")
    touch(tmp_path, "labelsTr/liver_0.nii.gz", "labelsTr/liver_10.nii.gz", "labelsTr/._liver_0.nii.gz")
    touch(tmp_path, "imagesTs/liver_1.nii.gz", "dataset.json")
    found = label_maps.read(tmp_path, card())
    assert [subject.id for subject in found] == ["liver_0", "liver_10"]
    label = tmp_path / "labelsTr/liver_0.nii.gz"
    assert found[0].image == tmp_path / "imagesTr/liver_0.nii.gz"
    assert found[0].parts == {
        name: (MaskPart(label, (number,)),) for number, name in enumerate(("liver", "spleen", "aorta"), start=1)
    }


def test_kits(tmp_path: Path) -> None:
    """The label map lies beside the image; unlabelled cases are left out; organ = kidney or tumour."""
    touch(tmp_path, *[f"data/case_0000{n}/imaging.nii.gz" for n in range(3)], "data/kits.json")
    touch(tmp_path, "data/case_00000/segmentation.nii.gz", "data/case_00002/segmentation.nii.gz")
    found = label_maps.read(tmp_path, card(**KITS, labels={"liver": [1, 2], "spleen": [2]}))
    assert [subject.id for subject in found] == ["case_00000", "case_00002"]
    assert [parts[0].values for parts in found[0].parts.values()] == [(1, 2), (2,), (3,)]
    assert len(found[0].files) == 2


def test_image_is_missing(tmp_path: Path) -> None:
    touch(tmp_path, "labelsTr/liver_0.nii.gz")
    with pytest.raises(MissingDataError, match=r"imagesTr/liver_0.nii.gz does not exist"):
        label_maps.read(tmp_path, card())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"label": "labels.nii.gz"}, "needs {id}", id="no place for the subject"),
        pytest.param({"labels": {"lungs": [4]}}, "'lungs' is no target", id="unknown target"),
        pytest.param({"labels": {"liver": "1"}}, "labels", id="not a list"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    touch(tmp_path, "labelsTr/liver_0.nii.gz", "imagesTr/liver_0.nii.gz")
    with pytest.raises(ConfigError, match=message):
        label_maps.read(tmp_path, card(**options))
