"""Schemas: JSON Schemas of cards, configuration and records: ``python tools/make_schemas.py FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from automedbench.base.cards import TaskCard
from automedbench.base.checkpoints import Checkpoints
from automedbench.base.files import to_json, write_text
from automedbench.base.records import (
    AnswerJudgement,
    AuditRecord,
    Conversation,
    DetailReport,
    JudgeRecord,
    Manifest,
    Model,
    Receipt,
    RunRecord,
    ScoreRecord,
    SubmissionRecord,
)
from automedbench.base.views import CaseViews
from automedbench.campaign.agents import AgentsFile, JudgesFile
from automedbench.campaign.config import CampaignConfig
from automedbench.campaign.presets import Preset
from automedbench.campaign.record import CampaignRecord
from automedbench.commands._bundle import Bundle
from automedbench.commands.first_run import FirstRunReport
from automedbench.leaderboard.build import LeaderboardFile
from automedbench.leaderboard.plan import Plan
from automedbench.steps.fill_cache import CacheRecord
from automedbench.steps.inside.check_resources import PreflightRecord

DOCUMENTS: dict[str, type[Model]] = {
    "task-card": TaskCard,
    "checkpoints": Checkpoints,
    "config": CampaignConfig,
    "preset": Preset,
    "agents": AgentsFile,
    "judges": JudgesFile,
    "campaign": CampaignRecord,
    "plan": Plan,
    "receipt": Receipt,
    "preflight": PreflightRecord,
    "cache": CacheRecord,
    "manifest": Manifest,
    "run": RunRecord,
    "conversation": Conversation,
    "submission": SubmissionRecord,
    "audit": AuditRecord,
    "answer-judge": AnswerJudgement,
    "detail-report": DetailReport,
    "case-views": CaseViews,
    "judge": JudgeRecord,
    "score": ScoreRecord,
    "leaderboard": LeaderboardFile,
    "bundle": Bundle,
    "first-run": FirstRunReport,
}
"""Name of a schema → its model; only these documents have one."""


def schema_texts() -> dict[str, str]:
    """File name → text of its JSON Schema (draft 2020-12)."""
    return {
        f"{name}.json": to_json(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema(by_alias=True)}
        )
        for name, model in DOCUMENTS.items()
    }


def write_schemas(folder: Path) -> None:
    """Write every schema into ``folder`` and remove files of models that are gone."""
    texts = schema_texts()
    for name, text in texts.items():
        write_text(folder / name, text)
    for path in folder.glob("*.json"):
        if path.name not in texts:
            path.unlink()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/make_schemas.py FOLDER")
    write_schemas(Path(sys.argv[1]))
