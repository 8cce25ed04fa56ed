"""Verification: the mean answer score again, token F1 by rouge-score."""

from __future__ import annotations

import functools
import importlib
import re
from importlib.metadata import version
from typing import Any

from automedbench.metrics.answers import NEGATIONS, NO, OPPOSITES, YES, normalise_pair
from automedbench.tracks import ScoringInputs, track_settings
from automedbench.tracks.vqa.score import evidence_of, read_verdicts
from automedbench.tracks.vqa.settings import Settings


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """The mean again: token F1 by rouge-score, everything else by plain comparison; verdicts of a judge as given."""
    settings: Settings = track_settings(inputs.card)
    verdicts = read_verdicts(inputs.resources, inputs.manifest, inputs.checked, settings.judge_model)
    asked = verdicts.verdicts if verdicts and settings.scoring == "judge" else []
    given = {verdict.case: verdict.score for verdict in asked if verdict.score is not None}
    total = 0.0
    for case, truth, answer in evidence_of(inputs):
        if answer is None:
            continue
        if truth.answer_label is not None:
            total += choice_score(answer.label_field, truth.answer_label)
        elif truth.kind == "open" and case.case in given:
            total += given[case.case]
        else:
            total += answer_score(answer.text, truth.answer_text)
    return f"rouge-score {version('rouge-score')}", total / len(inputs.manifest.cases), 1e-9


def answer_score(prediction: str, gold: str) -> float:
    """The score of ``metrics.answers.compare`` by rouge-score and plain comparison."""
    predicted, expected = normalise_pair(prediction, gold)
    if expected in ("yes", "no"):
        return float(_leading(predicted) == expected)
    if predicted == expected:
        return float(bool(expected))
    if any(word in NEGATIONS for word in predicted.split()) is not any(word in NEGATIONS for word in expected.split()):
        return 0.0
    return float(_scorer().score(expected, predicted)["rouge1"].fmeasure)


def choice_score(label: str, gold: str) -> float:
    """1 when a label field names the gold letter and nothing else, brackets and the like aside."""
    return float(re.sub(r"(?i)final answer|answer|option|choice|[\W_]", "", label).upper() == gold)


def _leading(text: str) -> str | None:
    first, _, rest = text.partition(" ")
    if any(re.search(rf"\b{word}\b", rest) for word in OPPOSITES.get(first, ())):
        return None
    return {**dict.fromkeys(YES, "yes"), **dict.fromkeys(NO, "no")}.get(first)


class _Words:
    """rouge-score's tokenizer: our texts are normalised, so only spaces count."""

    def tokenize(self, text: str) -> list[str]:
        return text.split()


@functools.cache
def _scorer() -> Any:
    scorers = importlib.import_module("rouge_score.rouge_scorer")
    return scorers.RougeScorer(["rouge1"], tokenizer=_Words())
