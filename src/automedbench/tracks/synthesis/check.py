"""Synthesis' format check: the collected volume of one case against the case's grid, without private data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench.base.cards import OutputFile, TaskCard
from automedbench.base.errors import InvalidSubmission
from automedbench.base.records import CaseEntry, CaseSubmission, FileEntry, Manifest, Problem
from automedbench.base.untrusted.nifti import VolumeHeader, VolumeReader, open_volume
from automedbench.tracks import track_settings
from automedbench.tracks.common.affines import TOLERANCE_VOXELS, affine_offset, rounding_remark
from automedbench.tracks.common.cases import (
    Judged,
    case_output,
    completed_verdict,
    malformed_verdict,
    missing_verdict,
    output_path,
)
from automedbench.tracks.common.staging import describe_file
from automedbench.tracks.synthesis.geometry import Geometry, probe_places, unpack_probes
from automedbench.tracks.synthesis.settings import SynthesisSettings
from automedbench.tracks.synthesis.stage import read_degradation

UNSCORABLE = frozenset({"not_3d", "wrong_shape", "not_finite"})
"""Problems of a volume that is whole, but scores 0."""
COPY_OF_INPUT = "copy_of_input"
"""Code of a volume that is the case's input again."""
COPY_TOLERANCE = 0.5
_LARGEST = float(np.finfo(np.float32).max)


def check(card: TaskCard, manifest: Manifest, submission: Path) -> list[CaseSubmission]:
    """Verdict on each expected volume; the case's grid comes from the manifest, nothing private is read."""
    settings: SynthesisSettings = track_settings(card)
    output, paired = case_output(card, "nii.gz"), read_degradation(card) is None
    return [check_case(case, output, submission, settings, paired) for case in manifest.cases]


def check_case(
    case: CaseEntry, output: OutputFile, submission: Path, settings: SynthesisSettings, paired: bool
) -> CaseSubmission:
    """Verdict on one case; in paired data (MR to CT) a copy of the input is wrong, else it is remarked on."""
    name, path = output.path.replace("{case}", case.id), output_path(submission, output, case.id)
    files: dict[str, FileEntry] = {}
    try:
        with open_volume(path, max_bytes=output.max_bytes) as volume:
            files = {name: describe_file(path)}
            problems, remarks = judge(volume, Geometry.model_validate(case.geometry), settings, paired)
    except InvalidSubmission as error:
        return missing_verdict(case, name) if error.code == "not_found" else malformed_verdict(case, name, error, files)
    return completed_verdict(case, _named(name, problems), _named(name, remarks), files)


def judge(volume: VolumeReader, geometry: Geometry, settings: SynthesisSettings, paired: bool) -> Judged:
    """Problems and remarks of a volume that can be read to its end; raises InvalidSubmission when it cannot."""
    wrong = _shape_problem(volume.header, geometry)
    if wrong and volume.header.n_voxels > 2 * geometry.n_voxels:
        raise InvalidSubmission(wrong.code, wrong.message)
    found = _read(volume, probe_places(geometry.n_voxels))
    if wrong:
        return [wrong], []
    if not found.finite:
        return [Problem(code="not_finite", message="has NaN or infinite values (or beyond what float32 holds)")], []
    problems: list[Problem] = []
    remarks: list[Problem] = []
    offset = affine_offset(volume.header.affine, geometry.affine, geometry.shape)
    if offset <= TOLERANCE_VOXELS:
        remarks += rounding_remark(offset)
    else:
        message = (
            f"has another affine than the case's input ({offset:.4g} voxels off, at most {TOLERANCE_VOXELS} allowed)"
        )
        problems.append(Problem(code="affine_mismatch", message=message))
    if found.lowest == found.highest:
        problems.append(Problem(code="constant_volume", message=f"has the value {found.lowest:g} everywhere"))
    if _is_copy(found.probed, geometry):
        copy = Problem(code=COPY_OF_INPUT, message=f"equals the case's input within {COPY_TOLERANCE}")
        (problems if paired else remarks).append(copy)
    if found.lowest < settings.plausible_hu[0] or found.highest > settings.plausible_hu[1]:
        message = f"has values from {found.lowest:g} to {found.highest:g}, which is hardly HU"
        remarks.append(Problem(code="hu_range", message=message))
    return problems, remarks


@dataclass
class _Values:
    """Findings of one pass over the voxels."""

    lowest: float = math.inf
    highest: float = -math.inf
    probed: list[NDArray[Any]] = field(default_factory=list)
    finite: bool = True


def _read(volume: VolumeReader, places: NDArray[np.int64]) -> _Values:
    found, start = _Values(), 0
    for block in volume.blocks():
        with np.errstate(invalid="ignore"):
            lowest, highest = float(block.min()), float(block.max())
        # NaN compares false, and so does what turns infinite in float32.
        found.finite = found.finite and lowest >= -_LARGEST and highest <= _LARGEST
        found.lowest, found.highest = min(found.lowest, lowest), max(found.highest, highest)
        first, last = np.searchsorted(places, (start, start + block.size))
        found.probed.append(block[places[first:last] - start])
        start += block.size
    return found


def _shape_problem(header: VolumeHeader, geometry: Geometry) -> Problem | None:
    if header.shape == geometry.shape:
        return None
    if len(header.shape) != 3:
        return Problem(code="not_3d", message=f"has {len(header.shape)} axes {header.shape}, not three")
    return Problem(code="wrong_shape", message=f"has shape {header.shape}, the case has {geometry.shape}")


def _is_copy(probed: Sequence[NDArray[Any]], geometry: Geometry) -> bool:
    values = np.concatenate(probed).astype(np.float64)
    return bool((np.abs(values - unpack_probes(geometry.probes)) <= COPY_TOLERANCE).all())


def _named(name: str, problems: list[Problem]) -> list[Problem]:
    return [problem.model_copy(update={"message": f"{name} {problem.message}"}) for problem in problems]
