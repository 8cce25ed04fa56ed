"""COCO and its relatives: corners, sizes, ids in two spellings, and every way the file can be wrong."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from toys import with_options
from toys.detection import make_card

from automedbench.base.errors import AutoMedBenchError, InfrastructureError, MissingDataError
from automedbench.datasets.forms.sources import SourceBox
from automedbench.datasets.readers.boxes import coco_boxes

IMAGES = [{"id": 7, "file_name": "b.png", "width": 40, "height": 30}, {"id": "8", "file_name": "a.png"}]
KINDS = [{"id": 0, "name": "Caries"}, {"id": 1, "name": "Impacted"}]


def box(image: Any = 7, kind: Any = 0, corners: Any = (1, 2, 3, 4), **more: Any) -> dict[str, Any]:
    return {"image_id": image, "category_id_3": kind, "bbox": list(corners), **more}


FORM = {"annotations": "data/*.json", "images": "data/x?rays", "category": "category_id_3"}
card = functools.partial(with_options, make_card(), reader="coco_boxes", categories="categories_3", **FORM)


def write(raw: Path, annotations: list[Any], **changes: Any) -> Path:
    (raw / "data/x-rays").mkdir(parents=True)
    for name in ("a", "b"):
        Image.new("L", (40, 30), 90).save(raw / f"data/x-rays/{name}.png")
    content = {"images": IMAGES, "annotations": annotations, "categories_3": KINDS} | changes
    (raw / "data/train.json").write_text(json.dumps(content))
    return raw


def test_reads_images_in_the_order_of_their_names(tmp_path: Path) -> None:
    """x, y, width, height → corners; ids may be numbers or texts; an image without boxes is kept."""
    first, second = coco_boxes(write(tmp_path, [box(), box("7", "1", (0.5, 0, 10.25, 30))]), card())
    assert (first.id, first.boxes, first.width, first.height) == ("a.png", (), 40, 30)
    assert second.boxes == (SourceBox("Caries", 1, 2, 4, 6), SourceBox("Impacted", 0.5, 0, 10.75, 30))
    assert second.annotation == tmp_path / "data/train.json"


@pytest.mark.parametrize(
    ("corners", "kept"),
    [
        pytest.param((-3, -2, 10, 10), (0, 0, 7, 8), id="begins outside"),
        pytest.param((35, 25, 10, 10), (35, 25, 40, 30), id="ends outside"),
        pytest.param((40, 0, 5, 5), None, id="touches from outside"),
        pytest.param((5, 5, 0, 4), None, id="no width"),
        pytest.param((5, 5, -2, 4), None, id="negative width"),
    ],
)
def test_boxes_are_cut_to_the_image(tmp_path: Path, corners: tuple[float, ...], kept: Any) -> None:
    _, image = coco_boxes(write(tmp_path, [box(corners=corners)]), card())
    assert image.boxes == ((SourceBox("Caries", *kept),) if kept else ())
    assert image.dropped == (kept is None)


def test_resized_images(tmp_path: Path) -> None:
    """Annotated at 80 × 15, stored at 40 × 30: half across, twice down."""
    images = [IMAGES[0] | {"width": 80, "height": 15}]
    (image,) = coco_boxes(write(tmp_path, [box(corners=(10, 2, 20, 4))], images=images), card())
    assert image.boxes == (SourceBox("Caries", 5, 4, 15, 12),)


def test_crowds_are_left_out(tmp_path: Path) -> None:
    _, image = coco_boxes(write(tmp_path, [box(iscrowd=1), box(iscrowd=0)]), card())
    assert (len(image.boxes), image.dropped) == (1, 0)


WRONG = [
    pytest.param([box(image=9)], {}, "annotation of image 9", id="unknown image"),
    pytest.param([box(kind=5)], {}, "annotation of category_id_3 5", id="unknown category"),
    pytest.param([{"image_id": 7, "bbox": [1, 2, 3, 4]}], {}, "'category_id_3' is 'None'", id="no category"),
    pytest.param([box(corners=(1, 2, 3))], {}, "not four numbers", id="three numbers"),
    pytest.param([box(corners=(1, 2, 3, float("nan")))], {}, "not four numbers", id="not a number"),
    pytest.param([box(corners=(1, 2, 3, "4"))], {}, "not four numbers", id="text"),
    pytest.param([{**box(), "bbox": None}], {}, "not four numbers", id="no box"),
    pytest.param(["x"], {}, "no list of objects 'annotations'", id="annotations are no objects"),
    pytest.param([], {"categories_3": None}, "no list of objects 'categories_3'", id="no categories"),
    pytest.param([], {"images": [*IMAGES, IMAGES[0] | {"id": 9}]}, "lists an image file twice", id="twice"),
    pytest.param([], {"images": [{"id": 1, "file_name": "../b.png"}]}, "not below the folder", id="outside"),
    pytest.param([], {"images": [IMAGES[0] | {"width": -4}]}, "states the size", id="negative size"),
]


@pytest.mark.parametrize(("annotations", "changes", "why"), WRONG)
def test_bad_files(tmp_path: Path, annotations: list[Any], changes: dict[str, Any], why: str) -> None:
    """The message names the file, and fits three lines."""
    write(tmp_path, annotations, **changes)
    with pytest.raises(InfrastructureError, match=why) as caught:
        coco_boxes(tmp_path, card())
    assert "train.json" in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        pytest.param(lambda raw: (raw / "data/train.json").unlink(), MissingDataError, "json", id="no file"),
        pytest.param(lambda raw: (raw / "data/x-rays/a.png").unlink(), MissingDataError, "a.png", id="no image"),
        pytest.param(
            lambda raw: (raw / "data/x-rays/a.png").write_bytes(b"no"), InfrastructureError, "a.png", id="no picture"
        ),
        pytest.param(lambda raw: (raw / "data/train.json").write_text("{"), InfrastructureError, "JSON", id="cut off"),
        pytest.param(lambda raw: (raw / "data/train.json").write_text("[]"), InfrastructureError, "object", id="list"),
        pytest.param(
            lambda raw: (raw / "data/b.json").write_text("{}"), InfrastructureError, "2 places", id="two files"
        ),
    ],
)
def test_bad_folders(tmp_path: Path, change: Any, error: type[AutoMedBenchError], why: str) -> None:
    write(tmp_path, [])
    change(tmp_path)
    with pytest.raises(error, match=why):
        coco_boxes(tmp_path, card())
