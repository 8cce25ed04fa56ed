"""Base of all records: types of numbers, times and money, and the frozen model."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Tier = Literal["lite", "standard", "pro"]
Stage = Literal["S1", "S2", "S3", "S4", "S5"]
JudgedStage = Literal["S1", "S2", "S3"]
JudgeKind = Literal["heuristic", "llm"]
Score = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Money = Annotated[str, Field(pattern=r"^\d+(\.\d+)?$", description="USD as a decimal string")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

TIERS: tuple[Tier, ...] = ("lite", "standard", "pro")
HEADLINE_TIERS: tuple[Tier, ...] = ("lite", "standard")
"""Tiers that make the headline; pro never does (docs/specification.md, 7)."""

Outcome = Literal[
    "submitted",
    "stopped",
    "time_limit",
    "turn_limit",
    "token_limit",
    "cost_limit",
    "out_of_memory",
    "out_of_disk",
    "refused",
    "disqualified",
]


def now() -> datetime:
    """The present time in UTC, to the millisecond."""
    moment = datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


class Model(BaseModel):
    """Base of everything typed: frozen, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)


class RunId(Model):
    """A run = agent × task × tier × repeat."""

    agent: str
    task: str
    tier: Tier
    repeat: int = Field(ge=1)

    @property
    def path(self) -> str:
        """Folder of the run below ``results/runs``."""
        return f"{self.agent}/{self.task}/{self.tier}/r{self.repeat}"


class FileEntry(Model):
    """One file by its content."""

    sha256: Sha256
    bytes: int = Field(ge=0)
