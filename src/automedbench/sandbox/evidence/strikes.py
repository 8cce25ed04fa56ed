"""Strikes, two of them: what findings do to a run while it goes on, and in the audit afterwards.

One disqualifying finding ends a run; so does the second call with a high-confidence warning (``max_warnings: 1``).
Evidence of medium confidence is a notice, and a warning (but no strike) once a second source says the same of the
same call. Rules: docs/specification.md, 9.5 and 9.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from automedbench.base.records import Finding

Verdict = Literal["clean", "warned", "disqualified"]


def corroborated(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, with medium notices raised to warnings where another source agrees in the same call.

    Agreeing is a finding of the same category, of at least medium confidence.
    """
    voices: dict[tuple[int, str], set[str]] = {}
    for finding in findings:
        if finding.call is not None and finding.confidence != "low":
            voices.setdefault((finding.call, finding.category), set()).add(finding.source)
    return [_raised(finding) if _agreed(finding, voices) else finding for finding in findings]


def _agreed(finding: Finding, voices: dict[tuple[int, str], set[str]]) -> bool:
    if finding.call is None or (finding.severity, finding.confidence) != ("notice", "medium"):
        return False
    return len(voices[finding.call, finding.category]) > 1


def _raised(finding: Finding) -> Finding:
    return finding.model_copy(update={"severity": "warning"})


class Strikes:
    """Counts high-confidence warnings; everything that one call did is one strike."""

    def __init__(self, max_warnings: int) -> None:
        self.max_warnings = max_warnings
        self.disqualifying: Finding | None = None
        self._strikes: dict[object, Finding] = {}
        self._of_call: dict[int, list[Finding]] = {}

    def add(self, findings: Sequence[Finding]) -> Verdict:
        """Count findings: are they nothing, a warning, or the end of the run?

        Findings of one call may come in parts: what a part says together with an earlier one counts as well.
        """
        warned = False
        for finding in self._weighed(findings):
            if finding.severity == "disqualifying":
                self.disqualifying = self.disqualifying or finding
            elif finding.severity == "warning":
                warned = True
                if finding.confidence == "high":
                    self._strikes.setdefault(("call", finding.call) if finding.call else finding.id, finding)
        if self.disqualified:
            return "disqualified"
        return "warned" if warned else "clean"

    def _weighed(self, findings: Sequence[Finding]) -> list[Finding]:
        """The new findings as they count, and earlier notices of the same calls that they have raised."""
        before = {call: list(self._of_call.get(call, [])) for call in _calls(findings)}
        weighed = [finding for finding in findings if finding.call is None]
        for call, known in before.items():
            earlier = corroborated(known)
            everything = known + [finding for finding in findings if finding.call == call]
            self._of_call[call] = everything
            now = corroborated(everything)
            weighed += [new for old, new in zip(earlier, now, strict=False) if old != new] + now[len(known) :]
        return weighed

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
        rules = ", ".join(f"{finding.rule} ({where(finding)})" for finding in self._strikes.values())
        if self.disqualified:
            return f"{self.count} warnings, {self.max_warnings} allowed: {rules}"
        return f"warned: {rules}" if rules else None


def where(finding: Finding) -> str:
    """Which call a finding is about, in words."""
    return f"call {finding.call}" if finding.call else "submission"


def _calls(findings: Iterable[Finding]) -> list[int]:
    return list(dict.fromkeys(finding.call for finding in findings if finding.call is not None))
