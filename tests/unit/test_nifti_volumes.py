"""NIfTI volumes by a pattern, loaded in canonical orientation."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from toys import synthesis as toy
from toys import with_options

from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.datasets.forms.volumes import SourceVolume, load_volume
from automedbench.datasets.readers.volumes import nifti_volumes

card = functools.partial(with_options, toy.CARD)


def save(path: Path, values: Any, affine: Any = None, **header: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = nibabel.Nifti1Image(np.asarray(values), np.eye(4) if affine is None else np.asarray(affine, float))
    for name, value in header.items():
        image.header[name] = value
    nibabel.save(image, path)
    return path


SMALL = np.arange(24, dtype=np.int16).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("pattern", "names", "expected"),
    [
        pytest.param("{id}/ct.nii.gz", ["s2/ct.nii.gz", "s1/ct.nii.gz"], ["s1", "s2"], id="TotalSegmentator"),
        pytest.param("{id}/ct.nii.gz", ["s1/ct.nii.gz", "s1/mr.nii.gz", "ct.nii.gz"], ["s1"], id="other files"),
        pytest.param("imagesTr/{id}.nii.gz", ["imagesTr/a_2.nii.gz", "imagesTr/._a_1.nii.gz"], ["a_2"], id="MSD"),
        pytest.param("volume-{id}.nii.gz", ["volume-7.nii.gz", "labels-7.nii.gz"], ["7"], id="CT-ORG"),
    ],
)
def test_layouts(tmp_path: Path, pattern: str, names: list[str], expected: list[str]) -> None:
    """Subjects in the order of their names; nothing is opened."""
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"not opened")
    found = nifti_volumes(tmp_path, card(image=pattern))
    assert [each.id for each in found] == expected
    assert all(each.target.is_file() and each.files == {"target": each.target} for each in found)


def test_several_places(tmp_path: Path) -> None:
    """Both parts of the Decathlon together; a pattern that fits nothing is fine as long as another one does."""
    for name in ("imagesTr/a_2.nii.gz", "imagesTs/a_1.nii.gz", "imagesTs/a_3.nii.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"not opened")
    patterns = ["elsewhere/{id}.nii.gz", "imagesTr/{id}.nii.gz", "imagesTs/{id}.nii.gz"]
    assert [each.id for each in nifti_volumes(tmp_path, card(image=patterns))] == ["a_1", "a_2", "a_3"]
    assert [each.id for each in nifti_volumes(tmp_path, card(image=patterns, exclude=["a_2", "b"]))] == ["a_1", "a_3"]
    (tmp_path / "imagesTr/a_1.nii.gz").write_bytes(b"another one")
    with pytest.raises(InfrastructureError, match=r"imagesTr/a_1\.nii\.gz and .*imagesTs/a_1\.nii\.gz are both"):
        nifti_volumes(tmp_path, card(image=patterns))


@pytest.mark.parametrize("options", [{"image": "*/ct.nii.gz"}, {"images": "{id}/ct.nii.gz"}], ids=["no id", "misspelt"])
def test_options_without_sense(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        nifti_volumes(tmp_path, card(**options))


# --- loading ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axes", "flips"),
    [
        pytest.param((0, 1, 2), (), id="RAS as it is"),
        pytest.param((0, 1, 2), (0, 1), id="LPS"),
        pytest.param((0, 1, 2), (2,), id="head to feet"),
        pytest.param((2, 0, 1), (0, 2), id="slices first, turned and flipped"),
    ],
)
def test_orientation(tmp_path: Path, axes: tuple[int, ...], flips: tuple[int, ...]) -> None:
    """However a volume is stored, each value stays at its place in space, and axis 2 points upwards."""
    affine = np.diag([2.0, 3, 4, 1])
    affine[:3, 3] = [-10, 5, 7]
    stored, turned = SMALL, affine
    for axis in flips:
        flip = np.eye(4)
        flip[axis, axis], flip[axis, 3] = -1, SMALL.shape[axis] - 1
        stored, turned = np.flip(stored, axis), turned @ flip
    stored, turned = stored.transpose(axes), turned[:, [*axes, 3]]
    volume = load_volume(save(tmp_path / "ct.nii.gz", stored, turned))
    np.testing.assert_array_equal(volume.values, SMALL)
    np.testing.assert_allclose(volume.affine, affine, atol=1e-5)
    assert volume.spacing == pytest.approx((2, 3, 4))


@pytest.mark.parametrize(
    ("values", "header", "dtype"),
    [
        pytest.param(SMALL, {}, np.uint8, id="small integers"),
        pytest.param(SMALL - 1000, {}, np.int16, id="HU"),
        pytest.param(SMALL.astype(np.int32) * 100_000, {}, np.int32, id="large integers"),
        pytest.param(SMALL.astype(np.uint16) + 60_000, {}, np.int32, id="beyond int16"),
        pytest.param(SMALL * 0.5, {}, np.float32, id="float64"),
        pytest.param(SMALL, {"scl_slope": 0.5, "scl_inter": -3}, np.float32, id="scaled"),
    ],
)
def test_types(tmp_path: Path, values: Any, header: dict[str, float], dtype: Any) -> None:
    """Integers stay exact in the smallest usual type; scaled and floating values become float32."""
    path = save(tmp_path / "ct.nii.gz", values, **header)
    volume = load_volume(path)
    assert volume.values.dtype == dtype
    np.testing.assert_array_equal(volume.values, nibabel.load(path).get_fdata())


@pytest.mark.parametrize(
    ("values", "affine"),
    [
        pytest.param(SMALL[..., None], None, id="four axes"),
        pytest.param(SMALL[:, :, 0], None, id="two axes"),
        pytest.param(SMALL[:, :, :1], None, id="a single slice"),
        pytest.param(SMALL, np.diag([1, 1, 0, 1]), id="flat in space"),
    ],
)
def test_unusable_volumes(tmp_path: Path, values: Any, affine: Any) -> None:
    path = save(tmp_path / "ct.nii.gz", values)
    if affine is not None:
        image = nibabel.Nifti1Image(values, None)
        image.header.set_sform(affine, 1)
        nibabel.save(image, path)
    with pytest.raises(InfrastructureError, match=r"ct\.nii\.gz"):
        load_volume(path)


def test_damaged_file(tmp_path: Path) -> None:
    path = save(tmp_path / "ct.nii.gz", SMALL)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InfrastructureError, match=r"ct\.nii\.gz"):
        load_volume(path)


def test_record() -> None:
    """Roles that are not there are left out."""
    assert list(SourceVolume("s1", Path("ct"), Path("mr"), Path("mask")).files) == ["target", "input", "mask"]
