"""Cases in all tracks: find an output, read it within bounds, give a verdict on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from automedbench.base.cards import OutputFile, TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError, InvalidSubmission
from automedbench.base.records import CaseEntry, CaseSubmission, FileEntry, Problem
from automedbench.base.untrusted import read_bounded
from automedbench.tracks.common.staging import file_entry

OUTPUTS = "agents_outputs"
"""Folder of a submission that holds what is scored."""
ReadT = TypeVar("ReadT")
Judged = tuple[list[Problem], list[Problem]]
"""Problems that make an output malformed, and remarks that don't."""


def case_output(card: TaskCard, suffix: str) -> OutputFile:
    """The card's one output file per case of this format; raises ConfigError when there is none or more than one."""
    outputs = [output for output in card.outputs if "{case}" in output.path and output.format == suffix]
    if len(outputs) != 1:
        raise ConfigError(
            [f"{card.id}: outputs: {card.track} needs exactly one {suffix} file with {{case}} in its path"]
        )
    return outputs[0]


def output_path(submission: Path, output: OutputFile, case: str = "") -> Path:
    """Path to which an output of a case was collected."""
    return submission / OUTPUTS / output.path.replace("{case}", case)


def missing_verdict(case: CaseEntry, path: str) -> CaseSubmission:
    """Verdict on a case without its output."""
    problem = Problem(code="not_found", message=f"{path} was not submitted")
    return CaseSubmission(case=case.id, status="missing", completed=False, problems=[problem])


def malformed_verdict(
    case: CaseEntry, path: str, error: InvalidSubmission, files: dict[str, FileEntry] | None = None
) -> CaseSubmission:
    """Verdict on a case whose output cannot be scored at all."""
    problem = Problem(code=error.code, message=f"{path} {error}")
    return CaseSubmission(case=case.id, status="malformed", completed=False, problems=[problem], files=files or {})


def completed_verdict(
    case: CaseEntry,
    problems: list[Problem],
    remarks: list[Problem] | None = None,
    files: dict[str, FileEntry] | None = None,
) -> CaseSubmission:
    """Verdict on a case that is scored: malformed when it has problems, valid with nothing or remarks only."""
    return CaseSubmission(
        case=case.id,
        status="malformed" if problems else "valid",
        completed=True,
        problems=[*problems, *(remarks or [])],
        files=files or {},
    )


def check_file(
    case: CaseEntry, output: OutputFile, submission: Path, judge: Callable[[CaseEntry, bytes], Judged]
) -> CaseSubmission:
    """Verdict on an output that is read as a whole. ``judge`` raises InvalidSubmission when it cannot be scored."""
    path = output.path.replace("{case}", case.id)
    files: dict[str, FileEntry] = {}
    try:
        data = read_bounded(output_path(submission, output, case.id), output.max_bytes)
        if data is None:
            return missing_verdict(case, path)
        files = {path: file_entry(data)}
        problems, remarks = judge(case, data)
    except InvalidSubmission as error:
        return malformed_verdict(case, path, error, files)
    return completed_verdict(case, problems, remarks, files)


def read_collected(submission: Path, output: OutputFile, case: str, read: Callable[[bytes], ReadT]) -> ReadT:
    """Read an output that the format check found complete.

    Raises InfrastructureError when it no longer exists or is no longer what was collected.
    """
    path = output_path(submission, output, case)
    try:
        data = read_bounded(path, output.max_bytes)
        if data is None:
            raise InvalidSubmission("not_found", "is gone")
        return read(data)
    except InvalidSubmission as error:
        raise not_as_collected(path, error) from error


def not_as_collected(path: Path, error: InvalidSubmission) -> InfrastructureError:
    """The error for a collected file that is not any more what the format check saw."""
    return InfrastructureError(f"{path} is not what was collected: it {error}.\nCollect the submission again.")


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the defined values; None without any, and where it is not finite."""
    defined = [value for value in values if value is not None]
    found = sum(defined) / len(defined) if defined else math.nan
    return found if math.isfinite(found) else None
