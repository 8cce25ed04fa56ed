"""Tables of subjects: order, values, splits, formats, and tables that are not what the card says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.datasets.forms.tables import SubjectTable, list_subjects


def table(file: str, **keys: Any) -> SubjectTable:
    return SubjectTable.model_validate({"file": file, "id": "name", **keys})


def test_json_in_file_order(tmp_path: Path) -> None:
    """As the records of KiTS: the order is the file's, a flag that is not true does not count, nobody comes twice."""
    records = [
        {"name": "case_2", "malignant": True, "age": {"value": None}},
        {"name": "case_1", "malignant": True},
        {"name": "case_0", "malignant": False},
        {"name": "case_3"},
        {"name": None, "malignant": True},
        {"name": "case_2", "malignant": True},
    ]
    (tmp_path / "kits.json").write_text(json.dumps(records))
    assert list_subjects(tmp_path, table("kits.json", where={"malignant": True}), None, "x") == ["case_2", "case_1"]


@pytest.mark.parametrize("flag", [1, 1.0, "1"])
def test_sheet(flag: Any, tmp_path: Path) -> None:
    """As the sheet of PanTS: numbers, numbers as text and empty cells; other sheets and columns do not matter."""
    book = openpyxl.Workbook()
    sheet: Any = book.active
    for row in (["sex", " name ", "tumor?"], ["F", "c3", 1], ["M", "c1", "1"], [None, "c2", 0], ["F", "c4", None]):
        sheet.append(row)
    sheet.append(["M", "c0", 1.0])
    book.create_sheet("second").append(["name", "tumor?"])
    book.save(tmp_path / "metadata.xlsx")
    found = list_subjects(tmp_path, table("metadata.xlsx", where={"tumor?": flag}), None, "x")
    assert found == ["c3", "c1", "c0"]


def test_split_and_values(tmp_path: Path) -> None:
    """Both must fit; .tsv has tabs whatever the delimiter, .csv the card's."""
    rows = [("name", "split", "kind"), ("b", "test", "True"), ("a", "test", "false"), ("c", "train", "true")]
    (tmp_path / "p.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    (tmp_path / "p.csv").write_text("\ufeff" + "".join(";".join(row) + "\r\n" for row in rows))
    for keys in ({"file": "p.tsv"}, {"file": "p.csv", "delimiter": ";"}):
        known = table(**keys, where={"kind": True}, split="split")
        assert list_subjects(tmp_path, known, "test", "x") == ["b"]
        assert list_subjects(tmp_path, known, None, "x") == ["b", "c"]


def test_a_split_needs_its_column(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the column must be named"):
        list_subjects(tmp_path, table("p.csv"), "test", "card: staging.options.table")


@pytest.mark.parametrize(
    ("file", "content", "error", "message"),
    [
        pytest.param("p.csv", None, MissingDataError, "does not exist", id="absent"),
        pytest.param("p.csv", b"id,flag\na,1\n", InfrastructureError, "no column 'name'; it has flag, id", id="column"),
        pytest.param("p.csv", b"name,other\na,1\n", InfrastructureError, "no column 'flag'", id="filter's column"),
        pytest.param("p.csv", b"name,flag\na,0\n", InfrastructureError, "lists no subject with flag = 1.", id="none"),
        pytest.param("p.csv", b"name,flag\n", InfrastructureError, "lists no subject", id="no rows"),
        pytest.param("p.csv", b"name,flag\n\xff\xfe,1\n", InfrastructureError, "not a readable table", id="not UTF-8"),
        pytest.param("p.json", b'[{"name": "a"', InfrastructureError, "not a readable table", id="half of the JSON"),
        pytest.param("p.json", b'{"a": 1}', InfrastructureError, "not a list of objects", id="other JSON"),
        pytest.param("p.xlsx", b"<html>404</html>", InfrastructureError, "no workbook", id="page instead of sheet"),
    ],
)
def test_bad_table(file: str, content: bytes | None, error: type[Exception], message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(error, match=message) as caught:
        list_subjects(tmp_path, table(file, where={"flag": 1}), None, "card: staging.options.table")
    assert len(str(caught.value).splitlines()) <= 3
