"""Format check of enhancement: one float array per case, its shape from the manifest."""

from __future__ import annotations

from pathlib import Path

from automedbench.base.cards import TaskCard
from automedbench.base.records import CaseEntry, CaseSubmission, Manifest, Problem
from automedbench.base.untrusted.npy import FloatArray, parse_float_array
from automedbench.tracks import track_settings
from automedbench.tracks.common.cases import Judged, case_output, check_file
from automedbench.tracks.enhancement.settings import EnhancementSettings
from automedbench.tracks.enhancement.truth import output_shape

# A remark is made when an output leaves the plausible range by more than this share of its width.
_RANGE_SLACK = 0.25


def check(card: TaskCard, manifest: Manifest, submission: Path) -> list[CaseSubmission]:
    """Verdict on each expected array; its shape comes from the manifest, nothing private is read."""
    settings: EnhancementSettings = track_settings(card)
    output = case_output(card, "npy")

    def judge(case: CaseEntry, data: bytes) -> Judged:
        return [], _remarks(parse_float_array(data, output_shape(case)), settings)

    return [check_file(case, output, submission, judge) for case in manifest.cases]


def _remarks(found: FloatArray, settings: EnhancementSettings) -> list[Problem]:
    """Remarks on an unusual array that is scored all the same."""
    remarks = []
    if found.dtype != "float32":
        remarks.append(Problem(code="dtype", message=f"is {found.dtype}; float32 was requested"))
    if found.trailing_bytes:
        remarks.append(Problem(code="trailing_bytes", message=f"{found.trailing_bytes} bytes behind the array ignored"))
    if settings.intensity_range is not None:
        low, high = settings.intensity_range
        slack = _RANGE_SLACK * (high - low)
        least, most = float(found.values.min()), float(found.values.max())
        if least < low - slack or most > high + slack:
            remarks.append(
                Problem(code="range", message=f"values from {least:g} to {most:g}, plausible are {low:g} to {high:g}")
            )
    return remarks
