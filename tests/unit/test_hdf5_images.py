"""Images in HDF5 files in PatchCamelyon's form: one image at a time, labels, slides, and files that do not fit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from toys import with_options
from toys.classification import CARD

from automedbench.base.errors import AutoMedBenchError, InfrastructureError, MissingDataError
from automedbench.datasets.readers.images import hdf5_images

OPTIONS = {"images": "x.h5", "labels": "y.h5", "table": "meta.csv", "group_column": "wsi"}
META = ",coord_y,coord_x,tumor_patch,center_tumor_patch,wsi\n0,1,2,True,True,slide_a\n1,3,4,True,False,slide_b\n"
META += "2,5,6,False,False,slide_a\n"


card = functools.partial(with_options, CARD, **OPTIONS)


def save(path: Path, key: str, values: Any) -> None:
    with h5py.File(path, "w") as file:
        file[key] = values


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Three patches of 4×5 pixels, the second all red."""
    images = np.arange(3 * 4 * 5 * 3, dtype=np.uint8).reshape(3, 4, 5, 3)
    images[1] = [255, 0, 0]
    save(tmp_path / "x.h5", "x", images)
    save(tmp_path / "y.h5", "y", np.array([1, 0, 0], np.uint8).reshape(3, 1, 1, 1))
    (tmp_path / "meta.csv").write_text(META)
    return tmp_path


def test_images_in_the_order_of_the_arrays(raw: Path) -> None:
    """Places for ids, numbers for classes, slides for groups; messages name file and place."""
    found = hdf5_images(raw, card())
    assert [(image.id, image.source_class, image.group) for image in found] == [
        ("0", "1", "slide_a"), ("1", "0", "slide_b"), ("2", "0", "slide_a"),
    ]  # fmt: skip
    assert found[2].image.name == f"{raw / 'x.h5'}#2"


def test_nothing_is_read_before(raw: Path) -> None:
    """Pixels are read when they are needed, so that memory holds one image."""
    found = hdf5_images(raw, card())
    (raw / "x.h5").unlink()
    with pytest.raises(MissingDataError, match=r"x\.h5"):
        found[0].image.read()


def test_without_slides(raw: Path) -> None:
    (raw / "meta.csv").unlink()
    assert [image.group for image in hdf5_images(raw, card(table=None))] == ["", "", ""]
    # One axis of labels will do.
    save(raw / "y.h5", "label", [5, 6, 7])
    assert [image.source_class for image in hdf5_images(raw, card(table=None, label_key="label"))] == ["5", "6", "7"]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


BROKEN: dict[str, tuple[Callable[[Path], Any], type[AutoMedBenchError], str]] = {
    "no images": (lambda raw: (raw / "x.h5").unlink(), MissingDataError, "x.h5 does not exist"),
    "no labels": (lambda raw: (raw / "y.h5").unlink(), MissingDataError, "y.h5 does not exist"),
    "no table": (
        lambda raw: (raw / "meta.csv").unlink(),
        MissingDataError,
        "meta.csv (table of groups) does not exist",
    ),
    "still packed": (lambda raw: (raw / "x.h5").write_bytes(b"\x1f\x8b" * 90), InfrastructureError, "read as HDF5"),
    "half a download": (lambda raw: cut(raw / "x.h5"), InfrastructureError, "cannot be read as HDF5"),
    "other array": (lambda raw: save(raw / "x.h5", "images", [1]), InfrastructureError, "no array 'x' (has images)"),
    "other shape": (
        lambda raw: save(raw / "x.h5", "x", np.zeros((3, 4, 5), np.uint8)),
        InfrastructureError,
        "not uint8 (images, height, width, 3)",
    ),
    "other type": (
        lambda raw: save(raw / "x.h5", "x", np.zeros((3, 4, 5, 3), np.float32)),
        InfrastructureError,
        "holds float32",
    ),
    "no image": (lambda raw: save(raw / "x.h5", "x", np.zeros((0, 4, 5, 3), np.uint8)), InfrastructureError, "(0, 4"),
    "labels of another split": (lambda raw: save(raw / "y.h5", "y", [0, 1]), InfrastructureError, "2 entries for 3"),
    "masks for labels": (
        lambda raw: save(raw / "y.h5", "y", np.zeros((3, 4, 5, 1), np.uint8)),
        InfrastructureError,
        "not one integer per image",
    ),
    "labels as fractions": (lambda raw: save(raw / "y.h5", "y", [0.5, 0, 1]), InfrastructureError, "holds float64"),
    "row too many": (lambda raw: (raw / "meta.csv").write_text(META + "3,7,8,,,c\n"), InfrastructureError, "4 entries"),
    "column absent": (
        lambda raw: (raw / "meta.csv").write_text(META.replace("wsi", "slide")),
        InfrastructureError,
        "lacks the column wsi",
    ),
}


@pytest.mark.parametrize(("damage", "error", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_files_that_do_not_fit(
    raw: Path, damage: Callable[[Path], Any], error: type[AutoMedBenchError], message: str
) -> None:
    """Said with the file's name, in at most three lines; never fewer images without a word."""
    damage(raw)
    with pytest.raises(error) as caught:
        hdf5_images(raw, card())
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3
