"""Error codes of taxonomy ``cause-v2`` (paper, tables 6 and 15): why a run fell short, with the line that shows it.

Deterministic detectors only: a code is given when files, exit codes and messages prove it. E1 (the task was
misunderstood) cannot be proved this way and is never given here. Codes change no score; a run whose cases are all
valid, submitted and at least okay has none.

    E2 S2   something could not be found, fetched, installed or imported, and it was not overcome
    E3 S3   malformed or poor outputs that no code ever read back and checked
    E4 …    code failed and nothing after it produced an output, while outputs are missing or malformed
    E5 S4   outputs missing or malformed at the end
    E5 S5   never submitted
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from automedbench.cards import TaskCard
from automedbench.judge.trace import Event, find_check, read_trace
from automedbench.records import Conversation, DetailReport, ErrorCode, RunRecord, SubmissionRecord

MAX_EVIDENCE = 300


def error_codes(
    run: RunRecord, submission: SubmissionRecord, detail: DetailReport, card: TaskCard, conversation: Conversation
) -> list[ErrorCode]:
    """All codes of one run in the order of their stages."""
    events = read_trace(conversation.calls)
    found = chain(
        setup_code(events, submission),
        verification_code(events, submission, detail, card),
        execution_code(events, submission),
        deliverable_codes(run, submission),
    )
    return sorted(found, key=lambda code: (code.stage, code.code))


def setup_code(events: list[Event], submission: SubmissionRecord) -> Iterator[ErrorCode]:
    """E2: the last set-up failure, if no later code that ran produced an output and outputs are missing."""
    failure = _unrepaired(events, submission)
    if failure and failure.setup_failed:
        yield ErrorCode(code="E2", stage="S2", evidence=_shown(failure))


def execution_code(events: list[Event], submission: SubmissionRecord) -> Iterator[ErrorCode]:
    """E4: the last failure is of another kind than set-up, and nothing after it produced an output."""
    failure = _unrepaired(events, submission)
    if failure and not failure.setup_failed:
        yield ErrorCode(code="E4", stage=failure.call.stage, evidence=_shown(failure))


def verification_code(
    events: list[Event], submission: SubmissionRecord, detail: DetailReport, card: TaskCard
) -> Iterator[ErrorCode]:
    """E3: outputs exist, some are malformed or their quality is below okay, and no code read one back and checked it.

    Quality, not task score: outputs that are missing are E5, not a fault that a check would have shown.
    """
    there = [case for case in submission.cases if case.status != "missing"]
    if not there or find_check(events):
        return
    malformed = next((case for case in there if case.status == "malformed"), None)
    if malformed:
        reason = malformed.problems[0].message if malformed.problems else "malformed"
        yield _code("E3", "S3", f"no code read an output back; {malformed.case}: {reason}")
    elif (threshold := okay_threshold(card, detail.quality_name)) is not None and detail.quality < threshold:
        yield _code(
            "E3",
            "S3",
            f"no code read an output back; {detail.quality_name} {detail.quality:.4f}, okay begins at {threshold:g}",
        )


def deliverable_codes(run: RunRecord, submission: SubmissionRecord) -> Iterator[ErrorCode]:
    """E5: missing or malformed outputs (S4); no accepted submission (S5)."""
    broken = [case for case in submission.cases if case.status != "valid"]
    if broken:
        first = broken[0]
        reason = first.problems[0].message if first.problems else first.status
        share = f"{len(broken)} of {len(submission.cases)} outputs missing or malformed"
        yield _code("E5", "S4", f"{share}; {first.case}: {reason}")
    if not run.submitted:
        yield _code("E5", "S5", f"never submitted ({run.outcome}): {run.detail}")


def okay_threshold(card: TaskCard, quality: str) -> float | None:
    """The lowest value of the quality that wins a medal; null when no medal asks for it."""
    return min((medal.at_least[quality] for medal in card.medals if quality in medal.at_least), default=None)


def _unrepaired(events: list[Event], submission: SubmissionRecord) -> Event | None:
    """The last call that failed, if no later call that ended well wrote an output, and not all outputs are valid."""
    if submission.all_valid:
        return None
    last = next((i for i in range(len(events) - 1, -1, -1) if events[i].failed), None)
    if last is None or any(event.ok and event.cases for event in events[last + 1 :]):
        return None
    return events[last]


def _shown(event: Event) -> str:
    return f"turn {event.call.turn}, {event.call.status}: {event.complaint or 'no message'}"[:MAX_EVIDENCE]


def _code(code: str, stage: str, evidence: str) -> ErrorCode:
    return ErrorCode.model_validate({"code": code, "stage": stage, "evidence": evidence[:MAX_EVIDENCE]})
