"""Every JSON file of a campaign, defined once: what a rule writes, the next one reads and validates.

All records are frozen, refuse unknown keys, and carry ``schema: automedbench/<name>/<version>``. Scores are in
[0, 1], durations in seconds of a monotonic clock, times in UTC, money in USD as decimal strings.
Their JSON Schemas are generated into ``config/schemas/`` by ``python -m automedbench.commands._schemas``.
"""

from __future__ import annotations

from automedbench.base.records.audit import (
    COPY_OF_INPUT,
    AuditRecord,
    CaseSubmission,
    Category,
    Confidence,
    Decision,
    Finding,
    Problem,
    Rejected,
    Severity,
    SubmissionRecord,
)
from automedbench.base.records.base import (
    HEADLINE_TIERS,
    TIERS,
    FileEntry,
    JudgedStage,
    JudgeKind,
    Model,
    Money,
    Number,
    Outcome,
    RunId,
    Score,
    Seconds,
    Sha256,
    Stage,
    Tier,
    now,
)
from automedbench.base.records.data import FIXTURE_OF, CaseEntry, Downloaded, Manifest, Receipt
from automedbench.base.records.judge import CodeName, Criterion, ErrorCode, Injection, Judgement, JudgeRecord
from automedbench.base.records.run import CodeCall, Conversation, Enforced, Message, RunRecord, Tokens, Totals
from automedbench.base.records.score import CaseScore, DetailReport, Recipe, ScoreRecord, Scores, Verification
from automedbench.base.records.views import (
    Box,
    CaseView,
    CaseViews,
    Frame,
    Layer,
    LegendItem,
    ViewText,
)

__all__ = [
    "COPY_OF_INPUT",
    "FIXTURE_OF",
    "HEADLINE_TIERS",
    "TIERS",
    "AuditRecord",
    "Box",
    "CaseEntry",
    "CaseScore",
    "CaseSubmission",
    "CaseView",
    "CaseViews",
    "Category",
    "CodeCall",
    "CodeName",
    "Confidence",
    "Conversation",
    "Criterion",
    "Decision",
    "DetailReport",
    "Downloaded",
    "Enforced",
    "ErrorCode",
    "FileEntry",
    "Finding",
    "Frame",
    "Injection",
    "JudgeKind",
    "JudgeRecord",
    "JudgedStage",
    "Judgement",
    "Layer",
    "LegendItem",
    "Manifest",
    "Message",
    "Model",
    "Money",
    "Number",
    "Outcome",
    "Problem",
    "Receipt",
    "Recipe",
    "Rejected",
    "RunId",
    "RunRecord",
    "Score",
    "ScoreRecord",
    "Scores",
    "Seconds",
    "Severity",
    "Sha256",
    "Stage",
    "SubmissionRecord",
    "Tier",
    "Tokens",
    "Totals",
    "Verification",
    "ViewText",
    "now",
]
