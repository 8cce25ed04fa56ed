"""VQA's outputs and answers for the effect of the case: letters and normalised words, compared within a kind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from automedbench.metrics.answers import contradicts, exact_match, normalise_pair, token_f1, yes_no
from automedbench.tracks import EffectEvidence, ScoringInputs
from automedbench.tracks.vqa.score import read_evidence
from automedbench.tracks.vqa.stage import Kind

_NUMBERED = re.compile(r"\d")


@dataclass(frozen=True)
class ComparedAnswer:
    """An answer as it is compared: an option's letter, or words; ``form`` is without names and times."""

    text: str
    words: tuple[str, ...]
    form: str


def read_effect(inputs: ScoringInputs) -> EffectEvidence:
    """Answers and golds of every answered question; only questions of one kind are compared."""
    rows = [(truth, answer) for _, truth, answer in read_evidence(inputs) if answer is not None]
    return EffectEvidence(
        outputs=[_compared(truth.kind, answer.label, answer.text) for truth, answer in rows],
        answers=[_compared(truth.kind, truth.answer_label, truth.answer_text) for truth, _ in rows],
        quality=quality,
        same=same,
        labels=True,
        none_below=0.10,
        groups=[truth.kind for truth, _ in rows],
    )


def quality(answers: Sequence[ComparedAnswer], golds: Sequence[ComparedAnswer]) -> NDArray[np.float64]:
    """Answer scores by words, (m, k): the track's, but for abbreviations that only the other text explains."""
    return np.array([[_score(answer, gold) for gold in golds] for answer in answers], float)


def same(first: Sequence[ComparedAnswer], second: Sequence[ComparedAnswer]) -> NDArray[np.bool_]:
    """Whether the forms of answers are equal, (m, k)."""
    return np.array([[one.form == other.form for other in second] for one in first], bool)


def _score(answer: ComparedAnswer, gold: ComparedAnswer) -> float:
    if gold.text in ("yes", "no"):
        return float(yes_no(answer.text) == gold.text)
    overlap = 0.0 if contradicts(answer.words, gold.words) else token_f1(answer.words, gold.words)
    return max(exact_match(answer.text, gold.text), overlap)


def _compared(kind: Kind, label: str | None, text: str) -> ComparedAnswer:
    return ComparedAnswer(label or "", (label or "",), label or "") if kind == "choice" else text_answer(text, kind)


def text_answer(text: str, kind: Kind) -> ComparedAnswer:
    """A text as it is compared; of an open answer words with digits do not make the form."""
    normalised, _ = normalise_pair(text, text)
    words = tuple(normalised.split())
    named = [word for word in words if not _NUMBERED.search(word)] if kind == "open" else []
    return ComparedAnswer(normalised, words, " ".join(named or words))
