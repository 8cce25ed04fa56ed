"""MIMIC-CXR: a folder of images per study, a text file per report, and a table that puts every image in a split.

Options of the card (``staging.options``):

- ``images`` and ``reports``: where a study's images and its report are, with ``{patients}`` (``p10``: the first two
  digits of the patient), ``{subject}``, ``{study}`` and, for images, ``{image}``;
- ``splits``: the table with ``dicom_id``, ``study_id``, ``subject_id`` and ``split``;
- ``views``: with ``metadata``, the table that has ``ViewPosition``, images of other views are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.csvfile import csv_rows
from automedbench.datasets.forms.pictures import Picture, picture_file
from automedbench.datasets.forms.problems import missing, unexpected, unreadable
from automedbench.datasets.forms.reports import SourceReport

MAX_REPORT_BYTES = 1_000_000


class Options(Model):
    """Where things are below the raw folder, and which views count."""

    images: str = "files/{patients}/p{subject}/s{study}/{image}.jpg"
    reports: str = "files/{patients}/p{subject}/s{study}.txt"
    splits: str = "mimic-cxr-2.0.0-split.csv.gz"
    metadata: str = "mimic-cxr-2.0.0-metadata.csv.gz"
    views: list[str] = Field(default_factory=list)


class _Row(NamedTuple):
    image: str
    study: str
    subject: str


def read(raw: Path, card: TaskCard) -> list[SourceReport]:
    """All studies of the card's split that have an image, in the order of the table of splits.

    Raises MissingDataError for an absent table, report or image, and InfrastructureError for a table that cannot be
    read, a study of two patients or a report that is not a text.
    """
    options = validate(card.staging.options, Options, card.id, "staging.options")
    studies: dict[str, list[_Row]] = {}
    for row in _rows(raw, options, card.staging.sampling.split):
        studies.setdefault(row.study, []).append(row)
    return [_study(raw, rows, options) for rows in studies.values()]


def _rows(raw: Path, options: Options, split: str | None) -> list[_Row]:
    """Images of the split and of the views; every id is a number or hexadecimal groups, so none leaves the folder."""
    path = raw / options.splits
    table = csv_rows(path, ["dicom_id", "study_id", "subject_id", "split"], "table of splits")
    rows = [_Row(*row[:3]) for row in table if split is None or row[3] == split]
    if not rows:
        raise unexpected(path, f"has no image of split '{split}'")
    strange = [name for row in rows for name in row if not name.replace("-", "").replace(".", "").isalnum()]
    if strange:
        raise unreadable(path, f"has the id {strange[0][:60]!r}, which is neither a number nor a name")
    if not options.views:
        return rows
    metadata = raw / options.metadata
    views = {row[0]: row[1] for row in csv_rows(metadata, ["dicom_id", "ViewPosition"], "table of views")}
    chosen = [row for row in rows if views.get(row.image, "") in options.views]
    if not chosen:
        raise unexpected(metadata, f"gives no image of split '{split}' a view of {options.views}")
    return chosen


def _study(raw: Path, rows: list[_Row], options: Options) -> SourceReport:
    first = rows[0]
    if len({row.subject for row in rows}) > 1:
        raise unreadable(raw / options.splits, f"gives study {first.study} to two patients")
    names = dict.fromkeys(row.image for row in rows)
    images = tuple(_image(_place(raw, options.images, first, image), first.study) for image in names)
    return SourceReport(first.study, images, _text(_place(raw, options.reports, first)), first.subject)


def _place(raw: Path, pattern: str, row: _Row, image: str = "") -> Path:
    parts = {"patients": f"p{row.subject[:2]}", "subject": row.subject, "study": row.study, "image": image}
    for name, part in parts.items():
        pattern = pattern.replace(f"{{{name}}}", part)
    return raw / pattern


def _image(path: Path, study: str) -> Picture:
    if not path.is_file():
        raise missing(path, f"image of study {study}")
    return picture_file(path)


def _text(path: Path) -> str:
    """The report with plain line breaks."""
    try:
        if path.stat().st_size > MAX_REPORT_BYTES:
            raise unreadable(path, f"is larger than {MAX_REPORT_BYTES} bytes")
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise missing(path, "report") from error
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, f"is not a readable text: {error}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
