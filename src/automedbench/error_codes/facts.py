"""Facts that detectors look at: the records of one run, and what follows from them at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from automedbench.base.cards import TaskCard
from automedbench.base.records import (
    CaseScore,
    CaseSubmission,
    CodeName,
    Conversation,
    DetailReport,
    ErrorCode,
    RunRecord,
    Stage,
    SubmissionRecord,
)
from automedbench.judge.trace import Event, read_trace

MAX_EVIDENCE = 300


@dataclass(frozen=True)
class Found:
    """What a detector found: in which stage, the line that shows it, and the turn where that is known."""

    stage: Stage
    evidence: str
    turn: int | None = None


@dataclass(frozen=True)
class RunFacts:
    """The records of one run."""

    run: RunRecord
    submission: SubmissionRecord
    detail: DetailReport
    card: TaskCard
    conversation: Conversation

    @cached_property
    def events(self) -> list[Event]:
        """Code calls in order, with what their code does."""
        return read_trace(self.conversation.calls)

    @cached_property
    def there(self) -> list[CaseSubmission]:
        """Cases of which something was submitted."""
        return [case for case in self.submission.cases if case.status != "missing"]

    @cached_property
    def missing(self) -> list[CaseSubmission]:
        """Cases of which nothing was submitted."""
        return [case for case in self.submission.cases if case.status == "missing"]

    @cached_property
    def malformed(self) -> list[CaseSubmission]:
        """Cases whose output breaks the contract."""
        return [case for case in self.submission.cases if case.status == "malformed"]

    @cached_property
    def scored(self) -> list[CaseScore]:
        """Metrics of the cases with a prediction that could be scored."""
        completed = {case.case for case in self.submission.cases if case.completed}
        return [case for case in self.detail.cases if case.case in completed]

    @property
    def quality_of_completed(self) -> float | None:
        """The quality over what can be scored; null when nothing can. What is missing is no fault of the rest."""
        rate = self.submission.completion_rate
        if not rate:
            return None
        # Dice is a mean over completed cases already; the others count a missing case as 0.
        return self.detail.quality if self.detail.track == "segmentation" else min(1.0, self.detail.quality / rate)

    @property
    def okay_from(self) -> float | None:
        """The lowest quality that wins a medal; null when no medal asks for the quality."""
        return okay_threshold(self.card, self.detail.quality_name)

    @property
    def below_okay(self) -> str:
        """Why what was submitted is not good enough for any medal, as a clause; empty when it is or may be."""
        quality, okay = self.quality_of_completed, self.okay_from
        if okay is not None and quality is not None and quality < okay:
            return f"{self.detail.quality_name} {quality:.4f}, okay begins at {okay:g}"
        if okay is None and self.card.medals and self.submission.all_valid and not self._has_medal:
            return f"no medal ({self._medal_terms})"
        return ""

    @property
    def clean(self) -> bool:
        """A clean, successful run: submitted, every case valid, at least okay, and more than copies of the input.

        Such a run has no error codes (paper, appendix on error codes).
        """
        okay = self._has_medal or not self.card.medals
        return self.run.submitted and self.submission.all_valid and okay and not self.submission.only_copies

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
    """A rule that gives one code: stable id, what it looks at in a few words, and the tracks it is for (empty: all)."""

    id: str
    code: CodeName
    looks_at: str
    find: Callable[[RunFacts], Found | None]
    tracks: tuple[str, ...] = ()

    def apply(self, facts: RunFacts) -> ErrorCode | None:
        """The code with its evidence, or nothing."""
        if self.tracks and facts.detail.track not in self.tracks:
            return None
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


def okay_threshold(card: TaskCard, quality: str) -> float | None:
    """The lowest value of the quality that wins a medal; null when no medal asks for it."""
    return min((medal.at_least[quality] for medal in card.medals if quality in medal.at_least), default=None)


def has_problem(case: CaseSubmission, *codes: str) -> bool:
    """Whether a case has a problem or a remark with one of these codes."""
    return any(problem.code in codes for problem in case.problems)


def first_problem(case: CaseSubmission, *codes: str) -> str:
    """What is wrong with a case in one line; with ``codes`` the first problem of these."""
    problems = [problem for problem in case.problems if not codes or problem.code in codes]
    return f"{case.case}: {problems[0].message if problems else case.status}"


def one_line(text: str) -> str:
    """A line of evidence: no line breaks, at most 300 characters."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_EVIDENCE else line[: MAX_EVIDENCE - 1] + "…"
