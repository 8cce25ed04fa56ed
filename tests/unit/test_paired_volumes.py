"""Paired volumes in SynthRAD's layout: MetaImage files, from LPS to RAS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
from toys import synthesis as toy

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.datasets import get_reader
from automedbench.datasets.forms.volumes import load_volume, same_grid
from automedbench.datasets.readers.volumes import paired_volumes

SHAPE = (5, 4, 3)
SPACING, ORIGIN = (1.0, 2.0, 3.0), (-10.0, 20.0, 30.0)


def card(folder: str = "Task1/HN", suffix: str = "mha") -> TaskCard:
    options = {role: f"{folder}/{{id}}/{name}.{suffix}" for role, name in ROLES.items()}
    staging = toy.CARD.staging.model_copy(update={"reader": "paired_volumes", "options": options})
    return toy.CARD.model_copy(update={"staging": staging})


ROLES = {"input": "mr", "target": "ct", "mask": "mask"}


def marked(x: int, y: int, z: int) -> Any:
    """Zeros but for one voxel."""
    values = np.zeros(SHAPE, np.int16)
    values[x, y, z] = 100
    return values


def save_itk(path: Path, values: Any, direction: Any = None) -> Path:
    """A volume (x, y, z) with the spacing and origin above."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = SimpleITK.GetImageFromArray(np.ascontiguousarray(values.transpose(2, 1, 0)))
    image.SetSpacing(SPACING)
    image.SetOrigin(ORIGIN)
    if direction is not None:
        image.SetDirection(np.asarray(direction, float).ravel().tolist())
    SimpleITK.WriteImage(image, str(path))
    return path


def make_subject(raw: Path, name: str, suffix: str = ".mha") -> None:
    for role in ROLES.values():
        save_itk(raw / "Task1/HN" / name / f"{role}{suffix}", marked(1, 1, 1))


def test_layout(tmp_path: Path) -> None:
    """Subjects of the region in the order of their names; other regions and stray files are left alone."""
    for name in ("1HNC117", "1HNA001"):
        make_subject(tmp_path, name)
    save_itk(tmp_path / "Task1/AB/1ABA001/ct.mha", marked(0, 0, 0))
    (tmp_path / "Task1/HN/overview").mkdir()
    found = get_reader("paired_volumes")(tmp_path, card())
    assert [each.id for each in found] == ["1HNA001", "1HNC117"]
    assert [path.name for path in (found[0].target, found[0].input, found[0].mask)] == ["ct.mha", "mr.mha", "mask.mha"]


def test_nifti_layout(tmp_path: Path) -> None:
    make_subject(tmp_path, "p1", ".nii.gz")
    (found,) = paired_volumes(tmp_path, card(suffix="nii.gz"))
    assert load_volume(found.target).values.shape == SHAPE


@pytest.mark.parametrize("lost", ["mr", "mask"])
def test_incomplete_subject(tmp_path: Path, lost: str) -> None:
    make_subject(tmp_path, "p1")
    (tmp_path / f"Task1/HN/p1/{lost}.mha").unlink()
    with pytest.raises(MissingDataError, match=lost):
        paired_volumes(tmp_path, card())


@pytest.mark.parametrize("folder", ["Task1/HN", "synthRAD2025_Task1_Train/Task1/HN"])
def test_folder_around_it(tmp_path: Path, folder: str) -> None:
    """The same patients with and without the archive's own folder."""
    make_subject(tmp_path / folder.removesuffix("Task1/HN"), "1HNA001")
    options = {"roots": ["Task1/HN", "synthRAD2025_Task1_Train/Task1/HN"]}
    staging = toy.CARD.staging.model_copy(update={"reader": "paired_volumes", "options": options})
    (found,) = paired_volumes(tmp_path, toy.CARD.model_copy(update={"staging": staging}))
    assert (found.id, found.mask) == ("1HNA001", tmp_path / folder / "1HNA001/mask.mha")


# --- LPS to RAS -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "direction",
    [
        pytest.param(np.eye(3), id="axial"),
        pytest.param(np.diag([-1, 1, 1]), id="mirrored in x"),
        pytest.param(np.diag([1, -1, -1]), id="y and z reversed"),
        pytest.param([[0, 0, 1], [1, 0, 0], [0, 1, 0]], id="axes turned"),
        pytest.param([[0.8, -0.6, 0], [0.6, 0.8, 0], [0, 0, 1]], id="oblique"),
    ],
)
def test_each_voxel_stays_at_its_place(tmp_path: Path, direction: Any) -> None:
    """A marked voxel, off every centre: its place by ITK, with x and y negated, is its place by the loaded affine."""
    voxel = (4, 1, 2)
    path = save_itk(tmp_path / "ct.mha", marked(*voxel), direction)
    volume = load_volume(path)
    (found,) = np.argwhere(volume.values == 100)
    left, back, up = SimpleITK.ReadImage(str(path)).TransformIndexToPhysicalPoint(voxel)
    np.testing.assert_allclose(volume.affine @ [*found, 1], [-left, -back, up, 1], atol=1e-9)
    # Closest to RAS+: each axis points to the right, to the front, upwards.
    assert (np.diag(volume.affine)[:3] > 0).all()


def test_axial_mha_by_hand(tmp_path: Path) -> None:
    """An identity direction in LPS is LPS: both in-plane axes are flipped, and the origin moves to the other corner."""
    volume = load_volume(save_itk(tmp_path / "ct.mha", marked(4, 1, 2)))
    assert np.argwhere(volume.values == 100).tolist() == [[0, 2, 2]]
    # The last voxel along x lies at −10 + 4·1 = −6 in L, which is 6 in R; along y at 20 + 3·2 = 26 in P, so −26 in A.
    np.testing.assert_allclose(volume.affine, [[1, 0, 0, 6], [0, 2, 0, -26], [0, 0, 3, 30], [0, 0, 0, 1]])


def test_itk_and_nifti_agree(tmp_path: Path) -> None:
    """The same image written by ITK in both formats loads as the same volume."""
    direction = np.diag([-1.0, 1, -1])
    first = load_volume(save_itk(tmp_path / "ct.mha", marked(4, 1, 2), direction))
    second = load_volume(save_itk(tmp_path / "ct.nii.gz", marked(4, 1, 2), direction))
    assert same_grid(first, second)
    np.testing.assert_array_equal(first.values, second.values)


def test_unusable_files(tmp_path: Path) -> None:
    broken = tmp_path / "ct.mha"
    broken.write_bytes(b"ObjectType = Image\nNDims = 3\n")
    with pytest.raises(InfrastructureError, match=r"ct\.mha"):
        load_volume(broken)
    flat = tmp_path / "flat.mha"
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(np.zeros((4, 5), np.int16)), str(flat))
    with pytest.raises(InfrastructureError, match="axes"):
        load_volume(flat)
