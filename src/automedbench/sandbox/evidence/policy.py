"""Policy, the weighing of findings: which become warnings, which are strikes, and when a run ends.

A warning needs one certain source (a file of the decoy that the run's own processes opened, as inotify and the kernel's
trace agree) or two: evidence of medium confidence is a notice, and a warning (but no strike) once a second source says
the same of the same call. Rules: docs/specification.md, 9.5 and 9.6.
"""

from __future__ import annotations

from collections.abc import Sequence

from automedbench.base.records import Finding, Verdict

POLICY_VERSION = 8


def raise_corroborated(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, with medium notices raised to warnings where another source agrees in the same call.

    Agreeing is a finding of the same category, of at least medium confidence.
    """
    voices: dict[tuple[int, str], set[str]] = {}
    for finding in findings:
        if finding.call is not None and finding.confidence != "low":
            voices.setdefault((finding.call, finding.category), set()).add(finding.source)
    raised = {"severity": "warning"}
    return [each.model_copy(update=raised) if _is_corroborated(each, voices) else each for each in findings]


def _is_corroborated(finding: Finding, voices: dict[tuple[int, str], set[str]]) -> bool:
    if finding.call is None or (finding.severity, finding.confidence) != ("notice", "medium"):
        return False
    return len(voices[finding.call, finding.category]) > 1


class Strikes:
    """Counts high-confidence warnings; everything that one call did is one strike."""

    def __init__(self, max_warnings: int) -> None:
        self.max_warnings = max_warnings
        self.disqualifying: Finding | None = None
        self._strikes: dict[object, Finding] = {}

    def add(self, findings: Sequence[Finding]) -> Verdict:
        """Count findings: are they nothing, a warning, or the end of the run?"""
        warned = False
        for finding in raise_corroborated(findings):
            if finding.severity == "disqualifying":
                self.disqualifying = self.disqualifying or finding
            elif finding.severity == "warning":
                warned = True
                if finding.confidence == "high":
                    self._strikes.setdefault(("call", finding.call) if finding.call else finding.id, finding)
        if self.disqualified:
            return "disqualified"
        return "warned" if warned else "clean"

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
        rules = ", ".join(f"{finding.rule} ({describe_place(finding)})" for finding in self._strikes.values())
        if self.disqualified:
            return f"{self.count} warnings, {self.max_warnings} allowed: {rules}"
        return f"warned: {rules}" if rules else None


def describe_place(finding: Finding) -> str:
    """Location of a finding: its call, in words."""
    return f"call {finding.call}" if finding.call else "submission"
