"""Open-i's XML: sections, images, reports without either, and hostile files."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from toys import report_generation as toy
from toys import with_options

from automedbench.base.errors import AutoMedBenchError, InfrastructureError, MissingDataError
from automedbench.datasets.forms.tables import MAX_XML_BYTES
from automedbench.datasets.readers.reports import openi_reports

card = functools.partial(with_options, toy.CARD, reader="openi_reports")


def write(raw: Path, number: int, *images: str, **sections: str) -> Path:
    """One report and its images, in the archives' layout."""
    for folder in ("ecgen-radiology", "images"):
        (raw / folder).mkdir(parents=True, exist_ok=True)
    texts = "".join(f'<AbstractText Label="{label}">{text}</AbstractText>' for label, text in sections.items())
    pictures = "".join(f'<parentImage id="{name}"><caption>PA</caption></parentImage>' for name in images)
    xml = f'<?xml version="1.0" encoding="utf-8"?><eCitation><Abstract>{texts}</Abstract>{pictures}</eCitation>'
    (raw / f"ecgen-radiology/{number}.xml").write_text(xml)
    for name in images:
        (raw / "images" / name).with_suffix(".png").touch()
    return raw


def test_sections_become_a_report(tmp_path: Path) -> None:
    """White space collapses, markup inside a section is its text; other sections are left out."""
    write(
        tmp_path,
        1,
        "CXR1",
        COMPARISON="None.",
        FINDINGS="\n Clear <b>lungs</b>.\n Heart &lt; 50%.",
        IMPRESSION="1. Ok.",
    )
    (report,) = openi_reports(tmp_path, card())
    assert report.text == "FINDINGS: Clear lungs. Heart < 50%.\nIMPRESSION: 1. Ok."
    assert (report.id, report.subject) == ("1", "")


def test_order_of_numbers(tmp_path: Path) -> None:
    """10 comes after 2; every image once, in the order of the report."""
    for number in (10, 2, 1):
        write(tmp_path, number, f"CXR{number}_b", f"CXR{number}_a", FINDINGS="Clear.")
    write(tmp_path, 3, "CXR3", "CXR3", FINDINGS="Clear.")
    reports = openi_reports(tmp_path, card())
    assert [report.id for report in reports] == ["1", "2", "3", "10"]
    assert [picture.short for picture in reports[0].images] == ["images/CXR1_b.png", "images/CXR1_a.png"]
    assert len(reports[2].images) == 1


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        pytest.param({"FINDINGS": "", "IMPRESSION": "Ok."}, "IMPRESSION: Ok.", id="empty findings"),
        pytest.param({"findings": "Clear."}, "FINDINGS: Clear.", id="small letters"),
        pytest.param({"INDICATION": "Cough."}, "", id="neither"),
    ],
)
def test_sections_that_are_not_there(tmp_path: Path, sections: dict[str, str], text: str) -> None:
    assert openi_reports(write(tmp_path, 1, "CXR1", **sections), card())[0].text == text


def test_a_section_in_two_parts(tmp_path: Path) -> None:
    write(tmp_path, 1, "CXR1")
    path = tmp_path / "ecgen-radiology/1.xml"
    part = '<AbstractText Label="FINDINGS">{}</AbstractText>'
    path.write_text(f'<a>{part.format("Clear.")}{part.format("Small heart.")}<parentImage id="CXR1"/></a>')
    assert openi_reports(tmp_path, card())[0].text == "FINDINGS: Clear. Small heart."


def test_a_report_without_image_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, 1, FINDINGS="Clear.")
    with pytest.raises(InfrastructureError, match="no report with an image"):
        openi_reports(tmp_path, card())
    write(tmp_path, 2, "CXR2", FINDINGS="Clear.")
    assert [report.id for report in openi_reports(tmp_path, card())] == ["2"]


def test_ids_that_have_the_suffix(tmp_path: Path) -> None:
    assert openi_reports(write(tmp_path, 1, "CXR1.png"), card())[0].images[0].short == "images/CXR1.png"


BOMB = '<!DOCTYPE a [<!ENTITY x "ha">]><eCitation>&x;</eCitation>'


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        pytest.param(lambda raw: (raw / "images/CXR1.png").unlink(), MissingDataError, "CXR1.png", id="no image"),
        pytest.param(lambda raw: (raw / "ecgen-radiology/1.xml").unlink(), MissingDataError, "report", id="no report"),
        pytest.param(lambda raw: replace(raw, "<eCitation>"), InfrastructureError, "1.xml: is not a", id="cut off"),
        pytest.param(lambda raw: replace(raw, BOMB), InfrastructureError, "document type", id="entity"),
        pytest.param(lambda raw: replace(raw, " " * (MAX_XML_BYTES + 1)), InfrastructureError, "limit", id="too large"),
        pytest.param(
            lambda raw: replace(raw, '<a><parentImage id="../../x"/></a>'),
            InfrastructureError,
            "not the name",
            id="path",
        ),
    ],
)
def test_bad_files(tmp_path: Path, change: Any, error: type[AutoMedBenchError], why: str) -> None:
    """One bad file among good ones is named."""
    write(tmp_path, 1, "CXR1", FINDINGS="Clear.")
    change(tmp_path)
    with pytest.raises(error, match=why):
        openi_reports(tmp_path, card())


def replace(raw: Path, text: str) -> None:
    (raw / "ecgen-radiology/1.xml").write_text(text)
    (raw / "ecgen-radiology/2.xml").write_text('<a><parentImage id="CXR1"/></a>')
