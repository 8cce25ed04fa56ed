"""YOLO's text files: relative boxes, images without a file, patients, and lines that are wrong."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from toys import with_options
from toys.detection import make_card

from automedbench.base.errors import AutoMedBenchError, ConfigError, InfrastructureError, MissingDataError
from automedbench.datasets.forms.sources import SourceBox
from automedbench.datasets.readers.boxes import yolo_boxes

FORM = {"images": "images/**/*.png", "labels": "**/labels", "classes": ["fracture", "text"]}
card = functools.partial(with_options, make_card(), reader="yolo_boxes", **FORM)


def write(raw: Path, **labels: str | None) -> Path:
    """Images of 40 × 20 pixels, one per argument; None: no text file."""
    for folder in ("images/part1", "yolov5/labels"):
        (raw / folder).mkdir(parents=True, exist_ok=True)
    for name, text in labels.items():
        Image.new("L", (40, 20), 60).save(raw / f"images/part1/{name}.png")
        if text is not None:
            (raw / f"yolov5/labels/{name}.txt").write_text(text)
    return raw


def test_reads_every_image(tmp_path: Path) -> None:
    """By hand on 40 × 20: centre (0.5, 0.5) and size (0.5, 0.2) are 10…30 across and 8…12 down."""
    labels = {"b": "0 0.5 0.5 0.5 0.2\n\n1.0 0.125 0.25 0.25 0.5\n", "a": None, "c": ""}
    first, second, third = yolo_boxes(write(tmp_path, **labels), card())
    assert [image.id for image in (first, second, third)] == ["a", "b", "c"]
    assert (first.boxes, first.annotation) == ((), None)
    assert second.boxes == (SourceBox("fracture", 10, 8, 30, 12), SourceBox("text", 0, 0, 10, 10))
    assert (third.boxes, third.annotation) == ((), tmp_path / "yolov5/labels/c.txt")


def test_boxes_are_cut_to_the_image(tmp_path: Path) -> None:
    """Centre 0.9 with size 0.4 ends at 1.1; what lies outside altogether, or has no size, is counted."""
    (image,) = yolo_boxes(write(tmp_path, a="0 0.9 0.5 0.4 1.2\n0 1.5 0.5 0.2 0.2\n0 0.5 0.5 0 0.1\n"), card())
    (box,) = image.boxes
    assert (box.x1, box.y1, box.x2, box.y2) == pytest.approx((28, 0, 40, 20))
    assert image.dropped == 2


def test_patients(tmp_path: Path) -> None:
    write(tmp_path, **{"0001_12_a": "", "0002_34_b": ""})
    assert [image.subject for image in yolo_boxes(tmp_path, card(subject_pattern="^([0-9]{4})_"))] == ["0001", "0002"]
    assert [image.subject for image in yolo_boxes(tmp_path, card(subject_pattern="[0-9]{4}"))] == ["0001", "0002"]
    assert [image.subject for image in yolo_boxes(tmp_path, card())] == ["", ""]
    with pytest.raises(InfrastructureError, match="finds no patient"):
        yolo_boxes(tmp_path, card(subject_pattern="P[0-9]+"))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        pytest.param("0 0.5 0.5 0.5", "not a class and four numbers", id="four numbers"),
        pytest.param("0 0.5 0.5 0.5 0.5 0.9", "not a class and four numbers", id="six numbers"),
        pytest.param("fracture 0.5 0.5 0.5 0.5", "not a class and four numbers", id="name"),
        pytest.param("2 0.5 0.5 0.5 0.5", "has the class 2; staging.options.classes has 2", id="class out of range"),
        pytest.param("-1 0.5 0.5 0.5 0.5", "has the class -1", id="negative class"),
        pytest.param("0.5 0.5 0.5 0.5 0.5", "has the class 0.5", id="half a class"),
        pytest.param("nan 0.5 0.5 0.5 0.5", "has the class nan", id="no class"),
        pytest.param("0 nan 0.5 0.5 0.5", "not finite", id="not a number"),
        pytest.param("0 0.5 0.5 inf 0.5", "not finite", id="infinite"),
    ],
)
def test_bad_lines(tmp_path: Path, line: str, why: str) -> None:
    """File and line are named."""
    write(tmp_path, good="0 0.5 0.5 0.5 0.5\n", bad=f"1 0.5 0.5 0.1 0.1\n{line}\n")
    with pytest.raises(InfrastructureError, match=why) as caught:
        yolo_boxes(tmp_path, card())
    assert "bad.txt: line 2" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        pytest.param(lambda raw: (raw / "yolov5/labels/x.txt").touch(), MissingDataError, "image of x.txt", id="extra"),
        pytest.param(lambda raw: (raw / "images/part1/a.png").unlink(), MissingDataError, "images", id="no image"),
        pytest.param(
            lambda raw: (raw / "images/part1/a.png").write_bytes(b"no"), InfrastructureError, "a.png", id="no picture"
        ),
        pytest.param(
            lambda raw: (raw / "yolov5/labels/a.txt").write_bytes(b"\xff\xfe\0"),
            InfrastructureError,
            "a.txt",
            id="binary",
        ),
        pytest.param(lambda raw: (raw / "other/labels").mkdir(parents=True), InfrastructureError, "2 places", id="two"),
    ],
)
def test_bad_folders(tmp_path: Path, change: Any, error: type[AutoMedBenchError], why: str) -> None:
    change(write(tmp_path, a=""))
    with pytest.raises(error, match=why):
        yolo_boxes(tmp_path, card())


def test_one_name_twice(tmp_path: Path) -> None:
    """Two archives must not hold the same image."""
    write(tmp_path, a="")
    (tmp_path / "images/part2").mkdir()
    Image.new("L", (40, 20)).save(tmp_path / "images/part2/a.png")
    with pytest.raises(InfrastructureError, match="has the same name as"):
        yolo_boxes(tmp_path, card())


def test_no_labels_at_all(tmp_path: Path) -> None:
    write(tmp_path, a=None)
    (tmp_path / "yolov5/labels").rmdir()
    with pytest.raises(MissingDataError, match="folder of labels"):
        yolo_boxes(tmp_path, card())


def test_wrong_options(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="regular expression"):
        yolo_boxes(tmp_path, card(subject_pattern="("))
