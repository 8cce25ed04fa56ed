"""Error codes of taxonomy ``cause-v2`` (paper, tables 6, 15 and 16): why a run fell short, with the line that shows it.

Detectors come first: small rules that give a code when records of the run prove it. What a judge assigned is added
where no detector found the same code in the same stage. A run may have several codes; a clean, successful one has
none; no code ever changes a score. What each code means is in :mod:`automedbench.scoring.codes.taxonomy`.

Not evidence: faults of the machine or the harness, refused code (the audit deals with it), a single poor case, answers
near chance, failures that were repaired.
"""

from __future__ import annotations

from automedbench.base.cards import TaskCard
from automedbench.base.records import (
    AuditRecord,
    Conversation,
    DetailReport,
    ErrorCode,
    JudgeRecord,
    RunRecord,
    SubmissionRecord,
)
from automedbench.scoring.codes import deliverable, verification
from automedbench.scoring.codes.calls import EXECUTION, SETUP
from automedbench.scoring.codes.facts import CodeFinding, Detector, RunFacts
from automedbench.scoring.codes.taxonomy import CODES_VERSION
from automedbench.tracks import Signal, get_track

__all__ = ["CODES_VERSION", "detectors", "error_codes", "merge_codes"]


def detectors(*tracks: str) -> list[Detector]:
    """Detectors for runs of these tracks, in order of precedence; raises ConfigError for an unknown track."""
    return [
        *SETUP,
        *verification.DETECTORS,
        *(_signal_detector(signal, track) for track in tracks for signal in get_track(track).signals),
        *EXECUTION,
        *deliverable.DETECTORS,
    ]


def _signal_detector(signal: Signal, track: str) -> Detector:
    """E3 by what a track's own records say."""

    def find(facts: RunFacts) -> CodeFinding | None:
        evidence = signal.find(facts)
        return None if evidence is None else CodeFinding("S4", evidence)

    return Detector(signal.id, "E3", signal.looks_at, find, track)


def error_codes(
    run: RunRecord,
    submission: SubmissionRecord,
    detail: DetailReport,
    card: TaskCard,
    conversation: Conversation,
    judge: JudgeRecord | None = None,
    audit: AuditRecord | None = None,
) -> list[ErrorCode]:
    """All codes of one run, by stage and code; a clean, successful run has none, also when a judge gives some."""
    facts = RunFacts(submission, detail, card, run, conversation, audit)
    if facts.clean:
        return []
    found = [code for detector in detectors(detail.track) if (code := detector.apply(facts)) is not None]
    return merge_codes(found, judge.error_codes if judge else [])


def merge_codes(by_rule: list[ErrorCode], by_judge: list[ErrorCode]) -> list[ErrorCode]:
    """Every code of the detectors, then a judge's where (code, stage) is new; sorted by stage and code."""
    merged = list(by_rule)
    known = {(code.code, code.stage) for code in by_rule}
    for code in by_judge:
        if (code.code, code.stage) not in known:
            known.add((code.code, code.stage))
            merged.append(code.model_copy(update={"source": "judge"}))
    return sorted(merged, key=lambda code: (code.stage, code.code))
