"""Open-i: one XML file per report, its sections as ``AbstractText`` elements, its images as ``parentImage`` ids.

Options of the card (``staging.options``):

- ``reports`` and ``images``: folders below the raw data;
- ``suffix``: ending of an image file, which the ids in the XML lack.

A report without an image is left out. The report's own id is its study; Open-i does not say who the patient is.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.pictures import Picture, picture_file
from automedbench.datasets.forms.problems import missing, unexpected
from automedbench.datasets.forms.reports import SourceReport, compose
from automedbench.datasets.forms.xmlfile import parse_xml


class Options(Model):
    """Where things are below the raw folder."""

    reports: str = "ecgen-radiology"
    images: str = "images"
    suffix: str = Field(".png", pattern=r"^\.\w+$")


def read(raw: Path, card: TaskCard) -> list[SourceReport]:
    """All reports with an image, in the order of their numbers.

    Raises MissingDataError for an absent folder or image, InfrastructureError for an XML file that cannot be read.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    folder = raw / options.reports
    paths = sorted(folder.glob("*.xml"), key=lambda path: (int(re.sub(r"\D", "", path.stem) or 0), path.stem))
    if not paths:
        raise missing(folder / "1.xml", "report")
    found = [_report(path, raw / options.images, options) for path in paths]
    reports = [report for report in found if report is not None]
    if not reports:
        raise unexpected(folder, "holds no report with an image")
    return reports


def _report(path: Path, images: Path, options: Options) -> SourceReport | None:
    root = parse_xml(path, "report")
    names = list(dict.fromkeys((image.get("id") or "").strip() for image in root.iter("parentImage")))
    if not any(names):
        return None
    pictures = tuple(_image(images, name, path, options.suffix) for name in names if name)
    sections = _sections(root)
    text = compose(sections.get("FINDINGS", ""), sections.get("IMPRESSION", ""))
    return SourceReport(path.stem, pictures, text)


def _sections(root: ElementTree.Element) -> dict[str, str]:
    """Label in capitals → text, white space collapsed; several elements of one label follow each other."""
    found: dict[str, str] = {}
    for element in root.iter("AbstractText"):
        label = (element.get("Label") or "").strip().upper()
        text = " ".join("".join(element.itertext()).split())
        found[label] = f"{found.get(label, '')} {text}".strip()
    return found


def _image(folder: Path, name: str, report: Path, suffix: str) -> Picture:
    if PurePosixPath(name).name != name:
        raise unexpected(report, f"names the image {name[:60]!r}, which is not the name of a file")
    path = folder / (name if name.lower().endswith(suffix) else f"{name}{suffix}")
    if not path.is_file():
        raise missing(path, f"image of {report.name}")
    return picture_file(path)
