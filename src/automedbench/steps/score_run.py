"""Score of a run: everything that is known about it, put together."""

from __future__ import annotations

from pathlib import Path

from automedbench.base.files import write_record
from automedbench.campaign.record import CampaignRecord
from automedbench.scoring.run import score_from_files


def score_run(campaign: CampaignRecord, run: Path) -> None:
    """Write ``score.json`` of a run; raises InfrastructureError when its records do not belong together."""
    files = campaign.run_files(run)
    score = score_from_files(campaign.card(files.run.task), files.file, campaign.settings.effects)
    write_record(files.out("score.json"), score)
