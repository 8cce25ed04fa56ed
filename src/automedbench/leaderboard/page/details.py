"""One run as the page shows it: its records, cut to what a page can hold. Every cut says where the rest is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import read_record
from automedbench.base.records import (
    AuditRecord,
    CaseSubmission,
    CodeCall,
    Conversation,
    DetailReport,
    JudgeRecord,
    Message,
    Model,
    Rejected,
    RunRecord,
    ScoreRecord,
    SubmissionRecord,
)
from automedbench.base.views import CaseViews

RecordT = TypeVar("RecordT", bound=BaseModel)

VIEWS = "case_views.json"
_DIGITS = 5
_MAX_PROBLEMS, _MAX_FINDINGS, _MAX_REJECTED, _MAX_NEW_FILES, _MAX_LINE = 5, 100, 50, 20, 300
MAX_CHARS, MAX_CASES = 400_000, 2_000
"""Of transcript and cases: how much of one run its page may hold."""
_MIN_TURN = 600
"""Characters that a turn takes with its texts cut short; half of it is structure."""


JoinedCase = tuple[CaseSubmission, Mapping[str, float | None]]
"""Verdict of the format check on a case, else of the scorer, and its metrics."""


@dataclass
class CompactTable:
    """Rows without repeated keys."""

    columns: list[str]
    rows: list[list[Any]]


@dataclass
class TranscriptTurn:
    """One turn of the transcript: messages and code calls."""

    turn: int
    messages: list[Message]
    calls: list[CodeCall]


class RunDetail(Model):
    """Everything the page shows about one run; a record that cannot be read is null and named in ``notes``."""

    folder: str = Field(description="the run's folder as seen from the page")
    score: ScoreRecord = Field(description="case_scores are left out: the table of cases has them")
    signature: str = Field(description="conditions of the run in one line")
    run: RunRecord | None
    report: DetailReport | None = Field(description="without its cases")
    cases: CompactTable = Field(description="case, status, problems (code, message), number of problems, metrics")
    judge: JudgeRecord | None = Field(description="judgements of a panel without their criteria: those have the votes")
    views: CaseViews | None = Field(description="pictures of some cases; null where none were drawn")
    audit: AuditRecord | None
    rejected: list[Rejected]
    plan: str | None
    turns: list[TranscriptTurn]
    notes: list[str]


def fair_share(sizes: Sequence[int], total: int, each: int) -> int:
    """Largest limit ≤ ``each`` with which the sizes, each cut to it, sum to at most ``total``."""
    rest = total
    ordered = sorted(sizes)
    for index, size in enumerate(ordered):
        share = rest // (len(ordered) - index)
        if size > share:
            return min(each, share)
        rest -= size
    return each


def cut_text(text: str, limit: int) -> str:
    """``text``, or its beginning and end with the number of characters left out between them."""
    if len(text) <= limit:
        return text
    head = max(0, limit * 2 // 3)
    tail = max(0, limit - head)
    end = text[len(text) - tail :] if tail else ""
    return f"{text[:head]}\n[… {len(text) - head - tail} characters left out …]\n{end}"


def read_detail(
    folder: Path | str, link: str, signature: str = "", *, max_chars: int = MAX_CHARS, max_cases: int = MAX_CASES
) -> RunDetail:
    """Read the records of one run and cut them to size; ``link``: the folder as seen from the page.

    Never fails for a record that is missing or broken, but for the score itself (InfrastructureError).
    """
    notes: list[str] = []
    score = read_record(f"{folder}/score.json", ScoreRecord)
    run = _read(folder, "run.json", RunRecord, notes)
    report = _read(folder, "detail_report.json", DetailReport, notes)
    submission = _read(folder, "submission.json", SubmissionRecord, notes)
    judge = _read(folder, "judge.json", JudgeRecord, notes)
    audit = _read(folder, "audit.json", AuditRecord, notes)
    conversation = _read(folder, "conversation.json", Conversation, notes)
    views = _read(folder, VIEWS, CaseViews, notes)
    plan, turns = _cut_transcript(conversation, max_chars, notes) if conversation else (None, [])
    return RunDetail.model_construct(
        folder=link,
        score=score.model_copy(update={"case_scores": None}),
        signature=signature,
        run=run,
        report=report.model_copy(update={"cases": []}) if report else None,
        cases=tabulate_cases(_first(join_cases(report, submission), max_cases, "cases", "detail_report.json", notes)),
        # The verdicts of single judgements are the votes of the panel's criteria.
        judge=judge.model_copy(
            update={"judgements": [judgement.model_copy(update={"criteria": []}) for judgement in judge.judgements]}
        )
        if judge
        else None,
        views=views,
        audit=audit.model_copy(update={"findings": _findings(audit, notes)}) if audit else None,
        rejected=_first(_rejected(submission), _MAX_REJECTED, "paths not collected", "submission.json", notes),
        plan=plan,
        turns=turns,
        notes=notes,
    )


def tabulate_cases(cases: list[JoinedCase]) -> CompactTable:
    """Cases with their problems and metrics; a metric that a case lacks is null."""
    names = sorted(set().union(*(metrics for _, metrics in cases)))
    return CompactTable(
        columns=["case", "status", "problems", "n_problems", *names],
        rows=[_row(check, metrics, names) for check, metrics in cases],
    )


def join_cases(report: DetailReport | None, submission: SubmissionRecord | None) -> list[JoinedCase]:
    """Cases as far as either record knows them: missing and malformed ones first, else in manifest order.

    A table that is cut from its end then still shows what went wrong.
    """
    scores = {case.case: case for case in report.cases} if report else {}
    checks = list(submission.cases) if submission else []
    known = {check.case for check in checks}
    checks += [
        CaseSubmission(case=name, status=score.status, completed=True)
        for name, score in scores.items()
        if name not in known
    ]
    checks.sort(key=lambda check: ("missing", "malformed", "valid").index(check.status))
    return [(check, scores[check.case].metrics if check.case in scores else {}) for check in checks]


def _row(check: CaseSubmission, metrics: Mapping[str, float | None], names: list[str]) -> list[Any]:
    problems = [[p.code, cut_text(p.message, _MAX_LINE)] for p in check.problems[:_MAX_PROBLEMS]]
    values = [None if value is None else round(value, _DIGITS) for value in map(metrics.get, names)]
    return [check.case, check.status, problems, len(check.problems), *values]


def group_turns(messages: list[Message], calls: list[CodeCall]) -> list[TranscriptTurn]:
    """Messages and calls by turn; a message that only returns output shown with its call is left out."""
    numbers = {message.turn for message in messages} | {call.turn for call in calls}
    turns = {turn: TranscriptTurn(turn, [], []) for turn in sorted(numbers)}
    for call in calls:
        turns[call.turn].calls.append(call)
    for message in messages:
        if not message.repeats(turns[message.turn].calls):
            turns[message.turn].messages.append(message)
    return list(turns.values())


def keep_both_ends(turns: list[TranscriptTurn], limit: int) -> list[TranscriptTurn]:
    """The first and the last turns, at most ``limit``."""
    if len(turns) <= limit:
        return turns
    tail = limit // 2
    return turns[: limit - tail] + turns[len(turns) - tail :]


def cut_turn(turn: TranscriptTurn, limit: int) -> TranscriptTurn:
    """The turn with every text cut to ``limit`` characters."""
    return TranscriptTurn(
        turn=turn.turn,
        messages=[_cut_texts(message, ("content", "reasoning"), limit) for message in turn.messages],
        calls=[_cut_texts(call, ("code", "stdout", "stderr"), limit) for call in turn.calls],
    )


def _cut_transcript(
    conversation: Conversation, limit: int, notes: list[str]
) -> tuple[str | None, list[TranscriptTurn]]:
    """Plan and turns within ``limit`` characters: turns from both ends, and of these the longest texts cut."""
    every = group_turns(conversation.messages, list(map(_cut_files, conversation.calls)))
    turns = keep_both_ends(every, max(2, limit // _MIN_TURN))
    if len(turns) < len(every):
        notes.append(f"{len(turns)} of {len(every)} turns are shown; all of them: conversation.json")
    sizes = [len(conversation.plan or ""), *(len(text) for turn in turns for text in _texts(turn))]
    share = fair_share(sizes, limit - len(turns) * _MIN_TURN // 2, limit)
    n_cut = sum(size > share for size in sizes)
    if n_cut:
        notes.append(f"{n_cut} texts of the transcript are cut to {share} characters; all of it: conversation.json")
    plan = None if conversation.plan is None else cut_text(conversation.plan, share)
    return plan, [cut_turn(turn, share) for turn in turns] if n_cut else turns


def _texts(turn: TranscriptTurn) -> list[str]:
    return [text for m in turn.messages for text in (m.content, m.reasoning)] + [
        t for call in turn.calls for t in (call.code, call.stdout, call.stderr)
    ]


def _cut_texts(record: RecordT, names: Sequence[str], limit: int) -> RecordT:
    long = {name: cut_text(text, limit) for name in names if len(text := getattr(record, name)) > limit}
    return record.model_copy(update=long) if long else record


def _cut_files(call: CodeCall) -> CodeCall:
    more = len(call.new_files) - _MAX_NEW_FILES
    shown = [*call.new_files[:_MAX_NEW_FILES], f"… and {more} more"]
    return call.model_copy(update={"new_files": shown}) if more > 0 else call


def _read(folder: Path | str, name: str, model: type[RecordT], notes: list[str]) -> RecordT | None:
    path = f"{folder}/{name}"
    try:
        return read_record(path, model)
    except InfrastructureError as error:
        # A page may be passed on: it says nothing about where it was made.
        why = str(error).splitlines()[0].replace(path, "").strip(" :")
        notes.append(f"{name} is not shown: {why}")
        return None


def _first(items: list[Any], limit: int, what: str, file: str, notes: list[str]) -> list[Any]:
    if len(items) > limit:
        notes.append(f"{limit} of {len(items)} {what} are shown; all of them: {file}")
    return items[:limit]


def _findings(audit: AuditRecord, notes: list[str]) -> list[Any]:
    order = ("disqualifying", "warning", "notice")
    ranked = sorted(audit.findings, key=lambda finding: order.index(finding.severity))
    return _first(ranked, _MAX_FINDINGS, "findings", "audit.json", notes)


def _rejected(submission: SubmissionRecord | None) -> list[Rejected]:
    paths = submission.rejected if submission else []
    return [item.model_copy(update={"path": cut_text(item.path, _MAX_LINE)}) for item in paths]
