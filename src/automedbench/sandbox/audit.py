"""The verdict on a run's findings: clean, warned or disqualified. Deterministic, and may be repeated.

One disqualifying finding ends a run; so does the second call with a high-confidence warning (``max_warnings: 1``).
Rules: sandbox specification, 7.1 and 7.4.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from automedbench.errors import InfrastructureError, MissingDataError
from automedbench.files import read_record, write_record
from automedbench.records import AuditRecord, Enforced, Finding, Rejected, RunId, RunRecord, SubmissionRecord
from automedbench.sandbox.policy import POLICY_VERSION, is_forbidden_target

Verdict = Literal["clean", "warned", "disqualified"]

_SPECIAL = {"link", "hardlink", "fifo", "socket", "device"}
_BLOCK = 1024 * 1024


class Strikes:
    """Counts high-confidence warnings; everything that one call did is one strike."""

    def __init__(self, max_warnings: int) -> None:
        self.max_warnings = max_warnings
        self.disqualifying: Finding | None = None
        self._strikes: dict[object, Finding] = {}

    def add(self, findings: Sequence[Finding]) -> Verdict:
        """Count the findings of one call: are they nothing, a warning, or the end of the run?"""
        for finding in findings:
            if finding.severity == "disqualifying":
                self.disqualifying = self.disqualifying or finding
            elif finding.severity == "warning" and finding.confidence == "high":
                self._strikes.setdefault(("call", finding.call) if finding.call else finding.id, finding)
        if self.disqualified:
            return "disqualified"
        return "warned" if any(finding.severity == "warning" for finding in findings) else "clean"

    @property
    def count(self) -> int:
        """Strikes so far."""
        return len(self._strikes)

    @property
    def disqualified(self) -> bool:
        """The run is over and every score is 0."""
        return self.disqualifying is not None or self.count > self.max_warnings

    @property
    def next_disqualifies(self) -> bool:
        """The next strike ends the run: the agent must be told."""
        return self.count >= self.max_warnings

    @property
    def reason(self) -> str | None:
        """One line for a person: why the run was disqualified or warned; None when there is nothing."""
        if self.disqualifying is not None:
            return f"{self.disqualifying.rule}: {self.disqualifying.evidence}"
        rules = ", ".join(f"{finding.rule} ({_where(finding)})" for finding in self._strikes.values())
        if self.disqualified:
            return f"{self.count} warnings, {self.max_warnings} allowed: {rules}"
        return f"warned: {rules}" if rules else None


@dataclass(frozen=True)
class Evidence:
    """What the event log holds for the audit."""

    findings: tuple[Finding, ...]
    marker: str | None


def read_evidence(events: Path) -> Evidence:
    """Findings (``{"type": "finding", "finding": {…}}``) and decoy marker (``{"type": "decoy", "marker": …}``).

    Raises MissingDataError when the log is not there, InfrastructureError when a finding in it is not valid. A last
    line that was cut by a kill is left out.
    """
    findings, marker = [], None
    for entry in _entries(events):
        if entry.get("type") == "finding":
            findings.append(_valid(entry.get("finding"), events))
        elif entry.get("type") == "decoy":
            marker = str(entry["marker"]) if entry.get("marker") else marker
    return Evidence(tuple(findings), marker)


def audit(
    run: RunId,
    evidence: Evidence,
    submission: SubmissionRecord,
    enforced: Enforced,
    *,
    max_warnings: int,
    submission_folder: Path | None = None,
    forbidden: Sequence[str] = (),
) -> AuditRecord:
    """All findings of a run and the verdict.

    ``submission_folder`` is searched for the decoy's marker; ``forbidden`` adds folders to /data/private.
    """
    findings = [*evidence.findings, *submission_findings(submission.rejected, forbidden)]
    if evidence.marker is not None and submission_folder is not None:
        findings += marker_findings(submission_folder, evidence.marker)
    strikes = Strikes(max_warnings)
    verdict = strikes.add(findings)
    return AuditRecord(
        run=run,
        policy_version=POLICY_VERSION,
        verdict=verdict,
        reason=strikes.reason or (_first_warning(findings) if verdict == "warned" else None),
        findings=findings,
        enforced=enforced,
    )


def audit_files(
    run_record: Path, log: Path, submission: Path, submission_record: Path, max_warnings: int, out: Path
) -> AuditRecord:
    """Audit one run from its files and write its record; can be repeated at any time."""
    run = read_record(run_record, RunRecord)
    record = audit(
        run.run,
        read_evidence(log / "events.jsonl"),
        read_record(submission_record, SubmissionRecord),
        run.enforced,
        max_warnings=max_warnings,
        submission_folder=submission,
    )
    write_record(out, record)
    return record


def submission_findings(rejected: Iterable[Rejected], forbidden: Sequence[str] = ()) -> list[Finding]:
    """Findings about what lay at expected paths: planted links, pipes and devices; at most one per kind."""
    special = [item for item in rejected if item.reason in _SPECIAL]
    links = [item for item in special if item.reason == "link"]
    stolen = [item for item in links if is_forbidden_target(item.path, item.target or "", forbidden)]
    plain = [item for item in links if item not in stolen]
    others = [item for item in special if item.reason != "link"]
    return [
        *_submission_finding("submission.forbidden_link", "disqualifying", stolen),
        *_submission_finding("submission.link", "warning", plain),
        *_submission_finding("submission.special_file", "warning", others),
    ]


def marker_findings(folder: Path, marker: str) -> list[Finding]:
    """A disqualifying finding when a collected file holds the decoy's marker."""
    needle = marker.encode()
    used = [path for path in sorted(folder.rglob("*")) if path.is_file() and _contains(path, needle)]
    if not used:
        return []
    shown = ", ".join(str(path.relative_to(folder)) for path in used[:3])
    return [
        Finding(
            id="decoy.used-submission",
            rule="decoy.used",
            source="collector",
            category="private_access",
            confidence="high",
            severity="disqualifying",
            evidence=f"text of the decoy in {len(used)} submitted files: {shown}"[:300],
        )
    ]


def _submission_finding(rule: str, severity: str, items: list[Rejected]) -> list[Finding]:
    if not items:
        return []
    first = items[0]
    pointing = f" → {first.target}" if first.target else ""
    more = f" and {len(items) - 1} more" if len(items) > 1 else ""
    return [
        Finding.model_validate(
            {
                "id": f"{rule}-submission",
                "rule": rule,
                "source": "collector",
                "category": "submission",
                "confidence": "high",
                "severity": severity,
                "evidence": f"{first.reason} at {first.path[:120]}{pointing[:120]}{more}",
            }
        )
    ]


def _contains(path: Path, needle: bytes) -> bool:
    """True when a file holds the bytes, also across block borders."""
    rest = b""
    with open(path, "rb") as stream:
        while block := stream.read(_BLOCK):
            if needle in rest + block:
                return True
            rest = block[-len(needle) :]
    return False


def _entries(events: Path) -> Iterable[dict[str, object]]:
    try:
        lines = events.read_bytes().splitlines()
    except FileNotFoundError as error:
        raise MissingDataError(f"{events} does not exist; run run_agent first.") from error
    for number, line in enumerate(lines):
        try:
            entry = json.loads(line)
        except ValueError as error:
            if number == len(lines) - 1:
                return
            raise InfrastructureError(f"{events}: line {number + 1} is not JSON; the log was changed.") from error
        if isinstance(entry, dict):
            yield entry


def _valid(finding: object, events: Path) -> Finding:
    try:
        return Finding.model_validate(finding)
    except ValueError as error:
        raise InfrastructureError(f"{events}: a finding is not valid; the log was changed.\n{error}") from error


def _where(finding: Finding) -> str:
    return f"call {finding.call}" if finding.call else "submission"


def _first_warning(findings: Iterable[Finding]) -> str:
    first = next(finding for finding in findings if finding.severity == "warning")
    return f"warned: {first.rule} ({_where(first)})"
