"""MIMIC-CXR's layout: splits, texts with their headings, and every file that may be absent or damaged."""

from __future__ import annotations

import functools
import gzip
from pathlib import Path
from typing import Any

import pytest
from toys import report_generation as toy
from toys import with_options

from automedbench.base.errors import AutoMedBenchError, InfrastructureError, MissingDataError
from automedbench.datasets.readers.reports import mimic_reports

SPLITS = "mimic-cxr-2.0.0-split.csv.gz"
# Image, study, subject, split, view.
ROWS = [
    ("aa-01", "50", "1234", "test", "PA"),
    ("bb-02", "50", "1234", "test", "LATERAL"),
    ("cc-03", "51", "1234", "test", "AP"),
    ("dd-04", "60", "2345", "train", "PA"),
]


card = functools.partial(with_options, toy.CARD, split="test", reader="mimic_reports")


def write(raw: Path, rows: list[tuple[str, str, str, str, str]] = ROWS) -> Path:
    for image, study, subject, _, _ in rows:
        folder = raw / f"files/p{subject[:2]}/p{subject}/s{study}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{image}.jpg").touch()
        folder.with_suffix(".txt").write_bytes(f" FINDINGS:\r\n Clear {study}.\r\n".encode())
    table(raw / SPLITS, "dicom_id,study_id,subject_id,split", [row[:4] for row in rows])
    return raw


def table(path: Path, header: str, rows: list[tuple[str, ...]]) -> None:
    path.write_bytes(gzip.compress("\n".join([header, *map(",".join, rows)]).encode()))


def test_a_table_that_is_not_gzipped(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "split.csv").write_bytes(gzip.decompress((tmp_path / SPLITS).read_bytes()))
    assert len(mimic_reports(tmp_path, card(splits="split.csv"))) == 2


def test_a_flat_folder(tmp_path: Path) -> None:
    """Another layout is a matter of two patterns."""
    write(tmp_path, ROWS[:1])
    for path in [*tmp_path.rglob("*.jpg"), *tmp_path.rglob("*.txt")]:
        path.rename(tmp_path / path.name)
    patterns = {"images": "{image}.jpg", "reports": "s{study}.txt"}
    assert [study.id for study in mimic_reports(tmp_path, card(**patterns))] == ["50"]


STUDY = "files/p12/p1234/s50"


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        pytest.param(lambda raw: (raw / STUDY / "aa-01.jpg").unlink(), MissingDataError, "of study 50", id="no image"),
        pytest.param(lambda raw: (raw / f"{STUDY}.txt").unlink(), MissingDataError, "s50.txt .report", id="no report"),
        pytest.param(lambda raw: (raw / SPLITS).unlink(), MissingDataError, "table of splits", id="no table"),
        pytest.param(
            lambda raw: (raw / f"{STUDY}.txt").write_bytes(b"\xff"), InfrastructureError, "readable text", id="Latin-1"
        ),
        pytest.param(
            lambda raw: (raw / f"{STUDY}.txt").write_bytes(b" " * 1_000_001), InfrastructureError, "larger", id="huge"
        ),
        pytest.param(lambda raw: (raw / SPLITS).write_bytes(b"dicom_id"), InfrastructureError, "gzip", id="not gzip"),
        pytest.param(
            lambda raw: (raw / SPLITS).write_bytes((raw / SPLITS).read_bytes()[:-9]),
            InfrastructureError,
            "gzip",
            id="half a download",
        ),
        pytest.param(
            lambda raw: table(raw / SPLITS, "dicom_id,study_id,subject_id", [("a", "5", "1")]),
            InfrastructureError,
            "lacks the column split",
            id="missing column",
        ),
        pytest.param(
            lambda raw: table(raw / SPLITS, "dicom_id,study_id,subject_id,split", [("../a", "5", "1", "test")]),
            InfrastructureError,
            "neither a number nor a name",
            id="path as id",
        ),
        pytest.param(
            lambda raw: write(raw, [*ROWS, ("ee-05", "50", "9999", "test", "PA")]),
            InfrastructureError,
            "study 50 to two patients",
            id="extra patient",
        ),
    ],
)
def test_bad_files(tmp_path: Path, change: Any, error: type[AutoMedBenchError], why: str) -> None:
    change(write(tmp_path))
    with pytest.raises(error, match=why) as caught:
        mimic_reports(tmp_path, card())
    assert len(str(caught.value).splitlines()) <= 3


def test_an_empty_split(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="no image of split 'validate'"):
        mimic_reports(write(tmp_path), card(split="validate"))
