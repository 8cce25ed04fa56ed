"""An agent's run: what was asked, what it used, what it said and did."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from automedbench.base.records.base import CallStatus, Language, Model, Money, Outcome, RunId, Seconds, Sha256, Stage


class Tokens(Model):
    """Tokens of one run; ``reasoning`` is part of ``completion``."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0
    estimated: bool = Field(False, description="true when a reply came without usage and characters / 4 was taken")

    @property
    def total(self) -> int:
        """Prompt plus completion."""
        return self.prompt + self.completion


class Enforced(Model):
    """What the sandbox really enforced during a run; printed with every score."""

    backend: Literal["apptainer", "local"]
    network: Literal["sealed", "proxied", "open"]
    image_sha256: Sha256 | None = None
    decoy: bool = False
    gpu: bool = False
    seccomp: bool = Field(False, description="a system call filter was in force")
    hook: bool = Field(False, description="run-time evidence was taken inside")
    selfcheck: bool = Field(False, description="a probe with the flags of the run found nothing that it must not")
    memory_bytes: int | None = Field(None, description="limit of the job's cgroup; null: none")
    max_processes: int | None = Field(None, description="RLIMIT_NPROC; null: none")
    egress_sha256: Sha256 | None = Field(None, description="digest of allow-list, deny-list and mirror when proxied")


class Totals(Model):
    """What a run used."""

    turns: int = Field(0, description="model replies")
    wall_s: Seconds = 0.0
    api_s: Seconds = 0.0
    api_retry_s: Seconds = Field(0.0, description="waiting because of provider errors; not charged to the agent")
    exec_s: Seconds = 0.0
    n_exec: int = 0
    n_exec_failed: int = 0
    n_recovered_calls: int = 0
    n_format_warnings: int = 0
    n_warnings: int = Field(0, description="sandbox warnings")
    tokens: Tokens = Tokens()
    cost_usd: Money | None = Field(None, description="null when the price is unknown, never 0 for unknown")


class RunRecord(Model):
    """``D/run.json``: the outcome of the attempt that counts."""

    schema_: Literal["automedbench/run/1"] = Field("automedbench/run/1", alias="schema")
    run: RunId
    attempt: int = Field(ge=1)
    outcome: Outcome
    detail: str = Field(description="one line for a person: why the run ended")
    submitted: bool = Field(description="submit_results was accepted")
    summary: str | None = Field(None, description="what the agent said when it submitted")
    provider: str
    model: str
    agent_digest: str
    task_version: int
    brief_sha256: Sha256
    cases_sha256: Sha256 = Field(description="digest of the staged cases that the agent was given")
    resumes: int = Field(0, description="how often the attempt was interrupted by the machine and went on")
    limits: dict[str, float | int | None]
    enforced: Enforced
    totals: Totals
    started_at: datetime
    ended_at: datetime
    code_version: str


class CodeCall(Model):
    """One executed (or refused) code call as judge and reader see it."""

    turn: int
    call: int
    language: Language
    code: str
    status: CallStatus
    exit_code: int | None
    elapsed_s: Seconds
    stdout: str
    stderr: str
    stage: Stage
    new_files: list[str] = Field(default_factory=list, description="workspace files created or changed by the call")


_ANSWER_KEYS = frozenset(
    ("status", "exit_code", "stdout", "stderr", "elapsed_s", "truncated", "timed_out", "remaining_s")
)
"""What the harness answers to a code call when there is nothing else to say."""


class Message(Model):
    """One message as sent or received, without the provider's opaque reasoning block."""

    turn: int
    role: Literal["system", "user", "assistant", "tool"]
    content: str

    def repeats(self, calls: Iterable[CodeCall]) -> bool:
        """A tool message that only returns what a call of its turn printed; one with a warning says more."""
        if self.role != "tool" or not (calls := list(calls)):
            return False
        if answer := _json_object(self.content):
            return "stdout" in answer and answer.keys() <= _ANSWER_KEYS
        printed = (text.strip()[:80] for call in calls for text in (call.stdout, call.stderr) if text.strip())
        return any(text in self.content for text in printed)


def _json_object(text: str) -> dict[str, Any]:
    """Empty for anything else."""
    try:
        value = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


class Conversation(Model):
    """``D/conversation.json``: compact copy of a run for judge and reader."""

    schema_: Literal["automedbench/conversation/1"] = Field("automedbench/conversation/1", alias="schema")
    run: RunId
    n_cases: int | None = Field(None, description="cases of the task")
    messages: list[Message]
    calls: list[CodeCall]
    plan: str | None = Field(description="plan/plan.md as it was at the end, at most 64 KiB")
    has_plot: bool = Field(description="plan/plan.png exists and decodes as an image")
    workspace_files: dict[str, int] = Field(description="path → bytes at the end, caches left out")
