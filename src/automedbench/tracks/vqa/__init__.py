"""Visual question answering: an answer per question; quality is the mean answer score over all expected questions.

A question is scored by its gold: an option letter, yes or no by the first word, a number or a text by max(exact match,
token F1) after normalisation. Texts may be scored by the answer judge instead, when the card says so. A missing,
invalid, skipped or stand-in answer counts 0, so that quality is the task score already.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from automedbench.base.cards import OutputFile, TaskCard
from automedbench.base.errors import InvalidSubmission
from automedbench.base.records import CaseEntry, CaseSubmission, Manifest, Model
from automedbench.metrics.answers import NORMALISER, Comparison, compare
from automedbench.tracks import ScoringInputs, TrackScore, track_settings
from automedbench.tracks.common.cases import (
    Judged,
    case_output,
    check_file,
    collected_bytes,
    malformed,
    not_as_collected,
    output_path,
    require_same_cases,
)
from automedbench.tracks.vqa.check import Answer, mass_fillers, parse_answer
from automedbench.tracks.vqa.score import Scored, case_score, groups, judge_metrics, overall
from automedbench.tracks.vqa.show import show_case as show
from automedbench.tracks.vqa.stage import TRUTH, Truth, read_truth, stage_questions
from automedbench.tracks.vqa.verdicts import Verdict, read_verdicts

__all__ = ["CASE_QUALITY", "QUALITY", "VERSION", "Settings", "check", "score", "show", "stage", "verify"]

VERSION = 1
QUALITY = "answer_score"
CASE_QUALITY = "answer_score"
NOT_ANSWERED = Comparison(0.0, 0.0, 0.0)


class Settings(Model):
    """Metric settings of a VQA card."""

    scoring: Literal["lexical", "judge"] = Field(
        "lexical", description="texts by max(exact match, token F1), or by the answer judge; never mixed in one table"
    )
    judge_model: str | None = Field(None, description="model of the answer judge; required by scoring: judge")
    normaliser: Literal["amb-1"] = NORMALISER
    filler_share: float = Field(
        0.2, ge=0, le=1, description="'none', 'unknown' and the like are stand-ins beyond this share of all answers"
    )

    @model_validator(mode="after")
    def _judge_has_a_name(self) -> Self:
        if (self.scoring == "judge") != (self.judge_model is not None):
            raise ValueError("scoring: judge needs judge_model, and scoring: lexical must not have one")
        return self


def stage(card: TaskCard, raw: Path, public: Path, private: Path) -> list[CaseEntry]:
    """Write each case's question and images and its gold; the same card and data give the same bytes.

    Raises InfrastructureError for raw data that is absent, unreadable or has an answer that cannot be compared.
    """
    return stage_questions(card, raw, public, private)


# --- format check ---------------------------------------------------------------------------------------------


def check(card: TaskCard, manifest: Manifest, submission: Path) -> list[CaseSubmission]:
    """Verdict on each expected ``answer.json``; the options come from the manifest, nothing private is read.

    A word for nothing ("unknown") is an answer by itself and a stand-in when much of the submission consists of it.
    """
    settings: Settings = track_settings(card)
    output = case_output(card, "json")
    answers: dict[str, Answer] = {}

    def judge(case: CaseEntry, data: bytes) -> Judged:
        answers[case.id] = answer = parse_answer(data, case.id, case.geometry["options"])
        return answer.problems, answer.remarks

    verdicts = [check_file(case, output, submission, judge) for case in manifest.cases]
    fillers = mass_fillers(list(answers.values()), settings.filler_share)
    return [
        _stand_in(case, output, verdict, answers[case.id])
        if case.id in answers and answers[case.id].filler in fillers
        else verdict
        for case, verdict in zip(manifest.cases, verdicts, strict=True)
    ]


def _stand_in(case: CaseEntry, output: OutputFile, verdict: CaseSubmission, answer: Answer) -> CaseSubmission:
    error = InvalidSubmission("placeholder", f"has the model output '{answer.filler}', as too many others have")
    return malformed(case, output.path.replace("{case}", case.id), error, verdict.files)


# --- score ----------------------------------------------------------------------------------------------------


def score(inputs: ScoringInputs) -> TrackScore:
    """Mean answer score over all expected questions, tables per group, and the diagnostics.

    Raises InfrastructureError when the gold is missing or does not fit, and when the card asks for an answer judge
    whose verdicts on this submission are not given.
    """
    settings: Settings = track_settings(inputs.card)
    verdicts = read_verdicts(inputs.resources, inputs.manifest, inputs.checked, settings.judge_model)
    by_case = {verdict.case: verdict for verdict in verdicts.verdicts} if verdicts else {}
    rows = [_scored(case, truth, answer, by_case.get(case.case), settings) for case, truth, answer in _evidence(inputs)]
    quality = min(sum(row.score for row in rows) / len(rows), 1.0)
    judged = judge_metrics(rows) if verdicts else {}
    return TrackScore(
        quality=quality,
        task_score=quality,
        metrics=overall(rows) | judged,
        groups=groups(rows),
        cases=[case_score(row) for row in rows],
        notes=_notes(settings, judged),
    )


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """The mean again: token F1 by rouge-score, everything else by plain comparison; verdicts of a judge as given."""
    from automedbench.metrics.answers_twin import answer_score, choice_score, library

    settings: Settings = track_settings(inputs.card)
    verdicts = read_verdicts(inputs.resources, inputs.manifest, inputs.checked, settings.judge_model)
    asked = verdicts.verdicts if verdicts and settings.scoring == "judge" else []
    given = {verdict.case: verdict.score for verdict in asked if verdict.score is not None}
    total = 0.0
    for case, truth, answer in _evidence(inputs):
        if answer is None:
            continue
        if truth.answer_label is not None:
            total += choice_score(answer.label_field, truth.answer_label)
        elif truth.kind == "open" and case.case in given:
            total += given[case.case]
        else:
            total += answer_score(answer.text, truth.answer_text)
    return library(), total / len(inputs.manifest.cases), 1e-9


def _evidence(inputs: ScoringInputs) -> list[tuple[CaseSubmission, Truth, Answer | None]]:
    """Verdict, gold and answer of every expected question; no answer where the format check found none."""
    require_same_cases(inputs)
    output = case_output(inputs.card, "json")
    return [
        (
            verdict,
            read_truth(inputs.private / case.id / TRUTH, case),
            _read_answer(case, output, inputs.submission) if verdict.completed else None,
        )
        for case, verdict in zip(inputs.manifest.cases, inputs.checked.cases, strict=True)
    ]


def _read_answer(case: CaseEntry, output: OutputFile, submission: Path) -> Answer:
    path = output_path(submission, output, case.id)
    try:
        return parse_answer(collected_bytes(path, output.max_bytes), case.id, case.geometry["options"])
    except InvalidSubmission as error:
        raise not_as_collected(path, error) from error


def _scored(
    case: CaseSubmission, truth: Truth, answer: Answer | None, verdict: Verdict | None, settings: Settings
) -> Scored:
    if answer is None:
        return Scored(case, truth, None, NOT_ANSWERED, 0.0, None, 0.0)
    if truth.kind == "choice":
        right = float(answer.label == truth.answer_label)
        return Scored(case, truth, answer, NOT_ANSWERED, right, None, right)
    comparison = compare(answer.text, truth.answer_text)
    judged = verdict.score if verdict is not None and truth.kind == "open" else None
    counts = judged if settings.scoring == "judge" and judged is not None else comparison.score
    return Scored(case, truth, answer, comparison, comparison.score, judged, counts)


def _notes(settings: Settings, judged: dict[str, float | None]) -> list[str]:
    if settings.scoring == "lexical":
        return [f"Texts are scored lexically: max(exact match, token F1), normaliser {settings.normaliser}."]
    return [
        f"Texts are scored by the answer judge {settings.judge_model}; not comparable with lexical scores.",
        f"{judged['n_unjudged']:.0f} answers have no verdict and are scored lexically.",
    ]
