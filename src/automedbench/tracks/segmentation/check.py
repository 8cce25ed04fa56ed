"""Segmentation's format check: every expected file of a case, read once from front to back, nothing private.

Values become numbers of targets. A mask's foreground is every value above 0.5 (NaN is background). A label map is
rounded to the nearest integer, halves to even; what is then no label of the task (NaN included) becomes the number
``other``, which is never right.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InvalidSubmission
from automedbench.base.records import CaseEntry, CaseSubmission, FileEntry, Manifest, Problem
from automedbench.base.untrusted.nifti import VolumeHeader, open_volume
from automedbench.tracks.common.affines import TOLERANCE_VOXELS, affine_offset, rounding_remark
from automedbench.tracks.common.cases import missing_verdict, output_path
from automedbench.tracks.common.staging import describe_file
from automedbench.tracks.segmentation.settings import LabelFile, label_files

# A volume of another shape is still read to its end, to see whether it is whole, unless it is far larger than asked.
MAX_OVERSIZE = 4


def describe_geometry(header: VolumeHeader) -> dict[str, Any]:
    """Geometry of a case in the manifest: shape and voxel sizes (mm) along the file's axes, and the affine."""
    return {
        "shape": list(header.shape),
        "spacing": [float(size) for size in header.zooms],
        "affine": header.affine.tolist(),
    }


def shape_problem(header: VolumeHeader, case: CaseEntry) -> Problem | None:
    """The problem of a volume of another shape; raises InvalidSubmission when it is too large to be read at all."""
    expected = tuple(case.geometry["shape"])
    if header.shape == expected:
        return None
    message = f"has shape {header.shape}, the case has {expected}"
    if header.n_voxels > MAX_OVERSIZE * int(np.prod(expected)):
        raise InvalidSubmission("shape_mismatch", f"{message}: too large to be read")
    return Problem(code="shape_mismatch", message=f"{message}; every target of the case scores 0")


def affine_remarks(header: VolumeHeader, case: CaseEntry) -> list[Problem]:
    """A remark when the volume is placed elsewhere than its case. Scores compare voxel by voxel all the same."""
    expected = np.asarray(case.geometry["affine"], dtype=np.float64)
    offset = affine_offset(header.affine, expected, case.geometry["shape"])
    if offset <= TOLERANCE_VOXELS:
        return rounding_remark(offset)
    here, there = orientation(header.affine), orientation(expected)
    what = f"orientation {here}, the case has {there}" if here != there else "another affine than the case"
    return [Problem(code="affine_mismatch", message=f"has {what}; scored voxel by voxel, without resampling")]


def orientation(affine: Any) -> str:
    """Orientation of a volume's axes, for example RAS; '?' for an axis without a direction."""
    import nibabel

    name_axes: Any = nibabel.orientations.aff2axcodes
    try:
        with np.errstate(all="ignore"):
            codes = name_axes(np.asarray(affine, dtype=np.float64))
    except (ValueError, np.linalg.LinAlgError):
        return "?"
    return "".join("?" if code is None else code for code in codes)


Values = NDArray[Any]
Numbers = NDArray[Any]

# Scaling a stored integer and back is exact to far below this; a value further from an integer was meant so.
INTEGER_TOLERANCE = 1e-3


class Encoder:
    """Turns blocks of values into numbers 0 (background), 1 … n (targets) and n + 1 (``other``), counting faults."""

    def __init__(self, file: LabelFile) -> None:
        self.n_targets = len(file.values)
        self.other = self.n_targets + 1
        self._is_mask = file.is_mask
        self._dtype: Any = np.uint8 if self.other < 256 else np.uint16
        self._table: NDArray[Any] = np.full(max(file.values) + 2, self.other, dtype=self._dtype)
        self._table[0] = 0
        self._table[list(file.values)] = np.arange(1, self.other)
        # Labels 1 … n are their own numbers.
        self._plain = file.values == tuple(range(1, self.other))
        self._voxels: Counter[str] = Counter()
        self._faults: dict[str, str] = {}

    @property
    def n_numbers(self) -> int:
        """Number of values: background, targets and ``other``."""
        return self.other + 1

    @property
    def problems(self) -> list[Problem]:
        """Problems of the values seen so far, one per code, with the first value as an example."""
        return [
            Problem(code=code, message=f"holds {self._voxels[code]} voxels whose values are {fault}")
            for code, fault in self._faults.items()
        ]

    def encode(self, values: Values) -> Numbers:
        """Numbers of one block (any shape)."""
        if self._is_plain(values):
            return values.astype(self._dtype, copy=False)
        if not values.any():
            return np.zeros(values.shape, dtype=self._dtype)
        return self._mask(values) if self._is_mask else self._labels(values)

    def _is_plain(self, values: Values) -> bool:
        """True when the values are their numbers already."""
        if not self._plain or values.dtype.kind not in "iu":
            return False
        return int(values.max()) <= self.n_targets and (values.dtype.kind == "u" or int(values.min()) >= 0)

    def _mask(self, values: Values) -> Numbers:
        foreground = values > 0.5
        with np.errstate(invalid="ignore"):
            odd = ~(np.abs(values.astype(np.float64) - foreground) <= INTEGER_TOLERANCE)
        self._note("non_binary", odd, values, "neither 0 nor 1")
        return foreground.astype(self._dtype)

    def _labels(self, values: Values) -> Numbers:
        if values.dtype.kind == "f":
            whole = np.rint(values)
            with np.errstate(invalid="ignore"):
                near = np.abs(values - whole) <= INTEGER_TOLERANCE
            self._note("non_integer", np.isfinite(values) & ~near, values, "not integers")
        else:
            whole = values
        last = len(self._table) - 1  # one beyond the largest label: belongs to none
        inside = (whole >= 0) & (whole < last)
        numbers: Numbers = self._table[np.where(inside, whole, last).astype(np.intp)]
        self._note("unexpected_label", numbers == self.other, values, "not a label of the task")
        return numbers

    def _note(self, code: str, wrong: NDArray[np.bool_], values: Values, what: str) -> None:
        if count := int(np.count_nonzero(wrong)):
            self._voxels[code] += count
            self._faults.setdefault(code, f"{what}, for example {float(values[wrong][0]):g}")


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
            entries[file.path(case.id)] = describe_file(path)
    if len(unreadable) == len(files) and all(problem.code == NOT_FOUND for problem in unreadable):
        return missing_verdict(case, " and ".join(file.path(case.id) for file in files))
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
            for _ in reader.blocks(stored=True):  # to see whether it is whole
                pass
            return [wrong_shape], []
        remarks = affine_remarks(reader.header, case)
        encoder = Encoder(file)
        for block in reader.blocks():
            encoder.encode(block)
    return encoder.problems, remarks


def _named(problem: Problem, file: LabelFile, case: CaseEntry) -> Problem:
    return Problem(code=problem.code, message=f"{file.path(case.id)} {problem.message}")
