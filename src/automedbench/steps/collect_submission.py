"""Collection: which of the expected files an agent left, checked in the import role; they stay in ``outputs.tar``."""

from __future__ import annotations

import shutil
from pathlib import Path

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import read_record, write_bytes, write_record
from automedbench.base.records import Manifest, RunId, RunRecord, SubmissionRecord
from automedbench.campaign.record import CampaignRecord
from automedbench.sandbox.airlock.archive import unpack_outputs
from automedbench.sandbox.container.roles import run_role
from automedbench.sandbox.container.scratch import scratch_folder
from automedbench.steps.inside import check_workspace


def collect_submission(campaign: CampaignRecord, run: Path) -> SubmissionRecord:
    """Write ``submission.json``, and into ``submission/`` what is not as the agent left it: the picture of the plan.

    An earlier collection is replaced. Raises InfrastructureError when other cases were staged since the run.
    """
    files = campaign.run_files(run)
    task, manifest = files.run.task, campaign.manifest(files.run.task)
    staged = read_record(manifest, Manifest)
    identity = _check_same_cases(read_record(files.file("run.json"), RunRecord), staged)
    expected = check_workspace.expected_files(campaign.card(task), staged) | check_workspace.PLAN_FILES
    with scratch_folder("automedbench-collect-") as scratch:
        with unpack_outputs(files.home, expected) as workspace:
            run_role(
                check_workspace.__name__,
                ["--run", identity.model_dump_json()],
                campaign.settings.sandbox.backend,
                campaign.scorer_image,
                {"card": campaign.card_path(task), "manifest": manifest, "workspace": workspace},
                scratch,
            )
        record = read_record(scratch / check_workspace.RECORD, SubmissionRecord)
        files.out(check_workspace.RECORD).unlink(missing_ok=True)
        shutil.rmtree(files.out("submission"), ignore_errors=True)
        if check_workspace.PLOT in record.extra:
            write_bytes(
                files.out("submission") / check_workspace.PLOT,
                (scratch / "submission" / check_workspace.PLOT).read_bytes(),
            )
    write_record(files.out(check_workspace.RECORD), record)
    return record


def _check_same_cases(record: RunRecord, manifest: Manifest) -> RunId:
    """The run's identity; raises InfrastructureError when other cases were staged since the agent saw its own."""
    if record.cases_sha256 != manifest.cases_sha256:
        raise InfrastructureError(
            f"{record.run.path}: '{manifest.task}' was staged again with other cases since this run.\n"
            "Restore the data, or move the run's folder away to repeat the run on the new cases."
        )
    return record.run
