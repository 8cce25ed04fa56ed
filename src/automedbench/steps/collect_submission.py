"""Collection: what a run's workspace holds of the expected files, copied out and checked in the import role."""

from __future__ import annotations

import shutil
from pathlib import Path

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import read_record, write_record
from automedbench.base.records import Manifest, RunId, RunRecord, SubmissionRecord
from automedbench.campaign.record import CampaignRecord
from automedbench.sandbox.container.roles import output_folder, run_role
from automedbench.sandbox.container.scratch import repair_modes
from automedbench.steps.inside import collect_submission as inside


def collect_submission(campaign: CampaignRecord, run: Path) -> SubmissionRecord:
    """Fill the run's ``submission/`` from its workspace and write the record; an earlier collection is replaced.

    Modes that the agent took away from its own folders are given back first.

    Raises InfrastructureError when other cases were staged since the run.
    """
    files = campaign.run_files(run)
    manifest, out = campaign.manifest(files.run.task), files.out(inside.RECORD)
    identity = _same_cases(read_record(files.file("run.json"), RunRecord), read_record(manifest, Manifest))
    repair_modes(files.file("workspace"))
    with output_folder(files.out("submission")) as folder:
        run_role(
            inside.__name__,
            ["--run", identity.model_dump_json()],
            campaign.settings.sandbox.backend,
            campaign.scorer_image,
            {
                "card": campaign.card_path(files.run.task),
                "manifest": manifest,
                "workspace": files.file("workspace"),
            },
            folder,
        )
        record = read_record(folder / inside.RECORD, SubmissionRecord)
        out.unlink(missing_ok=True)
        shutil.rmtree(files.out("submission"), ignore_errors=True)
        (folder / "submission").rename(files.out("submission"))
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
