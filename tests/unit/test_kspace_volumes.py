"""MR measurements in HDF5: from k-space to magnitude, and which slice of which patient."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from toys import with_options
from toys.enhancement import make_card

from automedbench.base.errors import InfrastructureError
from automedbench.datasets.readers import slices
from automedbench.datasets.readers.slices import magnitude

card = functools.partial(with_options, make_card(), images=["*.h5"])


def save(path: Path, data: dict[str, Any], **attributes: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, values in data.items():
            file.create_dataset(name, data=values)
        for name, fact in attributes.items():
            file.attrs[name] = fact
    return path


def point(row: int, column: int, shape: tuple[int, int] = (8, 6)) -> np.ndarray:
    """k-space of an image that is 1 at one pixel, by the definition of the centred discrete Fourier transform."""
    rows, columns = shape
    down, across = np.meshgrid(np.arange(rows) - rows // 2, np.arange(columns) - columns // 2, indexing="ij")
    phase = down * (row - rows // 2) / rows + across * (column - columns // 2) / columns
    return np.exp(-2j * np.pi * phase) / np.sqrt(rows * columns)


def test_a_point_comes_back_where_it_was() -> None:
    """Rows and columns of even and odd number; magnitude 1 there and 0 elsewhere."""
    for shape in ((8, 6), (7, 5), (8, 5)):
        expected = np.zeros(shape)
        expected[2, 3] = 1
        found = magnitude(point(2, 3, shape))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_coils_add_up_by_the_root_of_their_squares() -> None:
    """3 and 4i at one pixel make 5."""
    coils = np.stack([3 * point(1, 1), 4j * point(1, 1)])
    found = magnitude(coils)
    assert found.shape == (8, 6)
    np.testing.assert_allclose(found[1, 1], 5, rtol=1e-6)


def test_the_central_slice(tmp_path: Path) -> None:
    """⌊0.5 · 3⌋ = 1; widths differ from file to file."""
    for name, width in (("file1", 6), ("file2", 5)):
        stack = np.stack([(1 + slice_) * point(4, slice_, (8, width)) for slice_ in range(3)]).astype(np.complex64)
        save(tmp_path / f"{name}.h5", {"kspace": stack}, patient_id=name * 3)
    first, second = slices.kspace_volumes(tmp_path, card())
    assert (first.id, first.subject) == ("file1", "file1" * 3)
    assert first.pixels().shape == (8, 6)
    assert second.pixels().shape == (8, 5)
    np.testing.assert_allclose(second.pixels()[4, 1], 2, rtol=1e-5)


def test_scale_of_the_slice(tmp_path: Path) -> None:
    save(tmp_path / "a.h5", {"kspace": np.stack([4e-6 * point(4, 3)])})
    (found,) = slices.kspace_volumes(tmp_path, card(percentiles=[0, 100]))
    assert (found.pixels().min(), found.pixels().max()) == (0, 1)


def test_two_volumes_of_one_patient(tmp_path: Path) -> None:
    """By attribute, whatever its type; without one a file is a patient of its own."""
    stack = np.stack([point(1, 1)])
    save(tmp_path / "a.h5", {"kspace": stack}, patient_id="x")
    save(tmp_path / "b.h5", {"kspace": stack}, patient_id=np.bytes_(b"x"))
    save(tmp_path / "c.h5", {"kspace": stack})
    assert [each.subject for each in slices.kspace_volumes(tmp_path, card())] == ["x", "x", "c"]


def test_reconstructed_images(tmp_path: Path) -> None:
    images = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    save(tmp_path / "a.h5", {"kspace": np.zeros((2, 6, 4), np.complex64), "reconstruction_rss": images})
    (found,) = slices.kspace_volumes(tmp_path, card(dataset="reconstruction_rss", positions=[0]))
    assert found.pixels().tolist() == images[0].tolist()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param({"reconstruction_rss": np.zeros((1, 4, 4))}, "no data set 'kspace', only reconst", id="missing"),
        pytest.param({}, "only nothing", id="empty"),
        pytest.param({"kspace": np.zeros((4, 4))}, "of shape", id="2-D"),
        pytest.param({"kspace": np.zeros((0, 4, 4))}, "of shape", id="no slices"),
        pytest.param({"kspace": np.zeros((1, 4, 4)), "mask": np.ones(4)}, "sampled in part", id="undersampled"),
    ],
)
def test_unusable(tmp_path: Path, data: dict[str, Any], message: str) -> None:
    """Found when the list is made; ``exclude`` leaves the file out."""
    save(tmp_path / "a.h5", data)
    save(tmp_path / "b.h5", {"kspace": np.stack([point(1, 1)])})
    with pytest.raises(InfrastructureError, match=message) as raised:
        slices.kspace_volumes(tmp_path, card())
    assert "a.h5" in str(raised.value) and len(str(raised.value).splitlines()) <= 3
    assert [each.id for each in slices.kspace_volumes(tmp_path, card(exclude=["a"]))] == ["b"]


@pytest.mark.parametrize("keep", [0, 100, 3000], ids=["empty", "no header", "cut off"])
def test_damaged(tmp_path: Path, keep: int) -> None:
    path = save(tmp_path / "a.h5", {"kspace": np.ones((4, 40, 40), np.complex64)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InfrastructureError, match=r"no readable HDF5 file|damaged"):
        slices.kspace_volumes(tmp_path, card())
