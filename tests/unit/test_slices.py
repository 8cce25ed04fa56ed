"""What becomes of the values of a slice: scale, size, ground; and which place of a stack is meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from automedbench.datasets.forms.slices import ImageFiles, Shaping, find_images, shape_image, slice_index

SQUARE = np.arange(16, dtype=np.float32).reshape(4, 4)


def shape(values: Any, **options: Any) -> np.ndarray:
    return shape_image(np.asarray(values, np.float32), Shaping(**options))


def test_nothing_asked_nothing_done() -> None:
    found = shape(SQUARE)
    assert found.dtype == np.float32
    assert found.tolist() == SQUARE.tolist()


def test_window() -> None:
    """-1000 to 1000 HU: -1024 and below become 0, 0 HU the middle, 3000 HU 1."""
    assert shape([[-1024, -500, 0, 3000]], window=(-1000, 1000)).tolist() == [[0, 0.25, 0.5, 1]]


def test_percentiles() -> None:
    """Of 0 to 100 in steps of 1, the 10th percentile is 10 and the 90th is 90."""
    found = shape(np.arange(101)[None], percentiles=(10, 90))[0]
    assert (found[5], found[10], found[50], found[90], found[99]) == (0, 0, 0.5, 1, 1)


def test_percentiles_of_one_value() -> None:
    """There is no scale: 0, which staging refuses as constant."""
    assert shape(np.full((3, 3), 7), percentiles=(0, 100)).tolist() == [[0] * 3] * 3


def test_pad_centres_on_ground() -> None:
    """Two rows in five: one above, two below; the third column of three is cut by two places: the middle stays."""
    found = shape([[1, 2, 3], [4, 5, 6]], size=(5, 1), fit="pad", fill=-1)
    assert found.tolist() == [[-1], [2], [5], [-1], [-1]]


def test_cover_keeps_proportions() -> None:
    """Of 8×4 pixels the middle 4×4 is all that a square shows; here it has its size already."""
    tall = np.repeat(np.arange(8, dtype=np.float32)[:, None], 4, axis=1)
    assert shape(tall, size=(4, 4), fit="cover")[:, 0].tolist() == [2, 3, 4, 5]


def test_cover_of_a_wide_image() -> None:
    """640×372 for 720×512: 372 columns go with 372·720/512 = 523 rows, the middle ones, and all is enlarged alike."""
    image = np.zeros((640, 372), np.float32)
    image[58:581] = 1
    np.testing.assert_allclose(shape(image, size=(720, 512), fit="cover"), 1, atol=1e-5)


def test_resize_stays_in_the_window() -> None:
    """Bicubic filtering overshoots at an edge; the window cuts it off again."""
    step = np.zeros((8, 8))
    step[:, 4:] = 1
    assert shape(step, size=(16, 16)).max() > 1
    assert shape(step, size=(16, 16), window=(0, 1)).max() == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"window": (5, 5)}, "rising", id="empty window"),
        pytest.param({"percentiles": (0, 101)}, "less than or equal to 100", id="beyond 100"),
        pytest.param({"window": (0, 1), "percentiles": (0, 100)}, "exclude", id="two scales"),
        pytest.param({"size": (0, 4)}, "greater than 0", id="no rows"),
        pytest.param({"fit": "stretch"}, "resize", id="unknown fit"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Shaping(**options)


@pytest.mark.parametrize(
    ("position", "length", "index"), [(0, 5, 0), (0.5, 5, 2), (0.5, 4, 2), (0.99, 3, 2), (1, 3, 2)]
)
def test_places(position: float, length: int, index: int) -> None:
    assert slice_index(position, length) == index


def test_hidden_and_excluded_files(tmp_path: Path) -> None:
    """A volume's id has neither of its suffixes; ``._`` copies are no images."""
    for name in ("a.nii.gz", "b.1.nii.gz", "._a.nii.gz", "c.nii.gz"):
        (tmp_path / name).write_bytes(b"")
    found = find_images(tmp_path, ImageFiles(images=["*.nii.gz"], exclude=["c"]))
    assert [each.id for each in found] == ["a", "b.1"]
