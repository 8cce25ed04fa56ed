"""Slices of NIfTI volumes: the right plane, the right way up, whatever the stored orientation."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import with_options
from toys.enhancement import make_card

from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.datasets.readers import slices
from automedbench_rehearsal.making.scans import nifti

# Patient's axes: x to the right, y to the front, z to the head. Every voxel tells its place: 100x + 10y + z.
SIDES = (3, 4, 5)
PLACES = np.fromfunction(lambda x, y, z: 100 * x + 10 * y + z, SIDES).astype(np.int16)


card = functools.partial(with_options, make_card(), images=["*.nii.gz"])


def save(path: Path, values: Any = PLACES, affine: Any = None, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(nifti(np.asarray(values), affine, **options))
    return path


def only(raw: Path, **options: Any) -> np.ndarray:
    """Pixels of the only slice."""
    (found,) = slices.volume_slices(raw, card(**options))
    return found.pixels()


def test_axial(tmp_path: Path) -> None:
    """⌊0.5 · 5⌋ = 2 from the feet. First row: front (y = 3); first column: the patient's right (x = 2)."""
    save(tmp_path / "a.nii.gz")
    assert only(tmp_path).tolist() == [[100 * x + 10 * y + 2 for x in (2, 1, 0)] for y in (3, 2, 1, 0)]


def test_coronal(tmp_path: Path) -> None:
    """⌊0.5 · 4⌋ = 2 from the back. First row: head (z = 4); first column: the patient's right."""
    save(tmp_path / "a.nii.gz")
    assert only(tmp_path, axis="coronal").tolist() == [[100 * x + 20 + z for x in (2, 1, 0)] for z in (4, 3, 2, 1, 0)]


def test_sagittal(tmp_path: Path) -> None:
    """⌊0.5 · 3⌋ = 1 from the left. First row: head; first column: front (y = 3)."""
    save(tmp_path / "a.nii.gz")
    assert only(tmp_path, axis="sagittal").tolist() == [
        [100 + 10 * y + z for y in (3, 2, 1, 0)] for z in (4, 3, 2, 1, 0)
    ]


ORDERS = list(itertools.permutations(range(3)))
FLIPS = list(itertools.product((1, -1), repeat=3))


@pytest.mark.parametrize("axis", ["axial", "coronal", "sagittal"])
def test_every_stored_orientation_gives_the_same_slice(tmp_path: Path, axis: str) -> None:
    """The same patient stored in all 48 orders and directions of axes, by hand: permuted, flipped, affine to match."""
    save(tmp_path / "plain/a.nii.gz")
    expected = only(tmp_path / "plain", axis=axis, positions=[0.3])
    for number, (order, flips) in enumerate(itertools.product(ORDERS, FLIPS)):
        stored = np.transpose(PLACES, order)
        affine = np.zeros((4, 4))
        affine[3, 3] = 1
        for place, (patient, flip) in enumerate(zip(order, flips, strict=True)):
            stored = np.flip(stored, place) if flip < 0 else stored
            affine[patient, place] = flip
            affine[patient, 3] = 0 if flip > 0 else SIDES[patient] - 1
        save(tmp_path / f"{number}/a.nii.gz", np.ascontiguousarray(stored), affine)
        for within in ("volume", "content"):
            found = only(tmp_path / str(number), axis=axis, positions=[0.3], within=within)
            np.testing.assert_array_equal(found, expected, err_msg=f"{order} {flips} {within}")


def test_oblique(tmp_path: Path) -> None:
    """Tilted by 20 degrees, the closest axes count; nothing is resampled."""
    tilt = np.deg2rad(20)
    affine = np.eye(4)
    affine[1:3, 1:3] = [[np.cos(tilt), -np.sin(tilt)], [np.sin(tilt), np.cos(tilt)]]
    save(tmp_path / "a.nii.gz", PLACES, affine)
    assert only(tmp_path)[0, 0] == 100 * 2 + 10 * 3 + 2


def test_scaled_values(tmp_path: Path) -> None:
    """Stored as uint16 with slope 2 and intercept -1024, read as HU."""
    import gzip

    data = bytearray(gzip.decompress(nifti(np.full(SIDES, 600, np.uint16))))
    data[112:120] = np.array([2, -1024], "<f4").tobytes()
    (tmp_path / "a.nii.gz").write_bytes(gzip.compress(bytes(data)))
    assert np.unique(only(tmp_path)).tolist() == [176]


def test_content_leaves_empty_ends_out(tmp_path: Path) -> None:
    """Brain in z = 3 and 4 of 5 (0 below): half way between is 4, not 2."""
    values = np.where(np.arange(5) >= 3, PLACES + 1, 0).astype(np.int16)
    save(tmp_path / "a.nii.gz", values)
    assert only(tmp_path).max() == 0
    assert only(tmp_path, within="content")[0, 0] == 100 * 2 + 10 * 3 + 4 + 1


def test_several_places_of_a_volume(tmp_path: Path) -> None:
    save(tmp_path / "s1.nii.gz")
    found = slices.volume_slices(tmp_path, card(positions=[0, 1], subject=r"^(s\d)"))
    assert [(each.id, each.subject) for each in found] == [("s1#1", "s1"), ("s1#2", "s1")]
    assert [each.pixels()[-1, -1] for each in found] == [0, 4]


def test_time_points_are_one_patient(tmp_path: Path) -> None:
    for name in ("BraTS-GLI-00005-000", "BraTS-GLI-00005-001"):
        save(tmp_path / name / f"{name}-t1c.nii.gz")
    found = slices.volume_slices(tmp_path, card(images=["*/*-t1c.nii.gz"], subject=r"^BraTS-GLI-(\d{5})-"))
    assert {each.subject for each in found} == {"00005"}


def test_reading_the_list_opens_no_volume(tmp_path: Path) -> None:
    (tmp_path / "a.nii.gz").write_bytes(b"no volume")
    (found,) = slices.volume_slices(tmp_path, card())
    with pytest.raises(InfrastructureError, match=r"a\.nii\.gz"):
        found.pixels()


# --- twins ----------------------------------------------------------------------------------------------------

PAIR = {"images": ["org/*.nii.gz"], "degraded": {"replace": "org/", "by": "low/"}}


def test_the_twin_is_cut_alike(tmp_path: Path) -> None:
    save(tmp_path / "org/1.nii.gz")
    save(tmp_path / "low/1.nii.gz", PLACES + 7)
    (found,) = slices.volume_slices(tmp_path, card(**PAIR))
    assert found.degraded is not None
    assert (found.degraded() - found.pixels()).tolist() == [[7] * 3] * 4


def test_a_twin_that_is_missing(tmp_path: Path) -> None:
    save(tmp_path / "org/1.nii.gz")
    with pytest.raises(MissingDataError, match=r"low/1\.nii\.gz does not exist"):
        slices.volume_slices(tmp_path, card(**PAIR))


@pytest.mark.parametrize(
    ("values", "affine", "message"),
    [
        pytest.param(PLACES[:, :, :4], None, "has shape", id="shorter"),
        pytest.param(PLACES, np.diag([-1, 1, 1, 1]), "oriented otherwise", id="mirrored"),
    ],
)
def test_a_twin_that_does_not_fit(tmp_path: Path, values: Any, affine: Any, message: str) -> None:
    save(tmp_path / "org/1.nii.gz")
    save(tmp_path / "low/1.nii.gz", values, affine)
    (found,) = slices.volume_slices(tmp_path, card(**PAIR))
    assert found.degraded is not None
    with pytest.raises(InfrastructureError, match=message):
        found.degraded()


# --- bad volumes ----------------------------------------------------------------------------------------------

# Two axes in one direction.
FLAT = np.array([[1.0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]])


@pytest.mark.parametrize(
    ("values", "affine", "message"),
    [
        pytest.param(np.zeros((3, 4, 5, 2), np.int16), None, "three axes", id="4-D"),
        pytest.param(np.zeros((3, 4, 1), np.int16), None, "three axes", id="one plane"),
        pytest.param(PLACES, FLAT, "geometry", id="flat affine"),
        pytest.param(np.zeros((3, 4, 5), np.int16), None, "one value", id="empty"),
    ],
)
def test_unusable(tmp_path: Path, values: Any, affine: Any, message: str) -> None:
    """At most three lines that name the file and the option that leaves it out."""
    save(tmp_path / "a.nii.gz", values, affine, qform=2, sform=2)
    with pytest.raises(InfrastructureError, match=message) as raised:
        only(tmp_path, within="content")
    assert "a.nii.gz" in str(raised.value)
    assert len(str(raised.value).splitlines()) <= 3
    assert slices.volume_slices(tmp_path, card(images=["*.nii.gz"], exclude=["b"]))


def test_cut_off(tmp_path: Path) -> None:
    """Damage behind the slice is found as well: the file is read to its end."""
    path = save(tmp_path / "a.nii.gz", np.random.default_rng(1).integers(0, 999, (16, 16, 16)).astype(np.int16))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InfrastructureError, match=r"fewer bytes|damaged"):
        only(tmp_path, positions=[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"axis": "oblique"}, "axis", id="unknown axis"),
        pytest.param({"positions": []}, "positions", id="no position"),
        pytest.param({"positions": [1.5]}, "positions", id="beyond the end"),
        pytest.param({"degraded": {"replace": "", "by": "x"}}, "replace", id="nothing to replace"),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        slices.volume_slices(tmp_path, card(**options))


# --- real data ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axis", "number", "turn"), [("axial", 2, (1, 0)), ("coronal", 1, (2, 0)), ("sagittal", 0, (2, 1))]
)
def test_a_real_ct_as_nibabel_orients_it(shared: Path, tmp_path: Path, axis: str, number: int, turn: Any) -> None:
    """The same plane of the volume in nibabel's closest canonical (RAS+) orientation, flipped to the display's."""
    import nibabel

    source = shared / "data/totalsegmentator_example/example_ct_sm.nii.gz"
    (tmp_path / "ct.nii.gz").symlink_to(source)
    image: Any = nibabel.as_closest_canonical(nibabel.load(source))
    values = np.asarray(image.dataobj)
    plane = np.take(values, values.shape[number] // 2, axis=number)
    expected = (plane.T if turn[0] > turn[1] else plane)[::-1, ::-1]
    np.testing.assert_array_equal(only(tmp_path, axis=axis), expected.astype(np.float32))
