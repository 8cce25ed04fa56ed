"""Protocol of judges; heuristic judge and language-model judges are interchangeable behind it."""

from __future__ import annotations

from typing import Protocol

from automedbench.base.records import Criterion, JudgeKind, Tier, Tokens
from automedbench.judge.evidence import Evidence
from automedbench.judge.rubric import Rubric


class Judge(Protocol):
    """Judges S1–S3 from evidence only; it knows neither the agent's name nor any score.

    ``tokens`` and ``cost_usd`` are what the judge has used since it was made (``cost_usd``: null when unknown).
    """

    id: str
    kind: JudgeKind
    tokens: Tokens
    cost_usd: str | None

    def judge(self, evidence: Evidence, rubric: Rubric, tier: Tier) -> list[Criterion]:
        """One verdict per criterion that the tier does not credit by itself (``rubric.judged(tier)``)."""
        ...
