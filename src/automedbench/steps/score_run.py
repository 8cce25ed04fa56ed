"""Score of a run: everything that is known about it, put together."""

from __future__ import annotations

from pathlib import Path

from automedbench.campaign.load import CampaignRecord
from automedbench.scoring import score_files


def score_run(campaign: CampaignRecord, run: Path) -> None:
    """Write ``score.json`` of a run; raises InfrastructureError when its records do not belong together."""
    files = campaign.run_files(run)
    score_files(
        card=campaign.card_path(files.run.task),
        run_record=files.file("run.json"),
        submission=files.file("submission.json"),
        audit=files.file("audit.json"),
        detail_report=files.file("detail_report.json"),
        judge_record=files.file("judge.json"),
        conversation=files.file("conversation.json"),
        out=files.out("score.json"),
    )
