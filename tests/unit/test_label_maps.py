"""Reader of label maps in a folder of their own (MSD) or beside the image (KiTS)."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from toys import with_options
from toys.segmentation import CARD

from automedbench.base.errors import ConfigError
from automedbench.datasets.readers import volumes

KITS = {"image": "data/{id}/imaging.nii.gz", "label": "data/{id}/segmentation.nii.gz"}


card = functools.partial(with_options, CARD)


def touch(raw: Path, *names: str) -> None:
    for name in names:
        (raw / name).parent.mkdir(parents=True, exist_ok=True)
        (raw / name).touch()


def test_feta(tmp_path: Path) -> None:
    """Names beside the id are the same in label and image; of two reconstructions the first counts, by name."""
    for subject, kind in (("sub-001", "mial"), ("sub-041", "irtk"), ("sub-002", "mial"), ("sub-002", "irtk")):
        touch(tmp_path, *[f"feta_2.4/{subject}/anat/{subject}_rec-{kind}_{part}.nii.gz" for part in ("T2w", "dseg")])
    touch(tmp_path, "feta_2.4/sub-007/anat/sub-007_rec-mial_T2w.nii.gz", "feta_2.4/participants.tsv")
    touch(tmp_path, "feta_2.4/derivatives/x/sub-001/anat/sub-001_rec-mial_dseg.nii.gz")
    touch(tmp_path, "feta_2.4/sub-003/anat/sub-001_rec-mial_dseg.nii.gz")  # another's file
    pattern = "{release}/{id}/anat/{id}_rec-{reconstruction}_%s.nii.gz"
    found = volumes.label_maps(tmp_path, card(image=pattern % "T2w", label=pattern % "dseg"))
    assert {subject.id: subject.image.name for subject in found} == {
        "sub-001": "sub-001_rec-mial_T2w.nii.gz",
        "sub-002": "sub-002_rec-irtk_T2w.nii.gz",
        "sub-041": "sub-041_rec-irtk_T2w.nii.gz",
    }
    assert found[1].files[1].name == "sub-002_rec-irtk_dseg.nii.gz"


def test_record_table(tmp_path: Path) -> None:
    """Its order and its choice; a subject without label map stays, so that staging can pass it over or complain."""
    touch(tmp_path, *[f"data/case_0000{n}/imaging.nii.gz" for n in range(4)])
    touch(tmp_path, *[f"data/case_0000{n}/segmentation.nii.gz" for n in (0, 1, 2)])
    records = [{"case_id": f"case_0000{n}", "malignant": n != 1} for n in (3, 2, 1, 0)]
    (tmp_path / "data/kits.json").write_text(json.dumps(records))
    table = {"file": "data/kits.json", "id": "case_id", "where": {"malignant": True}}
    found = volumes.label_maps(tmp_path, card(**KITS, table=table, lacking_labels=True))
    assert [subject.id for subject in found] == ["case_00003", "case_00002", "case_00000"]
    assert found[0].files == [tmp_path / f"data/case_00003/{name}.nii.gz" for name in ("imaging", "segmentation")]
    assert all(subject.may_lack_truth for subject in found)


def test_a_split_without_table(tmp_path: Path) -> None:
    touch(tmp_path, "labelsTr/liver_0.nii.gz", "imagesTr/liver_0.nii.gz")
    with pytest.raises(ConfigError, match=r"no staging\.options\.table"):
        volumes.label_maps(tmp_path, card("test"))


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
        volumes.label_maps(tmp_path, card(**options))
