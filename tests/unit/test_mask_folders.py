"""Reader of one folder per subject with a mask per structure: subjects, splits, structures, what is missing."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from toys import with_options
from toys.segmentation import CARD, make_raw

from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.datasets.forms.volumes import SourceSegmentation
from automedbench.datasets.readers import volumes

META = {"file": "meta.csv", "delimiter": ";", "id": "image_id", "split": "split"}


card = functools.partial(with_options, CARD)


def touch(raw: Path, *names: str) -> None:
    """Empty files: the reader looks at names only."""
    for name in names:
        (raw / name).parent.mkdir(parents=True, exist_ok=True)
        (raw / name).touch()


def names(subject: SourceSegmentation, raw: Path) -> dict[str, list[str]]:
    """Target → files of its parts."""
    return {
        target: [part.path.relative_to(raw).as_posix() for part in parts] for target, parts in subject.parts.items()
    }


def test_split(tmp_path: Path) -> None:
    """Only the subjects of the split, by the upstream table and in its order."""
    make_raw(tmp_path)
    assert [subject.id for subject in volumes.mask_folders(tmp_path, card("train", table=META))] == ["s0000"]
    table = tmp_path / "meta.csv"
    table.write_text("image_id;split\ns0033;test\ns0000;train\ns0011;test\ns0033;test\n")
    assert [subject.id for subject in volumes.mask_folders(tmp_path, card("test", table=META))] == ["s0033", "s0011"]
    with pytest.raises(InfrastructureError, match="lists no subject"):
        volumes.mask_folders(tmp_path, card("val", table=META))
    with pytest.raises(ConfigError, match=r"no staging\.options\.table"):
        volumes.mask_folders(tmp_path, card("test"))
    with pytest.raises(ConfigError, match=r"table\.split"):
        volumes.mask_folders(tmp_path, card("test", table=META | {"split": None}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "does not exist", id="no table"),
        pytest.param(b"image_id,split\ns0000,train\n", "no column 'image_id'", id="other delimiter"),
        pytest.param(b"image_id;split\n\xff\xfe;train\n", "not a readable table", id="not UTF-8"),
    ],
)
def test_bad_split_table(content: bytes | None, message: str, tmp_path: Path) -> None:
    make_raw(tmp_path)
    (tmp_path / "meta.csv").unlink()
    if content is not None:
        (tmp_path / "meta.csv").write_bytes(content)
    with pytest.raises(InfrastructureError, match=message):
        volumes.mask_folders(tmp_path, card("train", table=META))


def test_listed_subjects(tmp_path: Path) -> None:
    """With a table its subjects are taken, in its order; whether their files are there is seen when they are staged."""
    touch(tmp_path, "PanTS_1/ct.nii.gz", "PanTS_2/ct.nii.gz")
    (tmp_path / "list.csv").write_text("id,tumor?\nPanTS_3,1\nPanTS_2,0\nPanTS_1,1\n")
    table = {"file": "list.csv", "id": "id", "where": {"tumor?": 1}}
    found = volumes.mask_folders(tmp_path, card(table=table))
    assert [subject.id for subject in found] == ["PanTS_3", "PanTS_1"]
    assert found[0].files[:2] == [tmp_path / "PanTS_3/ct.nii.gz", tmp_path / "PanTS_3/segmentations/liver.nii.gz"]
    assert not any(subject.may_lack_truth for subject in found)


def test_aeropath(tmp_path: Path) -> None:
    """Masks beside the image, the subject's name in every file name."""
    touch(tmp_path, *[f"10/10_CT_HR{part}.nii.gz" for part in ("", "_label_liver", "_label_spleen", "_label_aorta")])
    touch(tmp_path, "10/11_CT_HR.nii.gz", "._9/._9_CT_HR.nii.gz")  # another's file, and a copy that macOS left
    options = {"image": "{id}/{id}_CT_HR.nii.gz", "mask": "{id}/{id}_CT_HR_label_{structure}.nii.gz"}
    (subject,) = volumes.mask_folders(tmp_path, card(**options))
    assert subject.id == "10"
    assert names(subject, tmp_path)["spleen"] == ["10/10_CT_HR_label_spleen.nii.gz"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"image": "ct.nii.gz"}, "needs {id}", id="no place for the subject"),
        pytest.param({"structures": {"lungs": ["lung"]}}, "'lungs' is no target", id="unknown target"),
        pytest.param({"images": "{id}"}, "image", id="misspelt option"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    make_raw(tmp_path)
    with pytest.raises(ConfigError, match=message):
        volumes.mask_folders(tmp_path, card(**options))
