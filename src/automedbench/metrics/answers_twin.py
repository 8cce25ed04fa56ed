"""The answer score again: token F1 by rouge-score (ROUGE-1 is the multiset overlap), the strict kinds by their own way.

Independent of ``metrics.answers`` but for the normalised texts, which are what is compared.
"""

from __future__ import annotations

import functools
import importlib
import re
from typing import Any

from automedbench.metrics._answer_tables import NEGATIONS, NO, OPPOSITES, YES
from automedbench.metrics.answers import normalise_pair


def library() -> str:
    """Name and version of the library."""
    from importlib.metadata import version

    return f"rouge-score {version('rouge-score')}"


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
