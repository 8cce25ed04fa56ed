"""Report generation's outputs and answers for the effect of the case: sets of words, rare ones weighing more."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from automedbench.tracks import EffectEvidence, ScoringInputs
from automedbench.tracks.report_generation.score import read_evidence, report_settings
from automedbench.tracks.report_generation.text import tokens

SAME = 0.98
"""Overlap from which two reports are one."""
_NUMBERED = re.compile(r"\d")
Words = frozenset[str]


def read_effect(inputs: ScoringInputs) -> EffectEvidence:
    """Words of every report that is scored, and of its reference; words with digits (names, times) are left out."""
    pairs = [pair for pair in read_evidence(inputs, report_settings(inputs)) if pair.candidate]
    answers = [words_of(pair.reference) for pair in pairs]
    weights = rarity(answers)
    return EffectEvidence(
        outputs=[words_of(pair.candidate) for pair in pairs],
        answers=answers,
        quality=lambda first, second: overlap(first, second, weights),
        same=lambda first, second: overlap(first, second, {}) >= SAME,
    )


def words_of(text: str) -> Words:
    """The different words of a normalised text, without those that hold a digit."""
    return frozenset(word for word in tokens(text) if not _NUMBERED.search(word))


def rarity(texts: Sequence[Words]) -> dict[str, float]:
    """Weight of each word: log((n + 1) / number of the n texts that hold it)."""
    counts = Counter(word for words in texts for word in words)
    return {word: math.log((len(texts) + 1) / count) for word, count in counts.items()}


def overlap(first: Sequence[Words], second: Sequence[Words], weights: Mapping[str, float]) -> NDArray[np.float64]:
    """F1 of weighted words, (m, k): 2 · shared / sum of both; 1 for two empty sets.

    A word without a weight weighs as much as the heaviest (1 where none has one).
    """
    heaviest = max(weights.values(), default=1.0)
    places = {word: place for place, word in enumerate(sorted({word for words in second for word in words}))}
    scale = np.array([weights.get(word, heaviest) for word in places], float)
    rows, columns = (_incidence(texts, places) for texts in (first, second))
    total = np.add.outer(
        *([math.fsum(weights.get(word, heaviest) for word in words) for words in texts] for texts in (first, second))
    )
    shared = (rows * scale) @ columns.T
    return np.where(total > 0, 2 * shared / np.where(total > 0, total, 1), 1.0)


def _incidence(texts: Sequence[Words], places: Mapping[str, int]) -> NDArray[np.float64]:
    """1 where a text holds a word, (texts, words)."""
    table = np.zeros((len(texts), len(places)))
    for row, words in enumerate(texts):
        table[row, [places[word] for word in words if word in places]] = 1
    return table
