"""Records of one run by hand for tests of error codes: whatever a test does not name is of a clean run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from test_scoring import detail_report, run_record

from automedbench.base.cards import TaskCard, find_cards, load_card
from automedbench.base.records import (
    AuditRecord,
    CaseScore,
    CaseSubmission,
    CodeCall,
    Conversation,
    DetailReport,
    Effect,
    ErrorCode,
    FileEntry,
    JudgeRecord,
    Message,
    Problem,
    RunId,
    SubmissionRecord,
)
from automedbench.scoring.codes import error_codes

ROOT = Path(__file__).resolve().parents[2]
TASKS = {
    "segmentation": "tsg-multiorgan-seg-task",
    "enhancement": "nih-cxr-sr-task",
    "vqa": "vqa-rad-task",
    "report_generation": "chexpert-plus-cxr-task",
    "detection": "bccd-det-task",
    "classification": "braintumor-cls-task",
    "synthesis": "totalsegmentator-ctsr-task",
}
POOR = 0.01


def card_of(track: str) -> TaskCard:
    """A real card of the track."""
    return load_card(next(path for path in find_cards([str(ROOT / "config/tasks")]) if path.stem == TASKS[track]))


def case(
    name: str, *problems: str, status: str = "valid", sha: str | None = None, scored: bool = True
) -> CaseSubmission:
    """The verdict on one case; problems by code. Every file has a digest of its own unless ``sha`` gives one."""
    digest = sha or (name.encode().hex() * 10)[:64].ljust(64, "0")
    return CaseSubmission.model_validate(
        {
            "case": name,
            "status": status,
            "completed": scored and status != "missing",
            "problems": [Problem(code=code, message=f"{name} is wrong: {code}") for code in problems],
            "files": {} if status == "missing" else {f"{name}/output": FileEntry(sha256=digest, bytes=9)},
        }
    )


def metrics_of(name: str, metrics: Mapping[str, float | None] | None = None, **detail: Any) -> CaseScore:
    """The metrics of one case."""
    return CaseScore(case=name, status="valid", metrics=dict(metrics or {}), detail=detail)


UNKNOWN = Effect()


def codes_of(
    track: str,
    cases: Sequence[CaseSubmission],
    scores: Sequence[CaseScore] = (),
    *,
    calls: Sequence[CodeCall] = (),
    outcome: str = "submitted",
    detail: str = "made by hand",
    quality: float = POOR,
    medal: str = "fail",
    metrics: Mapping[str, float | None] | None = None,
    messages: Sequence[Message] = (),
    files: Sequence[str] = (),
    judge: JudgeRecord | None = None,
    effect: Effect = UNKNOWN,
    audit: AuditRecord | None = None,
) -> list[ErrorCode]:
    """Error codes of one run; poor (no medal) unless told otherwise, so that it could have codes."""
    card = card_of(track)
    rate = sum(item.completed for item in cases) / len(cases)
    run = run_record(outcome, detail=detail)
    report: DetailReport = detail_report(
        quality,
        rate,
        track=track,
        quality_name=card.metric.name,
        medal=medal,
        metrics=dict(metrics or {}),
        cases=list(scores) or [metrics_of(item.case) for item in cases],
        effect=effect,
    )
    valid = sum(item.status == "valid" for item in cases) / len(cases)
    submission = SubmissionRecord(
        run=run.run, track_version=1, cases=list(cases), completion_rate=rate, valid_rate=valid
    )
    conversation = Conversation(
        run=RunId(agent="hand-made", task=card.id, tier="lite", repeat=1),
        n_cases=len(cases),
        gpu=False,
        messages=list(messages),
        calls=list(calls),
        plan=None,
        has_plot=False,
        workspace_files=dict.fromkeys(files, 100),
    )
    return error_codes(run, submission, report, card, conversation, judge, audit)


def found_by(codes: Sequence[ErrorCode], detector: str) -> ErrorCode | None:
    """The code that a detector gave, if it gave one."""
    return next((code for code in codes if code.detector == detector), None)
