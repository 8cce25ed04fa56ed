"""Facts that detectors look at: the records of one run, and what follows from them at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from automedbench.base.effects import decide_effect, why_no_effect
from automedbench.base.records import AuditRecord, CodeName, Conversation, ErrorCode, RunRecord, Stage
from automedbench.judge.record import Event, read_trace
from automedbench.tracks import Outputs

MAX_EVIDENCE = 300


@dataclass(frozen=True)
class CodeFinding:
    """Finding of a detector: its stage, the line that shows it, and the turn where that is known."""

    stage: Stage
    evidence: str
    turn: int | None = None


@dataclass(frozen=True)
class RunFacts(Outputs):
    """The records of one run."""

    run: RunRecord
    conversation: Conversation
    audit: AuditRecord | None = None

    @cached_property
    def events(self) -> list[Event]:
        """Code calls in order, with the lines that they ran."""
        return read_trace(self.conversation.calls)

    @property
    def below_okay(self) -> str:
        """Reason why the submission earns no medal, as a clause; empty when it does or may."""
        quality, okay = self.quality_of_completed, self.okay_from
        if okay is not None and quality is not None and quality < okay:
            return f"{self.detail.quality_name} {quality:.4f}, okay begins at {okay:g}"
        if okay is None and self.card.medals and self.submission.all_valid and not self._has_medal:
            return f"no medal ({self._medal_terms})"
        return ""

    @property
    def clean(self) -> bool:
        """A clean, successful run: submitted, every case valid, at least okay, not without an effect of the case.

        Such a run has no error codes (paper, appendix on error codes).
        """
        okay = self._has_medal or not self.card.medals
        return self.run.submitted and self.submission.all_valid and okay and not self.no_effect

    @property
    def no_effect(self) -> str:
        """Reason why the case has no effect on the outputs; empty where it may have one."""
        effect = self.detail.effect
        if self.audit is None:
            return effect.reason if effect.verdict == "none" else ""
        none = decide_effect(effect.verdict, self.audit, self.conversation) == "none"
        return why_no_effect(effect, self.audit) if none else ""

    @property
    def _has_medal(self) -> bool:
        return self.detail.medal in {medal.name for medal in self.card.medals}

    @property
    def _medal_terms(self) -> str:
        terms = self.card.medals[-1].at_least
        values = {name: self.detail.metrics.get(name) for name in terms}
        shown = {name: "undefined" if value is None else f"{value:g}" for name, value in values.items()}
        return ", ".join(
            f"{name} {shown[name]}, {self.card.medals[-1].name} begins at {terms[name]:g}" for name in terms
        )


@dataclass(frozen=True)
class Detector:
    """A rule that gives one code: stable id, what it looks at in a few words, and the track it is for (empty: all)."""

    id: str
    code: CodeName
    looks_at: str
    find: Callable[[RunFacts], CodeFinding | None]
    track: str = ""

    def apply(self, facts: RunFacts) -> ErrorCode | None:
        """The code with its evidence, or nothing."""
        found = self.find(facts)
        if found is None:
            return None
        return ErrorCode(
            code=self.code,
            stage=found.stage,
            evidence=one_line(found.evidence),
            source="rule",
            detector=self.id,
            turn=found.turn,
        )


def detector(
    name: str, code: CodeName, looks_at: str
) -> Callable[[Callable[[RunFacts], CodeFinding | None]], Detector]:
    """Make the decorated function, which finds a fault or nothing, a detector for every track."""
    return lambda find: Detector(name, code, looks_at, find)


def one_line(text: str) -> str:
    """A line of evidence: no line breaks, at most 300 characters."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_EVIDENCE else line[: MAX_EVIDENCE - 1] + "…"
