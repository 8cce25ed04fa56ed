"""Visual question answering: an answer per question; quality is the mean answer score over all expected questions.

A question is scored by its gold: an option letter, yes or no by the first word, a number or a text by max(exact match,
token F1) after normalisation. Texts may be scored by the answer judge instead, when the card says so. A missing,
invalid, skipped or stand-in answer counts 0, so that quality is the task score already.
"""

from __future__ import annotations

from automedbench.tracks import Track, TrackText
from automedbench.tracks.vqa import check, errors, score, settings, show, stage, verify

TRACK = Track(
    version=1,
    quality="answer_score",
    case_quality="answer_score",
    settings=settings.Settings,
    stage=stage.stage,
    check=check.check,
    score=score.score,
    verify=verify.verify,
    show=show.show,
    text=TrackText("Visual question answering", "VQA", "mean answer score over questions"),
    mishaps=errors.MISHAPS,
    signals=errors.SIGNALS,
    poor_is_evidence=False,
)
