"""Label tables in the form of ISIC and HAM10000: rows, groups, and tables that are damaged."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from toys import with_options
from toys.classification import CARD

from automedbench.base.errors import AutoMedBenchError, InfrastructureError, MissingDataError
from automedbench.datasets.readers.images import label_table

HAM = {
    "table": "HAM10000_metadata.csv",
    "images": ["part_1", "part_2"],
    "label_column": "dx",
    "group_column": "lesion_id",
}
ROWS = "lesion_id,image_id,dx,age\nHAM_1,ISIC_1,nv,80\nHAM_1,ISIC_2,nv,\nHAM_2,ISIC_3,mel,5\n"


card = functools.partial(with_options, CARD, **HAM)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Three images in two folders and their table."""
    for name in ("part_1/ISIC_1", "part_1/ISIC_2", "part_2/ISIC_3"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.jpg").write_bytes(b"")
    (tmp_path / "HAM10000_metadata.csv").write_text(ROWS)
    return tmp_path


def test_rows_in_order(raw: Path) -> None:
    """Labels as they are upstream; images from whichever folder holds them; the lesion is the group."""
    images = label_table(raw, card())
    assert [(image.id, image.source_class, image.group) for image in images] == [
        ("ISIC_1", "nv", "HAM_1"), ("ISIC_2", "nv", "HAM_1"), ("ISIC_3", "mel", "HAM_2"),
    ]  # fmt: skip
    assert [Path(image.image.name).relative_to(raw).as_posix() for image in images] == [
        "part_1/ISIC_1.jpg", "part_1/ISIC_2.jpg", "part_2/ISIC_3.jpg",
    ]  # fmt: skip


def test_no_groups(raw: Path) -> None:
    """Without a group column every image stands alone."""
    images = label_table(raw, card(group_column=None))
    assert [(image.id, image.group) for image in images] == [("ISIC_1", ""), ("ISIC_2", ""), ("ISIC_3", "")]


def test_table_with_tabs(raw: Path) -> None:
    """Dataverse's .tab form: texts in quotes, a comma inside; of several tables the first that is there."""
    rows = ROWS.replace("80", "back, upper").splitlines()
    (raw / "HAM10000_metadata.csv").unlink()
    quoted = "\n".join("\t".join(f'"{cell}"' for cell in row.split(",", 3)) for row in rows)
    (raw / "HAM10000_metadata.tab").write_text(quoted + "\n")
    tables = ["HAM10000_metadata.csv", "HAM10000_metadata.tab"]
    images = label_table(raw, card(table=tables))
    assert [(image.id, image.source_class) for image in images] == [
        ("ISIC_1", "nv"), ("ISIC_2", "nv"), ("ISIC_3", "mel"),
    ]  # fmt: skip
    (raw / "HAM10000_metadata.tab").write_text(quoted.replace("\t", ";"))
    with pytest.raises(InfrastructureError, match="is not CSV"):
        label_table(raw, card(table=tables))
    (raw / "HAM10000_metadata.tab").unlink()
    with pytest.raises(MissingDataError, match=r"HAM10000_metadata\.csv"):
        label_table(raw, card(table=tables))


BROKEN = [
    # id, table, error, part of the message
    ("absent", None, MissingDataError, "does not exist"),
    ("empty", "", InfrastructureError, "is empty"),
    ("header only", ROWS.splitlines()[0], InfrastructureError, "names no image"),
    ("column absent", ROWS.replace("dx", "label"), InfrastructureError, "lacks the column dx"),
    ("image twice", ROWS + "HAM_3,ISIC_1,mel,1\n", InfrastructureError, "'ISIC_1' is there twice"),
    ("no label", ROWS.replace("mel", ""), InfrastructureError, "'ISIC_3' has no label"),
    ("path for an id", ROWS.replace("ISIC_3", "../ISIC_3"), InfrastructureError, "is not the name of a file"),
    ("image absent", ROWS.replace("ISIC_3", "ISIC_4"), MissingDataError, "ISIC_4.jpg (image in the table"),
]


@pytest.mark.parametrize(("table", "error", "message"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_broken_tables(raw: Path, table: str | None, error: type[AutoMedBenchError], message: str) -> None:
    """Never read as fewer images; three lines at most."""
    path = raw / "HAM10000_metadata.csv"
    path.unlink() if table is None else path.write_text(table)
    with pytest.raises(error) as caught:
        label_table(raw, card())
    assert message in str(caught.value)
    assert ("staging.options" in str(caught.value)) == ("lacks the column" in message)
    assert len(str(caught.value).splitlines()) <= 3
