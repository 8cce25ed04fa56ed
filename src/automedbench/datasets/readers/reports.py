"""Reports: studies with their images and texts, as MIMIC-CXR and Open-i have them, or in a table."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple
from xml.etree import ElementTree

from pydantic import Field

from automedbench.base.cards import RelativePath, TaskCard
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.pictures import Picture, picture_file
from automedbench.datasets.forms.problems import first_file, missing, read_text, unexpected, unreadable
from automedbench.datasets.forms.sources import SourceReport, compose
from automedbench.datasets.forms.tables import Row, csv_rows, parse_xml, table_rows
from automedbench.datasets.forms.volumes import fill_pattern
from automedbench.datasets.patterns import search_pattern

MAX_REPORT_BYTES = 1_000_000


class MimicReportsOptions(Model):
    """MIMIC-CXR: a folder of images per study, a text file per report, and a table that puts every image in a split.

    ``staging.options``:

    - ``images`` and ``reports``: where a study's images and its report are, with ``{patients}`` (``p10``: the first two
      digits of the patient), ``{subject}``, ``{study}`` and, for images, ``{image}``;
    - ``splits``: the table with ``dicom_id``, ``study_id``, ``subject_id`` and ``split``.
    """

    images: str = "files/{patients}/p{subject}/s{study}/{image}.jpg"
    reports: str = "files/{patients}/p{subject}/s{study}.txt"
    splits: str = "mimic-cxr-2.0.0-split.csv.gz"


class _ReportRow(NamedTuple):
    image: str
    study: str
    subject: str


def mimic_reports(raw: Path, card: TaskCard) -> list[SourceReport]:
    """All studies of the card's split that have an image, in the order of the table of splits.

    Raises MissingDataError for an absent table, report or image, and InfrastructureError for a table that cannot be
    read, a study of two patients or a report that is not a text.
    """
    options = validate(card.staging.options, MimicReportsOptions, card.id, "staging.options")
    studies: dict[str, list[_ReportRow]] = {}
    for row in _rows(raw, options, card.staging.sampling.split):
        studies.setdefault(row.study, []).append(row)
    return [_mimic_study(raw, rows, options) for rows in studies.values()]


def _rows(raw: Path, options: MimicReportsOptions, split: str | None) -> list[_ReportRow]:
    """Images of the split; every id is a number or hexadecimal groups, so none leaves the folder."""
    path = raw / options.splits
    table = csv_rows(path, ["dicom_id", "study_id", "subject_id", "split"], "table of splits")
    rows = [_ReportRow(*row[:3]) for row in table if split is None or row[3] == split]
    if not rows:
        raise unexpected(path, f"has no image of split '{split}'")
    strange = [name for row in rows for name in row if not name.replace("-", "").replace(".", "").isalnum()]
    if strange:
        raise unreadable(path, f"has the id {strange[0][:60]!r}, which is neither a number nor a name")
    return rows


def _mimic_study(raw: Path, rows: list[_ReportRow], options: MimicReportsOptions) -> SourceReport:
    first = rows[0]
    if len({row.subject for row in rows}) > 1:
        raise unreadable(raw / options.splits, f"gives study {first.study} to two patients")
    names = dict.fromkeys(row.image for row in rows)
    images = tuple(
        picture_file(first_file([_place(raw, options.images, first, image)], f"image of study {first.study}"))
        for image in names
    )
    return SourceReport(
        first.study, images, read_text(_place(raw, options.reports, first), "report", MAX_REPORT_BYTES), first.subject
    )


def _place(raw: Path, pattern: str, row: _ReportRow, image: str = "") -> Path:
    parts = {"patients": f"p{row.subject[:2]}", "subject": row.subject, "study": row.study, "image": image}
    return raw / fill_pattern(pattern, parts)


class OpeniReportsOptions(Model):
    """Open-i: one XML file per report, its sections as ``AbstractText`` elements, its images as ``parentImage`` ids.

    ``staging.options``:

    - ``reports`` and ``images``: folders below the raw data;
    - ``suffix``: ending of an image file, which the ids in the XML lack.

    A report without an image is left out. The report's own id is its study; Open-i does not say who the patient is.
    """

    reports: str = "ecgen-radiology"
    images: str = "images"
    suffix: str = Field(".png", pattern=r"^\.\w+$")


def openi_reports(raw: Path, card: TaskCard) -> list[SourceReport]:
    """All reports with an image, in the order of their numbers.

    Raises MissingDataError for an absent folder or image, InfrastructureError for an XML file that cannot be read.
    """
    options = validate(card.staging.options, OpeniReportsOptions, card.id, "staging.options")
    folder = raw / options.reports
    paths = sorted(folder.glob("*.xml"), key=lambda path: (int(re.sub(r"\D", "", path.stem) or 0), path.stem))
    if not paths:
        raise missing(folder / "1.xml", "report")
    found = [_openi_report(path, raw / options.images, options) for path in paths]
    reports = [report for report in found if report is not None]
    if not reports:
        raise unexpected(folder, "contains no report with an image")
    return reports


def _openi_report(path: Path, images: Path, options: OpeniReportsOptions) -> SourceReport | None:
    root = parse_xml(path, "report")
    names = list(dict.fromkeys((image.get("id") or "").strip() for image in root.iter("parentImage")))
    if not any(names):
        return None
    pictures = tuple(_openi_image(images, name, path, options.suffix) for name in names if name)
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


def _openi_image(folder: Path, name: str, report: Path, suffix: str) -> Picture:
    if PurePosixPath(name).name != name:
        raise unexpected(report, f"names the image {name[:60]!r}, which is not the name of a file")
    path = folder / (name if name.lower().endswith(suffix) else f"{name}{suffix}")
    return picture_file(first_file([path], f"image of {report.name}"))


_Cells = dict[str, str]


class Columns(Model):
    """Names of the table's columns; null where there is none."""

    image: str
    study: str | None = None
    subject: str | None = None
    split: str | None = None
    findings: str | None = None
    impression: str | None = None
    report: str | None = None


class ReportFoldersOptions(Model):
    """A table of studies (CSV, TSV, JSONL, or a JSON list or object of records) beside a folder of images.

    One row is one study or one image of a study; rows of one study are joined. ``staging.options``:

    - ``table`` and ``images``: the table and the folder that image names are relative to, below the raw data;
    - ``columns``: names of the columns. ``image`` is required, with several names in a cell parted by ``separator``;
      text comes from ``findings`` and ``impression``, or from ``report`` as a whole. ``study`` and ``subject``
      identify;
    - ``study_pattern``, ``subject_pattern``: regular expressions that find them in the image's name where there is no
      column (group 1, or the whole match);
    - ``where``: column → values; other rows are left out;
    - ``suffix``: suffix that replaces the one of the table's image names, where images were converted;
    - ``flawed``: what becomes of a study whose image is absent or that has two texts: ``error``, or ``leave_out``.

    A cell that says ``nan``, as pandas writes what is absent, is empty.

    ``staging.sampling.split`` is compared with the column ``split``.
    """

    table: RelativePath
    images: str = "."
    columns: Columns
    separator: str = Field(";", min_length=1)
    study_pattern: re.Pattern[str] | None = None
    subject_pattern: re.Pattern[str] | None = None
    where: dict[str, list[str]] = Field(default_factory=dict)
    suffix: str | None = Field(None, pattern=r"^\.\w+$")
    flawed: Literal["error", "leave_out"] = "error"


def report_folders(raw: Path, card: TaskCard) -> list[SourceReport]:
    """All studies of the card's split, in the order of their first rows.

    Raises MissingDataError for absent files, InfrastructureError for a table that cannot be read, lacks a column or
    gives one study two texts, and ConfigError for wrong options.
    """
    options = validate(card.staging.options, ReportFoldersOptions, card.id, "staging.options")
    table = raw / options.table
    studies: dict[str, list[_Cells]] = {}
    for row in _select(table, options, card.staging.sampling.split):
        studies.setdefault(_study(row, table, options), []).append(row)
    found = [_join(study, group, raw / options.images, table, options) for study, group in studies.items()]
    reports = [report for report in found if report is not None]
    if not reports:
        raise unexpected(table, f"has no study whose images are below {raw / options.images}")
    return reports


def _texts(row: Row, columns: list[str]) -> _Cells:
    """The columns' values as text; what is absent, also as pandas writes it, is empty."""
    texts = {name: "" if row[name] is None else str(row[name]).strip() for name in columns if name in row}
    return {name: "" if text.lower() == "nan" else text for name, text in texts.items()}


def _select(table: Path, options: ReportFoldersOptions, split: str | None) -> list[_Cells]:
    """Rows of the split that fulfil ``where``."""
    wanted = dict(options.where)
    if split is not None and options.columns.split is not None:
        wanted[options.columns.split] = [split]
    named = [name for name in options.columns.model_dump().values() if name is not None]
    needed = list(dict.fromkeys([*named, *wanted]))
    rows = [_texts(row, needed) for row in table_rows(table, "table of studies")]
    lacking = [name for name in needed if rows and name not in rows[0]]
    if not rows or lacking:
        raise unexpected(table, f"lacks the column {lacking[0]}" if rows else "has no rows")
    chosen = [row for row in rows if all(row.get(name, "") in values for name, values in wanted.items())]
    if not chosen:
        raise unexpected(table, f"has no row where {wanted}")
    return chosen


def _study(row: _Cells, table: Path, options: ReportFoldersOptions) -> str:
    """The study a row belongs to: its column, what the pattern finds in the image's name, or that name."""
    column = options.columns.study
    name = row.get(options.columns.image, "")
    study = row.get(column, "") if column else _found(options.study_pattern, name, table) or name
    if not study.strip():
        raise unexpected(table, "has a row that names neither study nor image")
    return study.strip()


def _subject(row: _Cells, table: Path, options: ReportFoldersOptions) -> str:
    column = options.columns.subject
    if column:
        return row.get(column, "").strip()
    return _found(options.subject_pattern, row.get(options.columns.image, ""), table) or ""


def _found(pattern: re.Pattern[str] | None, name: str, table: Path) -> str | None:
    """Text that the pattern matches; raises InfrastructureError without a match."""
    found = search_pattern(pattern, name)
    if pattern is not None and found is None:
        raise unexpected(table, f"names the image '{name[:60]}', in which {pattern.pattern!r} finds nothing")
    return found


def _join(
    study: str, rows: list[_Cells], images: Path, table: Path, options: ReportFoldersOptions
) -> SourceReport | None:
    """One study of its rows; None when it is flawed and such are left out."""
    texts = sorted({text for row in rows if (text := _row_text(row, options.columns))})
    cells = [cell for row in rows for cell in row.get(options.columns.image, "").split(options.separator)]
    names = dict.fromkeys(cell.strip() for cell in cells if cell.strip())
    paths = [_path(images, name, table, options.suffix) for name in names]
    absent = [path for path in paths if not path.is_file()]
    if (absent or not paths or len(texts) > 1) and options.flawed == "leave_out":
        return None
    if len(texts) > 1:
        raise unexpected(table, f"gives study '{study[:60]}' {len(texts)} different texts")
    if not paths:
        raise unexpected(table, f"names no image for study '{study[:60]}'")
    if absent:
        raise missing(absent[0])
    pictures = tuple(map(picture_file, paths))
    return SourceReport(study, pictures, texts[0] if texts else "", _subject(rows[0], table, options))


def _row_text(row: _Cells, columns: Columns) -> str:
    if columns.report is not None:
        return row.get(columns.report, "").strip()
    parts = (row.get(name, "") if name else "" for name in (columns.findings, columns.impression))
    return compose(*parts)


def _path(folder: Path, name: str, table: Path, suffix: str | None) -> Path:
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts:
        raise unexpected(table, f"names the image '{name[:60]}', which is not below the image folder")
    return folder / (relative.with_suffix(suffix) if suffix else relative)
