"""Segmentation's format check: every expected file of a case, read once from front to back, nothing private."""

from __future__ import annotations

from pathlib import Path

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InvalidSubmission
from automedbench.base.files import sha256_file
from automedbench.base.records import CaseEntry, CaseSubmission, FileEntry, Manifest, Problem
from automedbench.base.untrusted.nifti import VolumeReader, open_volume
from automedbench.tracks.common.cases import missing, output_path
from automedbench.tracks.segmentation.geometry import affine_remark, shape_problem
from automedbench.tracks.segmentation.settings import LabelFile, label_files
from automedbench.tracks.segmentation.values import Encoder

NOT_FOUND = "not_found"


def check(card: TaskCard, manifest: Manifest, submission: Path) -> list[CaseSubmission]:
    """Verdict on each expected case; its grid comes from the manifest, nothing private is read."""
    files = label_files(card)
    return [check_case(case, files, submission) for case in manifest.cases]


def check_case(case: CaseEntry, files: tuple[LabelFile, ...], submission: Path) -> CaseSubmission:
    """Verdict on a case.

    It is *completed* when every file is there and can be read to its end, *valid* when shape and values fit too.
    """
    problems: list[Problem] = []
    remarks: list[Problem] = []
    entries: dict[str, FileEntry] = {}
    unreadable: list[Problem] = []
    for file in files:
        path = output_path(submission, file.output, case.id)
        try:
            faults, notes = _check_file(path, file, case)
        except InvalidSubmission as error:
            unreadable.append(Problem(code=error.code, message=f"{file.path(case.id)} {error}"))
        else:
            problems += [_named(fault, file, case) for fault in faults]
            remarks += [_named(note, file, case) for note in notes]
        if path.is_file() and not path.is_symlink():
            entries[file.path(case.id)] = FileEntry(sha256=sha256_file(path), bytes=path.stat().st_size)
    if len(unreadable) == len(files) and all(problem.code == NOT_FOUND for problem in unreadable):
        return missing(case, " and ".join(file.path(case.id) for file in files))
    return CaseSubmission(
        case=case.id,
        status="malformed" if unreadable or problems else "valid",
        completed=not unreadable,
        problems=[*unreadable, *problems, *remarks],
        files=entries,
    )


def _check_file(path: Path, file: LabelFile, case: CaseEntry) -> tuple[list[Problem], list[Problem]]:
    """Problems and remarks; raises InvalidSubmission for a file that cannot be read to its end."""
    with open_volume(path, max_bytes=file.output.max_bytes) as reader:
        wrong_shape = shape_problem(reader.header, case)
        if wrong_shape:
            _read_through(reader)
            return [wrong_shape], []
        remark = affine_remark(reader.header, case)
        encoder = Encoder(file)
        for block in reader.blocks():
            encoder.encode(block)
    return encoder.problems, [remark] if remark else []


def _read_through(reader: VolumeReader) -> None:
    for _ in reader.blocks(stored=True):
        pass


def _named(problem: Problem, file: LabelFile, case: CaseEntry) -> Problem:
    return Problem(code=problem.code, message=f"{file.path(case.id)} {problem.message}")
