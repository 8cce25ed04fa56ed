"""Case folders: a public folder with each case's input and a private one with its answer, both named by the case.

That is how the public benchmark releases its tasks. An answer is a file of the private folder or, where that has none,
the case's row in the table ``ground_truth.csv`` beside the private folders. Nothing is chosen or made here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedbench.base.cards import RelativePath, TaskCard
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.pictures import picture_file, picture_size
from automedbench.datasets.forms.problems import first_file, missing, read_text, unexpected
from automedbench.datasets.forms.slices import SourceSlice
from automedbench.datasets.forms.sources import (
    LabelledImage,
    SourceImage,
    SourceQuestion,
    SourceReport,
    source_image,
)
from automedbench.datasets.forms.tables import json_object, table_rows
from automedbench.datasets.forms.volumes import SourceVolume
from automedbench.datasets.readers.question_files import normalize_text, parse_options, right_option
from automedbench.datasets.readers.slices import ImageFilesOptions, read_grey

TABLE = "ground_truth.csv"
MAX_BYTES = 20_000_000


class CaseFoldersOptions(Model):
    """The folder below the raw data that holds ``public`` and ``private``; a case is a folder with the first input."""

    folder: RelativePath


@dataclass(frozen=True)
class _CaseFolder:
    id: str
    input: Path
    held: Path
    row: Mapping[str, str]
    """Its row in the table of answers; empty where it has none."""

    def answer(self, name: str) -> Mapping[str, Any]:
        """The JSON object in a private file, or the row of the table; raises MissingDataError for neither."""
        path = self.held / name
        if self.row and not path.is_file():
            return self.row
        return json_object(path, f"answer of {self.id}")

    def text(self, name: str, keys: tuple[str, ...]) -> str:
        """The first of these keys that the answer has; raises InfrastructureError for none."""
        answer = self.answer(name)
        found = next((text for key in keys if (text := normalize_text(answer.get(key)))), None)
        if found is None:
            raise unexpected(self.held / name, f"has none of the keys {', '.join(keys)}")
        return found


def _cases(raw: Path, card: TaskCard) -> list[_CaseFolder]:
    """All cases, sorted by id; raises MissingDataError when there is none."""
    options = validate(card.staging.options, CaseFoldersOptions, card.id, "staging.options")
    public, private = raw / options.folder / "public", raw / options.folder / "private"
    inputs = sorted(public.glob(f"*/{card.inputs[0].file}"))
    if not inputs:
        raise missing(public / "*" / card.inputs[0].file, "input of a case")
    rows = _rows(private / TABLE)
    return [
        _CaseFolder(path.parent.name, path, private / path.parent.name, rows.get(path.parent.name, {}))
        for path in inputs
    ]


def _rows(path: Path) -> dict[str, dict[str, str]]:
    """Case → its row; the first column names the case. Empty without a table."""
    if not path.is_file():
        return {}
    rows = table_rows(path, "table of answers")
    return {next(iter(row.values())): {key: value or "" for key, value in row.items()} for row in rows}


def case_pictures(raw: Path, card: TaskCard) -> list[LabelledImage]:
    """Pictures with a class: ``label.json`` or the table's column ``label``."""
    return [
        LabelledImage(case.id, picture_file(case.input), case.text("label.json", ("label", "class_name", "class")))
        for case in _cases(raw, card)
    ]


def case_boxes(raw: Path, card: TaskCard) -> list[SourceImage]:
    """Pictures with boxes: ``boxes.json`` with ``boxes``, each with class, x1, y1, x2 and y2 in pixels."""
    return [_boxes(case) for case in _cases(raw, card)]


def _boxes(case: _CaseFolder) -> SourceImage:
    path = first_file([case.held / "boxes.json"], f"boxes of {case.id}")
    try:
        boxes = [
            (str(box["class"]), (float(box["x1"]), float(box["y1"]), float(box["x2"]), float(box["y2"])))
            for box in case.answer(path.name)["boxes"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise unexpected(path, f"holds a box without class and four numbers ({error})") from error
    picture = picture_file(case.input)
    return source_image(case.id, picture, path, picture_size(picture.read()), boxes)


def case_arrays(raw: Path, card: TaskCard) -> list[SourceSlice]:
    """Pairs of arrays: the degraded input and ``reference.npy``, with the table's ``data_range`` where it has one."""
    return [_pair(case) for case in _cases(raw, card)]


def _pair(case: _CaseFolder) -> SourceSlice:
    path, options = (
        first_file([case.held / "reference.npy"], f"reference of {case.id}"),
        ImageFilesOptions(images=["*"]),
    )
    pixels, degraded = (functools.partial(read_grey, each, options) for each in (path, case.input))
    span = normalize_text(case.row.get("data_range"))
    return SourceSlice(case.id, case.id, path, pixels, degraded, data_range=float(span) if span else None)


def case_volumes(raw: Path, card: TaskCard) -> list[SourceVolume]:
    """Pairs of volumes: the input, and the private volume of the same name or, without that, the only one there."""
    return [SourceVolume(case.id, _target(case), case.input) for case in _cases(raw, card)]


def _target(case: _CaseFolder) -> Path:
    volumes = sorted(case.held.glob("*.nii.gz"))
    named = [path for path in volumes if path.name == case.input.name] or volumes
    if len(named) != 1:
        raise unexpected(case.held, f"holds {len(volumes)} volumes; one must be that of {case.input.name}")
    return named[0]


def case_questions(raw: Path, card: TaskCard) -> list[SourceQuestion]:
    """Multiple-choice questions: ``question.json`` with question, options and image_paths; the letter in
    ``answer.json`` or the table.
    """
    return [_question(number, case) for number, case in enumerate(_cases(raw, card))]


def _question(row: int, case: _CaseFolder) -> SourceQuestion:
    asked = json_object(case.input, "question")
    names, question = asked.get("image_paths"), normalize_text(asked.get("question"))
    options = parse_options(asked.get("options"))
    if not isinstance(names, list) or not names or question is None or not options:
        raise unexpected(case.input, "lacks a question, its options or its images")
    label = right_option(options, case.text("answer.json", ("answer_label", "label")))
    folder = case.input.parent
    images = tuple(
        picture_file(first_file([folder / Path(name).name, folder / "images" / Path(name).name], "image"))
        for name in map(str, names)
    )
    return SourceQuestion(case.id, row, question, options[label], images, options, label)


def case_reports(raw: Path, card: TaskCard) -> list[SourceReport]:
    """Studies with a report: the folder ``images``, ``report.txt``, and perhaps findings in ``labels.json``."""
    return [_report(case) for case in _cases(raw, card)]


def _report(case: _CaseFolder) -> SourceReport:
    images = tuple(picture_file(path) for path in sorted((case.input.parent / "images").glob("*.*")))
    if not images:
        raise missing(case.input.parent / "images", f"images of {case.id}")
    text = read_text(case.held / "report.txt", f"report of {case.id}", MAX_BYTES)
    labels = case.answer("labels.json").get("labels") if (case.held / "labels.json").is_file() else None
    findings = frozenset(name for name, value in labels.items() if value) if isinstance(labels, dict) else None
    return SourceReport(case.id, images, text, findings=findings)
