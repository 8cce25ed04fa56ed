"""Documents of the benchmark that have a JSON Schema: cards, configuration, records, and bundles."""

from __future__ import annotations

from automedbench.base.cards import TaskCard
from automedbench.base.checkpoints import Checkpoints
from automedbench.base.records import (
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
from automedbench.judge.answers import AnswerJudgement
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
}
