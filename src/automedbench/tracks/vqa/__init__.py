"""Visual question answering: an answer per question; quality is the mean answer score over all expected questions.

A question is scored by its gold: an option letter, yes or no by the first word, a number or a text by max(exact match,
token F1) after normalisation. Texts may be scored by the answer judge instead, when the card says so. A missing,
invalid, skipped or stand-in answer counts 0, so that quality is the task score already.
"""

from __future__ import annotations

from collections import Counter

from automedbench.base.records import CaseScore
from automedbench.tracks import Outputs, Signal, Track, TrackText
from automedbench.tracks.common.signals import MOST, first_problem, has_problem
from automedbench.tracks.vqa import check, effect, score, settings, show, stage

FEWEST_ANSWERS = 10
"""Fewer questions may well share an answer: half of them can only be answered with yes or no."""


def same_answer(outputs: Outputs) -> str | None:
    """Nearly every question has the same option or the same text for an answer."""
    answers = [_answer(case) for case in outputs.scored if "answer" in case.detail]
    if len(answers) < FEWEST_ANSWERS:
        return None
    answer, count = Counter(answers).most_common(1)[0]
    if count < MOST * len(answers):
        return None
    return f"{count} of {len(answers)} questions are answered '{answer}'"


def _answer(case: CaseScore) -> str:
    label = case.detail.get("label")
    return f"option {label}" if label else str(case.detail["answer"]).strip().lower()


def placeholders(outputs: Outputs) -> str | None:
    """More than half of the answers are stand-ins and no output of a model."""
    stand_ins = [case for case in outputs.there if has_problem(case, "placeholder")]
    if len(stand_ins) * 2 <= len(outputs.there):
        return None
    return (
        f"{len(stand_ins)} of {len(outputs.there)} answers are stand-ins; {first_problem(stand_ins[0], 'placeholder')}"
    )


SIGNALS = (
    Signal("verify.same_answer", "the same answer to nearly all questions", same_answer),
    Signal("verify.placeholders", "stand-ins instead of a model's output", placeholders),
)


TRACK = Track(
    version=2,
    quality="answer_score",
    settings=settings.VqaSettings,
    stage=stage.stage,
    check=check.check,
    score=score.score,
    verify=score.verify,
    effect=effect.read_effect,
    show=show.show,
    needs_model=True,
    text=TrackText("Visual question answering", "VQA", "mean answer score over questions"),
    signals=SIGNALS,
    poor_is_evidence=False,
)
