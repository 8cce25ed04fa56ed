"""Slices and pictures of the case viewer: orientation, spacing, windows and colours, by hand."""

from __future__ import annotations

import base64
import io
import itertools
from typing import Any

import numpy as np
import pytest
from PIL import Image

from automedbench.base.views import ViewLayer
from automedbench.tracks.common.pictures import (
    ABOVE,
    BELOW,
    EQUAL,
    AxialView,
    choose_slices,
    difference_layer,
    fitted,
    grey_layer,
    intensity_window,
    label_layer,
    magnified,
    outlined,
    photo_layer,
    pick_slices,
    resized_numbers,
    slice_areas,
    windowed,
)


def pixels(layer: ViewLayer, mode: str = "RGB") -> Any:
    """A layer's pixels, decoded as a browser would."""
    data = base64.b64decode(layer.picture.partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(data)).convert(mode))


def colour(code: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(code[1:]))


# --- orientation ----------------------------------------------------------------------------------------------

# A head seen in RAS: 4 voxels to the right, 5 to the front, 6 up. One voxel is marked: x = 3 (right end), y = 4 (front
# end), z = 1 (second from the feet). In the picture of slice 1 it lies top left.
RAS_SHAPE, MARKED = (4, 5, 6), (3, 4, 1)


def stored(order: tuple[int, int, int], flips: tuple[int, int, int]) -> tuple[Any, Any]:
    """The same head stored with other axes first and some of them reversed, with the affine that says so."""
    volume = np.zeros(RAS_SHAPE, np.uint8)
    volume[MARKED] = 1
    volume = volume.transpose(order)
    affine = np.zeros((4, 4))
    affine[3, 3] = 1
    for axis, (world, flip) in enumerate(zip(order, flips, strict=True)):
        affine[world, axis] = -1 if flip else 1
        if flip:
            volume = np.flip(volume, axis)
    return volume, affine


@pytest.mark.parametrize("flips", list(itertools.product((0, 1), repeat=3)), ids=str)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_every_way_of_storing_gives_the_same_picture(order: tuple[int, int, int], flips: tuple[int, int, int]) -> None:
    """All 48 orientations: right on the left, front at the top, slices counted from the feet."""
    volume, affine = stored(order, flips)
    view = AxialView.of(affine, volume.shape)
    planes = [volume[:, :, z] for z in range(volume.shape[2])]
    found = slice_areas(planes, view.axis)
    (index,) = np.flatnonzero(found)
    assert view.number(int(index), len(found)) == 2  # the second from the feet
    (picture,) = pick_slices(planes, view, [int(index)])
    expected = np.zeros((5, 4))
    expected[0, 0] = 1
    assert np.array_equal(picture, expected)


def test_spacing_follows_the_axes() -> None:
    """Stored front to back, up, right to left: rows are the first axis, columns the third."""
    _, affine = stored((1, 2, 0), (1, 0, 1))
    view = AxialView.of(affine, (5, 6, 4))
    assert view.spacing([0.5, 3.0, 0.7]) == (0.5, 0.7)


@pytest.mark.parametrize(
    "affine", [np.zeros((4, 4)), np.full((4, 4), np.nan), np.diag([1, 1, 0, 1])], ids=["zeros", "NaN", "one axis lost"]
)
def test_affine_that_points_nowhere(affine: Any) -> None:
    """Taken as RAS."""
    view = AxialView.of(affine, (4, 5, 6))
    assert (view.axis, view.rows, view.columns) == (2, 1, 0)


def test_flat_image_stays_as_it_is() -> None:
    view = AxialView.of(np.diag([-1.0, -1, 1, 1]), (4, 5))
    (picture,) = pick_slices([np.arange(20).reshape(4, 5)], view, [0])
    assert picture.shape == (5, 4) and picture[0, 1] == 5


def test_pick_keeps_the_order_asked_for() -> None:
    planes = [np.full((2, 2), number) for number in range(4)]
    view = AxialView.of(np.eye(4), (2, 2, 4))
    assert [int(picture[0, 0]) for picture in pick_slices(planes, view, [3, 1])] == [3, 1]


@pytest.mark.parametrize(
    ("found", "count", "expected"),
    [
        pytest.param([0] * 9, 3, [1, 4, 7], id="nothing there: spread"),
        pytest.param([0, 0, 5, 0], 7, [2], id="one slice"),
        pytest.param([0, 1, 1, 9, 1, 1, 0], 3, [2, 3, 4], id="the largest and its neighbours"),
        # Extent 1 … 8 in two halves, middles 3 and 7; the largest is 1.
        pytest.param([0, 9, 1, 1, 1, 1, 1, 1, 1, 0], 3, [1, 3, 7], id="the largest at the edge"),
        pytest.param([4, 2], 1, [0], id="only one asked for"),
    ],
)
def test_choose_slices(found: list[int], count: int, expected: list[int]) -> None:
    assert choose_slices(np.array(found), count) == expected


# --- sizes and grey values ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "spacing", "expected"),
    [
        pytest.param((10, 20), (1.0, 1.0), (20, 10), id="square pixels"),
        pytest.param((10, 20), (3.0, 1.0), (20, 30), id="rows three times as far apart"),
        pytest.param((640, 320), (1.0, 1.0), (160, 320), id="long side cut to 320"),
        pytest.param((64, 512), (5.0, 0.5), (256, 320), id="both: 256 × 320 mm, one millimetre a pixel"),
        pytest.param((1, 5000), (1.0, 1.0), (320, 1), id="never less than a pixel"),
    ],
)
def test_fitted(shape: tuple[int, int], spacing: tuple[float, float], expected: tuple[int, int]) -> None:
    assert fitted(shape, spacing) == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [((12, 10), (36, 30)), ((150, 100), (300, 200)), ((161, 20), (161, 20)), ((320, 320), (320, 320))],
    ids=["three times", "twice", "would pass 320", "large"],
)
def test_magnified(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert magnified(size) == expected


def test_windowed() -> None:
    """-1 … 1 on 0 … 255: below is black, above is white, NaN is black."""
    values = np.array([[-9.0, -1, 0, 1, 9, np.nan, np.inf, -np.inf]])
    assert windowed(values, (-1, 1)).tolist() == [[0, 0, 128, 255, 255, 0, 255, 0]]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([], (0.0, 1.0), id="nothing"),
        pytest.param([np.nan, np.inf], (0.0, 1.0), id="nothing finite"),
        pytest.param([7.0] * 5, (6.5, 7.5), id="constant"),
        pytest.param([0.0] * 1000 + [5.0], (0.0, 5.0), id="almost constant"),
        pytest.param(list(range(101)), (1.0, 99.0), id="1st to 99th percentile"),
    ],
)
def test_window_of(values: list[float], expected: tuple[float, float]) -> None:
    assert intensity_window(np.array(values)) == pytest.approx(expected)


def test_grey_layer_has_the_size_asked_for() -> None:
    values = np.zeros((4, 4))
    values[:2] = 100
    drawn = pixels(grey_layer("input", values, (0, 100), (40, 40)), "L")
    assert drawn.shape == (40, 40)
    assert drawn[:15].min() > 240 and drawn[25:].max() < 15  # lossy, so not exactly 255 and 0


def test_photo_is_reduced(tmp_path: Any) -> None:
    Image.new("RGB", (2000, 1000), (200, 10, 10)).save(tmp_path / "a.png")
    layer, size = photo_layer("input", tmp_path / "a.png")
    assert size == (512, 256) and pixels(layer).shape == (256, 512, 3)
    assert abs(pixels(layer)[100, 100].astype(int) - (200, 10, 10)).max() < 12


# --- overlays -------------------------------------------------------------------------------------------------

SQUARE = np.zeros((5, 5), np.uint8)
SQUARE[1:4, 1:4] = 1


def test_outline_is_the_rim() -> None:
    """A 3 × 3 square has 8 rim pixels and one inside; one at the border of the picture is rim as well."""
    rim = outlined(SQUARE)
    assert rim.sum() == 8 and rim[2, 2] == 0
    assert outlined(np.ones((3, 3), np.uint8)).tolist() == [[1, 1, 1], [1, 0, 1], [1, 1, 1]]


def test_neighbouring_labels_have_rims_of_their_own() -> None:
    numbers = np.array([[1, 1, 1, 2, 2, 2]] * 6, np.uint8)
    assert outlined(numbers)[3].tolist() == [1, 0, 1, 2, 0, 2]


def test_label_layer_is_transparent_but_for_its_labels() -> None:
    numbers = SQUARE * np.uint8(2)
    drawn = pixels(label_layer("prediction", numbers, ["#e69f00", "#56b4e9"]), "RGBA")
    assert (drawn[..., 3] > 0).tolist() == (SQUARE > 0).tolist()
    assert tuple(drawn[2, 2]) == (*colour("#56b4e9"), 255)


def test_labels_are_never_mixed_when_resized() -> None:
    """Nearest: between 1 and 3 there is no 2."""
    numbers = np.array([[1, 3]], np.uint8)
    assert set(resized_numbers(numbers, (20, 10)).ravel().tolist()) == {1, 3}


def test_difference_colours() -> None:
    """Ends and middle of the scale, wide enough to survive the codec."""
    values = np.repeat(np.array([[-5.0, 0.0, 5.0]]), 16, axis=1).repeat(16, axis=0)
    drawn = pixels(difference_layer(values, 5.0, (48, 16))).astype(int)
    for column, code in ((8, BELOW), (24, EQUAL), (40, ABOVE)):
        assert abs(drawn[8, column] - colour(code)).max() < 12
