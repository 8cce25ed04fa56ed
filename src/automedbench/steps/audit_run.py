"""Evidence of broken rules in a run, weighed: clean, warned or disqualified."""

from __future__ import annotations

from pathlib import Path

from automedbench.base.checkpoints import load_checkpoints
from automedbench.base.records import AuditRecord
from automedbench.campaign.record import CampaignRecord
from automedbench.sandbox.airlock.archive import unpack_submission
from automedbench.sandbox.evidence.audit import audit_files


def audit_run(campaign: CampaignRecord, run: Path) -> AuditRecord:
    """Write ``audit.json`` of a run, with an operator's ``decision.yaml`` where there is one."""
    files = campaign.run_files(run)
    table = load_checkpoints().values()
    return audit_files(
        run_record=files.file("run.json"),
        log=files.file("log"),
        submission=unpack_submission(files),
        submission_record=files.file("submission.json"),
        max_warnings=campaign.settings.sandbox.max_warnings,
        out=files.out("audit.json"),
        decision=files.file("decision.yaml"),
        conversation=files.file("conversation.json"),
        checkpoint=next((each for each in table if files.run.task in each.tasks), None),
    )
