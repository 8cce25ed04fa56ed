"""The collected submission, and the findings of the audit."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field

from automedbench.base.records.base import FileEntry, Model, RunId, Score
from automedbench.base.records.run import Enforced

COPY_OF_INPUT = "copy_of_input"
"""Code of a problem of an output that is the input again: it may score, but it is no work."""


class Problem(Model):
    """Why a case is not valid: a stable code and one line for a person."""

    code: str
    message: str


class CaseSubmission(Model):
    """The verdict of the format check on one expected case."""

    case: str
    status: Literal["valid", "malformed", "missing"]
    completed: bool = Field(description="has a prediction that can be scored (a malformed file may still be scored)")
    problems: list[Problem] = Field(
        default_factory=list, description="of a malformed or missing case what is wrong, of a valid one remarks"
    )
    files: dict[str, FileEntry] = Field(default_factory=dict)
    dropped: int = Field(0, description="parts of the prediction that were left out of scoring")


class Rejected(Model):
    """A path in the agent's output folder that was not copied."""

    path: str
    reason: Literal[
        "link", "hardlink", "fifo", "socket", "device", "directory", "too_large", "unexpected", "unreadable"
    ]
    target: str | None = Field(None, description="of a link")


class SubmissionRecord(Model):
    """``D/submission.json``: what was collected from the workspace and whether it keeps the output contract."""

    schema_: Literal["automedbench/submission/1"] = Field("automedbench/submission/1", alias="schema")
    run: RunId
    track_version: int
    cases: list[CaseSubmission] = Field(description="one per expected case, in manifest order")
    extra: dict[str, FileEntry] = Field(default_factory=dict, description="collected files beside cases: the plan")
    rejected: list[Rejected] = Field(default_factory=list)
    completion_rate: Score = Field(description="completed cases ÷ expected cases")
    valid_rate: Score = Field(description="valid cases ÷ expected cases")

    @property
    def all_valid(self) -> bool:
        """Every expected case is there and valid."""
        return all(case.status == "valid" for case in self.cases)

    @property
    def submitted_valid(self) -> bool:
        """At least one output was submitted and every submitted one is valid: S4's flag (docs/specification.md, 6)."""
        there = [case for case in self.cases if case.status != "missing"]
        return bool(there) and all(case.status == "valid" for case in there)

    @property
    def only_copies(self) -> bool:
        """Everything that can be scored is the input again."""
        completed = [case for case in self.cases if case.completed]
        return bool(completed) and all(
            any(problem.code == COPY_OF_INPUT for problem in case.problems) for case in completed
        )


Source = Literal["tripwire", "collector", "egress", "static", "runtime", "telemetry", "probe", "judge", "operator"]
Category = Literal[
    "private_access",
    "credential",
    "other_runs",
    "harness",
    "escape",
    "network",
    "training",
    "submission",
    "judge_injection",
    "resource",
]
Confidence = Literal["high", "medium", "low"]
Severity = Literal["notice", "warning", "disqualifying"]


class Finding(Model):
    """One piece of evidence of a broken rule (docs/specification.md, 9.5)."""

    id: str
    rule: str = Field(description="stable id, for example decoy.open")
    source: Source
    category: Category
    confidence: Confidence
    severity: Severity
    turn: int | None = None
    call: int | None = None
    evidence: str = Field(max_length=300, description="path, host or snippet, masked")
    blocked: bool = False

    @classmethod
    def of(
        cls,
        rule: str,
        source: Source,
        category: Category,
        severity: Severity,
        confidence: Confidence,
        evidence: str,
        *,
        turn: int | None = None,
        call: int | None = None,
        place: str | None = None,
        blocked: bool = False,
    ) -> Self:
        """A finding whose id is its rule and ``place``, by default the number of its call; evidence is cut to size."""
        return cls(
            id=f"{rule}-{place or ('end' if call is None else f'{call:04d}')}",
            rule=rule,
            source=source,
            category=category,
            confidence=confidence,
            severity=severity,
            turn=turn,
            call=call,
            evidence=evidence[:300],
            blocked=blocked,
        )


class Decision(Model):
    """``D/decision.yaml``: what an operator decided after reading the findings of a run."""

    decision: Literal["uphold", "lift"]
    by: str = Field(min_length=1, max_length=200)
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    why: str = Field(min_length=1, max_length=2000)


class AuditRecord(Model):
    """``D/audit.json``: all findings of a run and the verdict they lead to."""

    schema_: Literal["automedbench/audit/1"] = Field("automedbench/audit/1", alias="schema")
    run: RunId
    policy_version: int
    verdict: Literal["clean", "warned", "disqualified"]
    reason: str | None
    findings: list[Finding]
    enforced: Enforced
    by_severity: dict[str, int] = Field(default_factory=dict, description="number of findings")
    by_category: dict[str, int] = Field(default_factory=dict, description="number of findings")
    n_warnings: int = Field(0, description="strikes: calls with a high-confidence warning, and such submissions")
    proposed: Literal["clean", "warned", "disqualified"] | None = Field(
        None, description="the verdict of the findings alone, where an operator decided"
    )
    decision: Decision | None = Field(None, description="the operator's, if there is one")
