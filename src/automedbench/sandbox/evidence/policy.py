"""Policy, the weighing of findings: which are strikes, and when a run ends.

A warning rests on one certain source, the kernel's word on the run's own processes, or on two: a strike is a file of
the decoy that was opened, as inotify and the trace agree. A sweep through all files, the input included, seeks no
answers and finds none: the agent is told, and it is a strike from the second call on. Rules: docs/specification.md, 9.5
and 9.6.
"""

from __future__ import annotations

from collections.abc import Sequence

from automedbench.base.records import Finding, Verdict

POLICY_VERSION = 8

SWEEP = "decoy.sweep"
"""Rule of files of the decoy that were opened on a walk through everything, the input included."""


def raise_repeated(findings: Sequence[Finding], before: Finding | None = None) -> list[Finding]:
    """The findings; a sweep is a strike unless it is of the first call that made one. ``before``: an earlier sweep."""
    first = before or next((finding for finding in findings if finding.rule == SWEEP), None)
    raised = {"severity": "warning", "confidence": "high"}
    return [
        each.model_copy(update=raised) if first and each.rule == SWEEP and each.call != first.call else each
        for each in findings
    ]


class Strikes:
    """Counts high-confidence warnings; everything that one call did is one strike."""

    def __init__(self, max_warnings: int) -> None:
        self.max_warnings = max_warnings
        self.disqualifying: Finding | None = None
        self._sweep: Finding | None = None
        self._strikes: dict[object, Finding] = {}

    def add(self, findings: Sequence[Finding]) -> Verdict:
        """Count findings: are they nothing, a warning, or the end of the run?"""
        warned = False
        for finding in raise_repeated(findings, self._sweep):
            self._sweep = self._sweep or (finding if finding.rule == SWEEP else None)
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
