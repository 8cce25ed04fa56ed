"""Pascal VOC: coordinates, split lists, and files that are damaged or hostile."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from toys.detection import make_card

from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.datasets import get_reader
from automedbench.datasets.forms.sources import SourceBox, clipped
from automedbench.datasets.forms.tables import MAX_XML_BYTES, parse_xml
from automedbench.datasets.readers.boxes import half_open, pascal_voc

SIZE = "<size><width>40</width><height>30</height><depth>3</depth></size>"


def voc_object(name: str, *corners: object) -> str:
    tags = zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=True)
    return f"<object><name>{name}</name><bndbox>{''.join(f'<{t}>{v}</{t}>' for t, v in tags)}</bndbox></object>"


def write_voc(raw: Path, name: str, body: str, size: tuple[int, int] = (40, 30)) -> None:
    """One image and its annotation in BCCD's layout."""
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (raw / "BCCD" / folder).mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (200, 180, 190)).save(raw / f"BCCD/JPEGImages/{name}.jpg")
    (raw / f"BCCD/Annotations/{name}.xml").write_text(f"<annotation>{body}</annotation>")
    with open(raw / "BCCD/ImageSets/Main/test.txt", "a") as stream:
        stream.write(f"{name}\n")


@pytest.fixture
def card() -> TaskCard:
    return make_card()


@pytest.mark.parametrize(
    ("voc", "scale", "expected"),
    [
        pytest.param((7, 7, 7, 7), (1, 1), None, id="no area as written (BloodImage_00338)"),
        pytest.param((9, 5, 4, 8), (1, 1), None, id="inverted"),
        pytest.param((50, 5, 60, 8), (1, 1), None, id="outside"),
        pytest.param((1, 1, 40, 30), (1, 1), (0, 0, 40, 30), id="whole image"),
        pytest.param((1, 1, 2, 2), (1, 1), (0, 0, 2, 2), id="first two pixels each way"),
        pytest.param((11, 6, 20, 15), (1, 1), (10, 5, 20, 15), id="ten pixels inclusive stay ten"),
        pytest.param((0, -3, 45, 30), (1, 1), (0, 0, 40, 30), id="clipped"),
        pytest.param((11, 6, 20, 10), (2, 3), (20, 15, 40, 30), id="image twice as wide, three times as high"),
    ],
)
def test_half_open(voc: tuple, scale: tuple, expected: tuple | None) -> None:
    """By hand: x1 - 1, y1 - 1, x2, y2 on 40 × 30 pixels."""
    assert clipped(half_open(voc, scale), 40, 30) == expected


def test_reads_the_split(tmp_path: Path, card: TaskCard) -> None:
    """Boxes with upstream names, dropped ones counted, an image without boxes kept, the list's order."""
    write_voc(tmp_path, "b", SIZE + voc_object("RBC", 1, 1, 10, 10) + voc_object("RBC", 5, 5, 5, 5))
    write_voc(tmp_path, "a", SIZE)
    first, second = pascal_voc(tmp_path, card)
    assert (first.id, first.width, first.height, first.dropped) == ("b", 40, 30, 1)
    assert first.boxes == (SourceBox("RBC", 0, 0, 10, 10),)
    assert (second.id, second.boxes, second.dropped) == ("a", (), 0)


def test_image_resized_after_annotation(tmp_path: Path, card: TaskCard) -> None:
    """Annotated at 40 × 30, stored at 80 × 60: boxes double."""
    write_voc(tmp_path, "a", SIZE + voc_object("WBC", 11, 6, 20, 15), size=(80, 60))
    assert pascal_voc(tmp_path, card)[0].boxes == (SourceBox("WBC", 20, 10, 40, 30),)


def test_without_size_pixels_are_taken_as_they_are(tmp_path: Path, card: TaskCard) -> None:
    """The size is optional in VOC, and zero in some exports."""
    write_voc(tmp_path, "a", voc_object("WBC", 11, 6, 20, 15))
    zero = "<size><width>0</width><height>0</height></size>"
    write_voc(tmp_path, "b", zero + voc_object("WBC", 11, 6, 20, 15))
    assert [image.boxes for image in pascal_voc(tmp_path, card)] == [(SourceBox("WBC", 10, 5, 20, 15),)] * 2


def test_without_split_everything_is_read(tmp_path: Path, card: TaskCard) -> None:
    """In name order."""
    write_voc(tmp_path, "b", SIZE)
    write_voc(tmp_path, "a", SIZE)
    sampling = card.staging.sampling.model_copy(update={"split": None})
    card = card.model_copy(update={"staging": card.staging.model_copy(update={"sampling": sampling})})
    assert [image.id for image in pascal_voc(tmp_path, card)] == ["a", "b"]


BOMB = '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;&x;">]><annotation>&y;</annotation>'
EXTERNAL = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><annotation>&x;</annotation>'


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(b"", "not a readable annotation", id="empty"),
        pytest.param(b"<annotation><object>", "not a readable annotation", id="cut off"),
        pytest.param(b"\x00\xff\xfe", "not a readable annotation", id="binary"),
        pytest.param(BOMB.encode(), "document type", id="entity bomb"),
        pytest.param(BOMB.encode("utf-16"), "document type", id="entity bomb in UTF-16"),
        pytest.param(EXTERNAL.encode(), "document type", id="external entity"),
        pytest.param(b'<?xml version="1.0" encoding="nope"?><a/>', "not a readable annotation", id="unknown encoding"),
        pytest.param(b"<a>" + b" " * MAX_XML_BYTES + b"</a>", "more than the limit", id="too large"),
    ],
)
def test_unreadable_xml(tmp_path: Path, content: bytes, why: str) -> None:
    """The message names the file and what to do."""
    path = tmp_path / "a.xml"
    path.write_bytes(content)
    with pytest.raises(InfrastructureError, match=why) as caught:
        parse_xml(path, "annotation")
    assert str(path) in str(caught.value)
    assert "snakemake prepare" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param(SIZE + voc_object("", 1, 1, 5, 5), "without a name", id="no class"),
        pytest.param(SIZE + voc_object("RBC", 1, "one", 5, 5), "bndbox/ymin is 'one'", id="text"),
        pytest.param(SIZE + voc_object("RBC", 1, "nan", 5, 5), "not a number", id="NaN"),
        pytest.param(SIZE + "<object><name>RBC</name></object>", "bndbox/xmin is ''", id="no box"),
    ],
)
def test_bad_objects(tmp_path: Path, card: TaskCard, body: str, why: str) -> None:
    """Truth that cannot be read stops staging."""
    write_voc(tmp_path, "a", body)
    with pytest.raises(InfrastructureError, match=why):
        pascal_voc(tmp_path, card)


@pytest.mark.parametrize("part", ["JPEGImages/a.jpg", "Annotations/a.xml", "ImageSets/Main/test.txt"])
def test_absent_file(tmp_path: Path, card: TaskCard, part: str) -> None:
    """Whatever is missing is named."""
    write_voc(tmp_path, "a", SIZE)
    (tmp_path / "BCCD" / part).unlink()
    with pytest.raises(MissingDataError, match=part):
        pascal_voc(tmp_path, card)


def test_damaged_image(tmp_path: Path, card: TaskCard) -> None:
    """A file that is no image is named."""
    write_voc(tmp_path, "a", SIZE)
    (tmp_path / "BCCD/JPEGImages/a.jpg").write_bytes(b"not a picture")
    with pytest.raises(InfrastructureError, match=r"a\.jpg: is not a readable image"):
        pascal_voc(tmp_path, card)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("", "names no image", id="empty"),
        pytest.param("../../etc/passwd\n", "not a file name", id="path"),
    ],
)
def test_bad_split(tmp_path: Path, card: TaskCard, text: str, why: str) -> None:
    """A list must name images."""
    write_voc(tmp_path, "a", SIZE)
    (tmp_path / "BCCD/ImageSets/Main/test.txt").write_text(text)
    with pytest.raises(InfrastructureError, match=why):
        pascal_voc(tmp_path, card)


def test_registry() -> None:
    """Readers are found by name; a misspelt one gets a suggestion."""
    assert get_reader("pascal_voc") is pascal_voc
    with pytest.raises(ConfigError, match="did you mean 'pascal_voc'"):
        get_reader("pascal-voc")
