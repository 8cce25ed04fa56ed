"""Report generation's pictures: the images of a study, the report that was written and the one it is compared with."""

from __future__ import annotations

from automedbench.base.errors import InvalidSubmission
from automedbench.base.files import read_record
from automedbench.base.records import CaseEntry, CaseScore
from automedbench.base.untrusted import read_bounded
from automedbench.base.views import ViewText
from automedbench.tracks import Drawing, ScoringInputs
from automedbench.tracks.common.cases import case_output, output_path
from automedbench.tracks.common.pictures import photo_frames
from automedbench.tracks.report_generation.stage import CASE_MANIFEST, CaseManifest, read_reference

MAX_TEXT = 12_000


def show(inputs: ScoringInputs, case: CaseScore) -> Drawing:
    """Images and both reports; a report that was not valid is shown as it was collected."""
    entry = inputs.entry(case.case)
    folder = inputs.given(entry.id)
    frames = photo_frames(folder, read_record(folder / CASE_MANIFEST, CaseManifest).image_files)
    report = _report(inputs, entry)
    section = case.detail.get("section", "full")
    scored = "" if section == "full" else f" (scored: {section})"
    reference = ViewText(
        side="reference", title=f"Reference report{scored}", text=read_reference(inputs.private, entry)[:MAX_TEXT]
    )
    written = [] if report is None else [ViewText(side="prediction", title="Report", text=report[:MAX_TEXT])]
    return Drawing(frames=frames, texts=[*written, reference])


def _report(inputs: ScoringInputs, entry: CaseEntry) -> str | None:
    """The collected text, within bounds; None where nothing was collected."""
    output = case_output(inputs.card, "txt")
    try:
        data = read_bounded(output_path(inputs.submission, output, entry.id), output.max_bytes)
    except InvalidSubmission:
        return None
    return None if data is None else data.decode("utf-8", "replace")
