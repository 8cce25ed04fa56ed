"""Collection: what a workspace holds of the expected files, copied out and checked against the output contract.

``main`` runs in the import role: it sees the workspace, the card and the manifest, and nothing private.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from automedbench.base.cards import TaskCard, load_card
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import read_record, write_record
from automedbench.base.records import CaseSubmission, Manifest, Problem, Rejected, RunId, RunRecord, SubmissionRecord
from automedbench.sandbox.airlock.collector import collect
from automedbench.sandbox.container.roles import Backend, output_folder, run_import_role
from automedbench.tracks import get_track

OUTPUTS = "agents_outputs"
PLAN_FILES = {"plan/plan.md": 1_000_000, "plan/plan.png": 20_000_000}
RECORD = "submission.json"


def collect_submission(
    card: Path,
    manifest: Path,
    run_record: Path,
    workspace: Path,
    submission: Path,
    out: Path,
    *,
    backend: Backend,
    image: Path | None,
) -> SubmissionRecord:
    """Fill the folder ``submission`` from ``workspace`` and write its record; an earlier collection is replaced."""
    run = _same_cases(read_record(run_record, RunRecord), read_record(manifest, Manifest))
    with output_folder(submission) as folder:
        arguments = ["--run", run.model_dump_json()]
        run_import_role(
            __name__, arguments, backend, image, card=card, manifest=manifest, workspace=workspace, output=folder
        )
        record = read_record(folder / RECORD, SubmissionRecord)
        out.unlink(missing_ok=True)
        shutil.rmtree(submission, ignore_errors=True)
        (folder / "submission").rename(submission)
    write_record(out, record)
    return record


def _same_cases(record: RunRecord, manifest: Manifest) -> RunId:
    """The run's identity; raises InfrastructureError when other cases were staged since the agent saw its own."""
    if record.cases_sha256 != manifest.cases_sha256:
        raise InfrastructureError(
            f"{record.run.path}: '{manifest.task}' was staged again with other cases since this run.\n"
            "Restore the data, or move the run's folder away to repeat the run on the new cases."
        )
    return record.run


def check_workspace(card: TaskCard, manifest: Manifest, run: RunId, workspace: Path, folder: Path) -> SubmissionRecord:
    """Collect into ``folder/submission`` and check every expected case."""
    track = get_track(card.track)
    expected = {f"{OUTPUTS}/{path}": out.max_bytes for path, out in card.expected_outputs(manifest.case_ids).items()}
    collected = collect(workspace, expected, folder / "submission", PLAN_FILES)
    cases = [
        _with_refusals(case, card, collected.rejected) for case in track.check(card, manifest, folder / "submission")
    ]
    return SubmissionRecord(
        run=run,
        track_version=track.version,
        cases=cases,
        extra=collected.extra,
        rejected=collected.rejected,
        completion_rate=_share([case.completed for case in cases]),
        valid_rate=_share([_is_valid(case) for case in cases]),
    )


def _with_refusals(case: CaseSubmission, card: TaskCard, rejected: list[Rejected]) -> CaseSubmission:
    """The verdict on a case with what was refused of its own files and of those that hold all cases of the task.

    A missing case says why. A file that is too large was submitted, but is malformed: so is the case whose output it
    is, and every case where it holds all of them, even one that has a usable output in a file of its own.
    """
    own = {f"{OUTPUTS}/{item.path.replace('{case}', case.case)}": "{case}" in item.path for item in card.outputs}
    refused = [item for item in rejected if item.path in own]
    too_large = [item for item in refused if item.reason == "too_large"]
    if case.status != "missing":
        refused = too_large = [item for item in too_large if not own[item.path]]
    if not refused:
        return case
    problems = [Problem(code=item.reason, message=f"{item.path} was not collected: {item.reason}") for item in refused]
    kept = [] if case.status == "missing" else case.problems
    status = "malformed" if too_large else case.status
    return case.model_copy(update={"problems": [*problems, *kept], "status": status})


def _is_valid(case: CaseSubmission) -> bool:
    return case.status == "valid"


def _share(flags: list[bool]) -> float:
    return sum(flags) / len(flags)


def main(arguments: list[str]) -> None:
    """Collect and check inside the import role."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("card", "manifest", "workspace", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--run", type=RunId.model_validate_json, required=True)
    options = parser.parse_args(arguments)
    # Inside the container the card is bound as card.yaml, so its name says nothing about its id.
    card = load_card(options.card, named=False)
    manifest = read_record(options.manifest, Manifest)
    record = check_workspace(card, manifest, options.run, options.workspace, options.output)
    write_record(options.output / RECORD, record)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
