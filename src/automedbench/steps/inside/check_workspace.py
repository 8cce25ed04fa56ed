"""Collection inside the import role: the expected files of a workspace, copied out and checked against the contract.

``main`` sees the workspace, the card and the manifest, and nothing private.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from automedbench.base.cards import TaskCard, load_card
from automedbench.base.files import read_record, sha256_bytes, write_bytes, write_record
from automedbench.base.records import CaseSubmission, FileEntry, Manifest, Problem, Rejected, RunId, SubmissionRecord
from automedbench.base.untrusted.picture import small_picture
from automedbench.sandbox.airlock.collector import Collected, collect
from automedbench.tracks import get_track

OUTPUTS = "agents_outputs"
PLOT = "plan/plan.png"
PLAN_FILES = {"plan/plan.md": 1_000_000, PLOT: 20_000_000}
RECORD = "submission.json"


def check_workspace(card: TaskCard, manifest: Manifest, run: RunId, workspace: Path, folder: Path) -> SubmissionRecord:
    """Collect into ``folder/submission``, write the picture anew, and check every expected case."""
    track, expected = get_track(card.track), expected_files(card, manifest)
    collected = _redraw_plot(collect(workspace, expected, folder / "submission", PLAN_FILES), folder / "submission")
    cases = [
        _add_refusals(case, card, collected.rejected) for case in track.check(card, manifest, folder / "submission")
    ]
    return SubmissionRecord(
        run=run,
        track_version=track.version,
        cases=cases,
        extra=collected.extra,
        rejected=collected.rejected,
        completion_rate=_share([case.completed for case in cases]),
        valid_rate=_share([case.status == "valid" for case in cases]),
    )


def expected_files(card: TaskCard, manifest: Manifest) -> dict[str, int]:
    """Every file that an agent is to hand in: path in its workspace → largest size in bytes."""
    return {f"{OUTPUTS}/{path}": out.max_bytes for path, out in card.expected_outputs(manifest.case_ids).items()}


def _redraw_plot(collected: Collected, folder: Path) -> Collected:
    """The picture as its pixels alone, small; one that does not decode is taken out again."""
    if PLOT not in collected.extra:
        return collected
    path, extra, rejected = folder / PLOT, dict(collected.extra), list(collected.rejected)
    data = small_picture(path.read_bytes())
    path.unlink()
    del extra[PLOT]
    if data is None:
        rejected.append(Rejected(path=PLOT, reason="unreadable"))
    else:
        write_bytes(path, data)
        path.chmod(0o444)
        extra[PLOT] = FileEntry(sha256=sha256_bytes(data), bytes=len(data))
    return Collected(collected.files, extra, rejected)


def _add_refusals(case: CaseSubmission, card: TaskCard, rejected: list[Rejected]) -> CaseSubmission:
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
