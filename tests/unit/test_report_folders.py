"""The reader of report tables: forms, columns, patterns, and every way a table can be wrong."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from toys import report_generation as toy
from toys import with_options

from automedbench.base.cards import load_card
from automedbench.base.errors import AutoMedBenchError, ConfigError, InfrastructureError, MissingDataError
from automedbench.datasets.forms.sources import compose
from automedbench.datasets.readers.reports import report_folders

ROWS = [
    {"id": "s1", "who": "p1", "file": "a.png", "find": "Clear lungs.", "imp": "Normal.", "part": "test"},
    {"id": "s2", "who": "p2", "file": "b.png", "find": "", "imp": "Effusion.", "part": "test"},
    {"id": "s3", "who": "p2", "file": "c.png;d.png", "find": "Opacity.", "imp": "", "part": "train"},
]
COLUMNS = {"image": "file", "study": "id", "subject": "who", "findings": "find", "impression": "imp"}


make_card = functools.partial(with_options, toy.CARD, table="t.csv", columns=COLUMNS)


def write(raw: Path, rows: list[dict[str, str]], name: str = "t.csv") -> Path:
    raw.mkdir(parents=True, exist_ok=True)
    for letter in "abcd":
        (raw / f"{letter}.png").touch()
    if name.endswith(".jsonl"):
        text = "\n".join(map(json.dumps, rows))
    elif name.endswith(".json"):
        text = json.dumps(rows)
    else:
        separator = "\t" if name.endswith(".tsv") else ","
        lines = [list(rows[0]), *([*row.values()] for row in rows)] if rows else []
        text = "\n".join(separator.join(f'"{cell}"' for cell in line) for line in lines)
    (raw / name).write_text(text)
    return raw


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl", "t.json"])
def test_all_forms_say_the_same(tmp_path: Path, name: str) -> None:
    first, second, third = report_folders(write(tmp_path, ROWS, name), make_card(table=name))
    assert (first.id, first.subject, first.text) == ("s1", "p1", "FINDINGS: Clear lungs.\nIMPRESSION: Normal.")
    assert second.text == "IMPRESSION: Effusion."
    assert [Path(picture.name).name for picture in third.images] == ["c.png", "d.png"]


def test_byte_order_mark(tmp_path: Path) -> None:
    path = write(tmp_path, ROWS) / "t.csv"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(report_folders(tmp_path, make_card())) == 3


def test_split_and_where(tmp_path: Path) -> None:
    write(tmp_path, ROWS)
    found = report_folders(tmp_path, make_card("test", columns=COLUMNS | {"split": "part"}))
    assert [study.id for study in found] == ["s1", "s2"]
    found = report_folders(tmp_path, make_card(where={"who": ["p2"], "part": ["train", "valid"]}))
    assert [study.id for study in found] == ["s3"]


def test_one_row_per_image_with_patterns(tmp_path: Path) -> None:
    """CheXpert Plus: study and patient stand in the path; the converted images have another suffix."""
    names = ["valid/patient7/study2/view1.jpg", "valid/patient7/study2/view2.jpg", "valid/patient8/study1/view1.jpg"]
    for name in names:
        (tmp_path / "PNG" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "PNG" / name).with_suffix(".png").touch()
    write(tmp_path, [{"path": name, "text": "Clear."} for name in names])
    card = make_card(
        images="PNG",
        suffix=".png",
        study_pattern="^(.*)/",
        subject_pattern="patient[0-9]+",
        columns={"image": "path", "findings": "text"},
    )
    first, second = report_folders(tmp_path, card)
    assert (first.id, first.subject, len(first.images)) == ("valid/patient7/study2", "patient7", 2)
    assert (second.id, second.subject, len(second.images)) == ("valid/patient8/study1", "patient8", 1)


def test_captions_are_taken_as_they_are(tmp_path: Path) -> None:
    """Without a study column or pattern each image is a case; the text keeps its line breaks."""
    write(tmp_path, [{"image": "a.png", "caption": "Glands.\nNote: dark."}], "t.json")
    (only,) = report_folders(tmp_path, make_card(table="t.json", columns={"image": "image", "report": "caption"}))
    assert (only.id, only.subject, only.text) == ("a.png", "", "Glands.\nNote: dark.")


def test_an_object_of_records(tmp_path: Path) -> None:
    """Some sets number their records instead of listing them."""
    write(tmp_path, ROWS)
    (tmp_path / "t.json").write_text(json.dumps({str(number): row for number, row in enumerate(ROWS)}))
    assert [study.id for study in report_folders(tmp_path, make_card(table="t.json"))] == ["s1", "s2", "s3"]


def test_what_pandas_writes_for_nothing(tmp_path: Path) -> None:
    """Only a cell that says nothing else; cells of several lines stay one cell."""
    rows = [ROWS[0] | {"find": "nan", "imp": "Stable.\n\nNaNs are none."}, ROWS[1] | {"find": "NaN", "imp": " nan "}]
    first, second = report_folders(write(tmp_path, rows), make_card())
    assert (first.text, second.text) == ("IMPRESSION: Stable. NaNs are none.", "")
    (tmp_path / "t.json").write_text(json.dumps([rows[0] | {"find": float("nan"), "imp": None}]))
    assert report_folders(tmp_path, make_card(table="t.json"))[0].text == ""


def test_flawed_studies_may_be_left_out(tmp_path: Path) -> None:
    """Those with an absent image, with no image and with two texts; never all of them."""
    rows = [
        ROWS[0],
        ROWS[1] | {"file": "z.png"},
        ROWS[2],
        ROWS[2] | {"find": "Other."},
        ROWS[0] | {"id": "s4", "file": ""},
    ]
    write(tmp_path, rows)
    assert [study.id for study in report_folders(tmp_path, make_card(flawed="leave_out"))] == ["s1"]
    (tmp_path / "a.png").unlink()
    with pytest.raises(InfrastructureError, match="has no study whose images are below"):
        report_folders(tmp_path, make_card(flawed="leave_out"))


@pytest.mark.parametrize(
    ("findings", "impression", "expected"),
    [
        pytest.param("", "", "", id="nothing"),
        pytest.param(" \n ", "", "", id="white space"),
        pytest.param("Clear.\nLUNGS: clear.", "", "FINDINGS: Clear. LUNGS: clear.", id="no line can be a heading"),
        pytest.param("", "Normal.", "IMPRESSION: Normal.", id="impression only"),
    ],
)
def test_compose(findings: str, impression: str, expected: str) -> None:
    assert compose(findings, impression) == expected


def row(**changes: str) -> list[dict[str, str]]:
    return [ROWS[0] | changes]


WRONG = [
    pytest.param([], {}, InfrastructureError, "no rows|is empty", id="empty table"),
    pytest.param(ROWS, {"table": "none.csv"}, MissingDataError, "none.csv", id="no table"),
    pytest.param(row(file="z.png"), {}, MissingDataError, "z.png", id="image is not there"),
    pytest.param(row(file="../t.csv"), {}, InfrastructureError, "not below", id="image outside"),
    pytest.param(row(file="/etc/hostname"), {}, InfrastructureError, "not below", id="absolute image"),
    pytest.param(row(file=" ; "), {}, InfrastructureError, "names no image", id="no image"),
    pytest.param(row(id=" "), {}, InfrastructureError, "neither study nor image", id="no study"),
    pytest.param([*ROWS, ROWS[0] | {"find": "Other."}], {}, InfrastructureError, "2 different texts", id="two texts"),
    pytest.param(ROWS, {"where": {"part": ["valid"]}}, InfrastructureError, "no row where", id="nothing left"),
    pytest.param(
        ROWS, {"where": {"side": ["left"]}}, InfrastructureError, "lacks the column side", id="filter on nothing"
    ),
    pytest.param(
        ROWS,
        {"columns": COLUMNS | {"findings": "text"}},
        InfrastructureError,
        "lacks the column text",
        id="no such column",
    ),
    pytest.param(
        ROWS,
        {"columns": {"image": "file"}, "study_pattern": "study[0-9]"},
        InfrastructureError,
        "finds nothing",
        id="pattern does not fit",
    ),
    pytest.param(ROWS, {"study_pattern": "("}, ConfigError, "regular expression", id="no pattern at all"),
    pytest.param(ROWS, {"tabel": "x"}, ConfigError, "did you mean 'table'", id="misspelt option"),
    pytest.param(ROWS, {"table": "../t.csv"}, ConfigError, "relative path", id="table outside"),
]


@pytest.mark.parametrize(("rows", "options", "error", "message"), WRONG)
def test_wrong(
    tmp_path: Path, rows: list[dict[str, str]], options: dict[str, Any], error: type[AutoMedBenchError], message: str
) -> None:
    with pytest.raises(error, match=message):
        report_folders(write(tmp_path, rows), make_card(**options))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("t.csv", b'a,b\n"x', id="quote left open"),
        pytest.param("t.csv", b"\xff\xfe", id="not UTF-8"),
        pytest.param("t.jsonl", b"{", id="not JSON"),
        pytest.param("t.jsonl", b"[1]", id="not objects"),
        pytest.param("t.json", b'"text"', id="not a list"),
        pytest.param("t.json", b"[" * 100_000, id="too deep"),
        pytest.param("t.xlsx", b"", id="unknown form"),
    ],
)
def test_unreadable(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InfrastructureError, match=r"is not a (readable table|list of objects)"):
        report_folders(tmp_path, make_card(table=name))


def test_the_invented_set_is_what_its_source_says() -> None:
    """Marked as invented; the table's checksum stands beside it; every study has its pictures."""
    folder = toy.ROOT / "demo/data/demo_cxr_reports"
    source = (folder / "SOURCE.md").read_text()
    assert "invented" in source
    assert hashlib.sha256((folder / "invented_reports.csv").read_bytes()).hexdigest() in source
    card = load_card(toy.ROOT / "demo/tasks/report_generation/demo-cxr-report-task.yaml")
    studies = report_folders(folder, card)
    assert (len(studies), sum(len(study.images) for study in studies)) == (14, 17)
    assert len({study.subject for study in studies}) == 14
