"""Predicted labels: one table for the task, and one small JSON file per case where the card allows it.

A label in the table wins; the JSON file counts where the table has none. What is wrong with the table as a whole makes
every case malformed that it, or a JSON file, gives a label to; the labels are scored all the same.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from automedbench.base.cards import OutputFile, TaskCard
from automedbench.base.errors import ConfigError, InvalidSubmission
from automedbench.base.records import CaseEntry, CaseSubmission, FileEntry, Manifest, Problem
from automedbench.base.untrusted import parse_json, read_bounded, shown
from automedbench.base.untrusted.table import read_table
from automedbench.tracks.classification.stage import list_classes
from automedbench.tracks.common.cases import completed_verdict, output_path
from automedbench.tracks.common.staging import file_entry, normalised

ID_COLUMN, LABEL_COLUMN = "patient_id", "label"
MAX_UNKNOWN_SHARE = 0.1
"""Share of rows whose id is no case from which on the table is malformed (docs/specification.md, 10.6)."""


@dataclass(frozen=True)
class PredictedLabel:
    """Verdict on one case, and its predicted class; None when there is none that can be right."""

    verdict: CaseSubmission
    label: str | None = None


@dataclass(frozen=True)
class _LabelTable:
    """The table as collected: labels of every id as written, and what is wrong with it as a whole."""

    path: str
    files: dict[str, FileEntry] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)
    faults: list[Problem] = field(default_factory=list)
    remarks: list[Problem] = field(default_factory=list)
    lost: bool = False


@dataclass(frozen=True)
class _LabelFile:
    """A case's JSON file as collected: its label as written, empty when it has none."""

    path: str = ""
    files: dict[str, FileEntry] = field(default_factory=dict)
    label: str = ""
    faults: list[Problem] = field(default_factory=list)


def check(card: TaskCard, manifest: Manifest, submission: Path) -> list[CaseSubmission]:
    """Verdict on each expected case from ``predictions.csv`` and, where the card has it, the case's JSON file."""
    return [answer.verdict for answer in read_answers(card, manifest.cases, submission)]


def read_answers(card: TaskCard, cases: list[CaseEntry], submission: Path) -> list[PredictedLabel]:
    """Verdict and label of every expected case, in case order; nothing private is read."""
    classes = frozenset(list_classes(card))
    table_output, file_output = label_outputs(card)
    table = _read_table(table_output, frozenset(case.id for case in cases), submission)
    answers = []
    remarks = table.remarks
    for case in cases:
        file = _read_file(file_output, case, submission) if file_output else _LabelFile()
        answer = _answer(case, table, file, classes, remarks)
        # A remark on the whole table is made once, with the first case that the table names.
        remarks = [] if case.id in table.labels else remarks
        answers.append(answer)
    return answers


def label_outputs(card: TaskCard) -> tuple[OutputFile, OutputFile | None]:
    """The card's table and its JSON file per case, if any; raises ConfigError for other outputs."""
    tables = [output for output in card.outputs if output.format == "csv" and "{case}" not in output.path]
    files = [output for output in card.outputs if output.format == "json" and "{case}" in output.path]
    if len(tables) != 1 or len(files) > 1 or len(tables) + len(files) != len(card.outputs):
        raise ConfigError(
            [f"{card.id}: outputs: classification needs one csv file per task, at most one json per case"]
        )
    return tables[0], files[0] if files else None


def _answer(
    case: CaseEntry, table: _LabelTable, file: _LabelFile, classes: frozenset[str], remarks: list[Problem]
) -> PredictedLabel:
    given = list({normalised(label): label for label in table.labels.get(case.id, []) if label}.values())
    if len(given) > 1:
        message = f"{table.path} has different labels for {case.id}: {' and '.join(map(shown, given[:3]))}"
        problem = _problem("conflicting_rows", message)
        return PredictedLabel(completed_verdict(case, [problem, *table.faults], remarks, table.files))
    if given:
        path, label, files = table.path, given[0], {**table.files, **file.files}
        remarks = [*_row_remarks(case, table, file), *remarks]
    elif file.label:
        path, label, files = file.path, file.label, file.files
    else:
        return PredictedLabel(_without_label(case, table, file, remarks))
    known = normalised(label) in classes
    message = f"{path} has the label {shown(label)} for {case.id}, which the task does not list"
    problems = [*([] if known else [_problem("unknown_label", message)]), *table.faults]
    return PredictedLabel(completed_verdict(case, problems, remarks, files), normalised(label) if known else None)


def _row_remarks(case: CaseEntry, table: _LabelTable, file: _LabelFile) -> list[Problem]:
    """Remarks on a case whose label the table gives: unusual, but valid."""
    rows = table.labels[case.id]
    remarks = []
    if len(rows) > 1:
        remarks.append(_problem("duplicate_row", f"{table.path} has {len(rows)} rows for {case.id} with one label"))
    if file.label and normalised(file.label) not in map(normalised, rows):
        message = f"{file.path} has the label {shown(file.label)}; that of {table.path} counts"
        remarks.append(_problem("other_label", message))
    return [*remarks, *file.faults]


def _without_label(case: CaseEntry, table: _LabelTable, file: _LabelFile, remarks: list[Problem]) -> CaseSubmission:
    """Malformed if a file was there that might have held the label and cannot be read, else missing."""
    broken = [*file.faults, *(table.faults if table.lost else [])]
    if broken:
        files = {**(table.files if table.lost else {}), **file.files}
        return CaseSubmission(case=case.id, status="malformed", completed=False, problems=broken, files=files)
    if not table.files:
        problem = _problem("not_found", f"{table.path} was not submitted")
    elif case.id in table.labels:
        problem = _problem("empty_label", f"{table.path} has no label in the row of {case.id}")
    else:
        problem = _problem("no_row", f"{table.path} has no row for {case.id}")
    problems = [problem, *table.faults, *remarks]
    return CaseSubmission(case=case.id, status="missing", completed=False, problems=problems)


def _read_table(output: OutputFile, cases: frozenset[str], submission: Path) -> _LabelTable:
    path = output.path
    files: dict[str, FileEntry] = {}
    try:
        data = read_bounded(output_path(submission, output), output.max_bytes)
        if data is None:
            return _LabelTable(path)
        files = {path: file_entry(data)}
        rows = read_table(data).select(ID_COLUMN, LABEL_COLUMN)
    except InvalidSubmission as error:
        return _LabelTable(path, files, faults=[_problem(error.code, f"{path} {error}")], lost=True)
    labels: dict[str, list[str]] = defaultdict(list)
    for name, label in rows:
        labels[name].append(label)
    unknown = [name for name, _ in rows if name not in cases]
    message = f"{path} has {len(unknown)} of {len(rows)} rows whose {ID_COLUMN} is no case, the first "
    remarks = [_problem("unknown_id", message + shown(unknown[0]))] if unknown else []
    many = len(unknown) > MAX_UNKNOWN_SHARE * len(rows)
    return _LabelTable(path, files, dict(labels), faults=remarks if many else [], remarks=[] if many else remarks)


def _read_file(output: OutputFile, case: CaseEntry, submission: Path) -> _LabelFile:
    path = output.path.replace("{case}", case.id)
    files: dict[str, FileEntry] = {}
    try:
        data = read_bounded(output_path(submission, output, case.id), output.max_bytes)
        if data is None:
            return _LabelFile(path)
        files = {path: file_entry(data)}
        return _LabelFile(path, files, _label_in(parse_json(data)))
    except InvalidSubmission as error:
        return _LabelFile(path, files, faults=[_problem("json_invalid", f"{path} {error}")])


def _label_in(value: object) -> str:
    if not isinstance(value, dict):
        raise InvalidSubmission("json_invalid", f"is {shown(value)}, not an object")
    label = value.get(LABEL_COLUMN)
    if not isinstance(label, str):
        raise InvalidSubmission("json_invalid", f"has the {LABEL_COLUMN} {shown(label)}, not a text")
    return label.strip()


def _problem(code: str, message: str) -> Problem:
    return Problem(code=code, message=message)
