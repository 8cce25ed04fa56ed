"""Class folders: what is read, in which order, and what is left out."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from toys import with_options
from toys.classification import CARD

from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.datasets.readers.images import class_folders

card = functools.partial(with_options, CARD, split="Testing")


def touch(raw: Path, *names: str) -> None:
    for name in names:
        path = raw / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


@pytest.mark.parametrize("names", [[], ["Training/glioma/a.jpg"], ["Testing/a.jpg"], ["Testing/glioma/a.txt"]])
def test_nothing_to_read(names: list[str], tmp_path: Path) -> None:
    """An absent split, images outside class folders and other files are no data."""
    touch(tmp_path, *names)
    with pytest.raises(MissingDataError, match="Testing contains no class folder"):
        class_folders(tmp_path, card())


def test_images_in_order(tmp_path: Path) -> None:
    """By class and name; hidden files, archives' leftovers and folders stay out, whatever the case of the suffix."""
    touch(tmp_path, "Testing/b/2.JPG", "Testing/b/1.jpeg", "Testing/a/x.jpg", "Testing/a/Thumbs.db")
    touch(
        tmp_path, "Testing/a/.y.jpg", "Testing/__MACOSX/z.jpg", "Testing/a/folder.jpg/inner.jpg", "Testing/.git/a.jpg"
    )
    images = class_folders(tmp_path, card())
    assert [(image.id, image.source_class) for image in images] == [
        ("a/x.jpg", "a"), ("b/1.jpeg", "b"), ("b/2.JPG", "b"),
    ]  # fmt: skip
    assert all(Path(image.image.name).is_file() and image.group == "" for image in images)


def test_other_forms(tmp_path: Path) -> None:
    """No split, a folder above, another suffix."""
    touch(tmp_path, "data/ADI/a.tif", "data/ADI/a.jpg")
    assert [image.id for image in class_folders(tmp_path, card(split=None, root="data", suffixes=[".TIF"]))] == [
        "ADI/a.tif"
    ]


def test_patients_by_name(tmp_path: Path) -> None:
    """Kermany's names: person and study tell the patient; a name of another form stands alone."""
    names = ["person1_virus_6", "person1_bacteria_2", "person10_virus_1", "IM-0001-0001", "NORMAL2-IM-0001-0002", "odd"]
    touch(tmp_path, *(f"Testing/a/{name}.jpeg" for name in names))
    images = class_folders(tmp_path, card(group=r"^(person\d+|(?:NORMAL2-)?IM-\d+)"))
    assert {image.id: image.group for image in images} == {
        "a/person1_virus_6.jpeg": "person1",
        "a/person1_bacteria_2.jpeg": "person1",
        "a/person10_virus_1.jpeg": "person10",
        "a/IM-0001-0001.jpeg": "IM-0001",
        "a/NORMAL2-IM-0001-0002.jpeg": "NORMAL2-IM-0001",
        "a/odd.jpeg": "",
    }
    assert {image.group for image in class_folders(tmp_path, card(group="person[0-9]+"))} == {"person1", "person10", ""}
    with pytest.raises(ConfigError, match=r"options\.group: .*regular expression"):
        class_folders(tmp_path, card(group="("))
