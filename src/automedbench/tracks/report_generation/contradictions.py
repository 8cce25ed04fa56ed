"""Statements of a report that contradict the reference by an opposite or a negation: beside the score, never in it.

A statement is a sentence, or the part of one from "no" on. It has a counterpart in the reference where this shares at
least ``SHARED`` of its other words; it contradicts where of each counterpart it is the negation, or names another side,
place, level, ... (``metrics.opposites``). Text metrics hardly see either: a report with every "no" left out keeps most
of its words.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from automedbench.metrics.opposites import DENYING, NEGATIONS, exclude, named_values, split_denials, unify_words
from automedbench.tracks.report_generation.text import tokens

SHARED = 0.75
REMARKABLE = 0.1
"""Share of contradicting statements above which a report of scores says so."""

_PARTS = re.compile(r"[.;!?]+(?:\s|$)|(?:\b(?:and|but|with|or)\s+)?(?=\bno(?! longer)\s+\w)")
_EMPTY = frozenset(
    # articles, forms of "be", prepositions; and what only says that something is there
    {"a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "for", "from", "has", "have", "in", "is", "it"}
    | {"no", "of", "on", "or", "there", "this", "to", "was", "were", "which", "with"}
    | {"evidence", "identified", "longer", "noted", "positive", "present", "seen", "visualized"}
)


class Contradictions(NamedTuple):
    """Statements of reports, and how many of them contradict the reference."""

    contradicting: int
    statements: int

    @property
    def share(self) -> float | None:
        """Share of the statements; None without any."""
        return self.contradicting / self.statements if self.statements else None


class _Statement(NamedTuple):
    words: tuple[str, ...]
    about: frozenset[str]
    """Words that say what it is about, those on an axis as the axis, without a denying prefix.

    Sides, negations and empty words are none.
    """


def count_contradictions(reference: str, candidate: str) -> Contradictions:
    """Statements of a normalised candidate that contradict the normalised reference."""
    given, wanted = _statements(candidate), _statements(reference)
    contradicting = 0
    for each in given:
        counterparts = [other for other in wanted if len(each.about & other.about) >= SHARED * len(each.about)]
        both = (split_denials(" ".join(each.words), " ".join(other.words)) for other in counterparts)
        contradicting += bool(counterparts) and all(exclude(*(tuple(text.split()) for text in pair)) for pair in both)
    return Contradictions(contradicting, len(given))


def _statements(text: str) -> list[_Statement]:
    found = (_statement(tuple(tokens(part))) for part in _PARTS.split(unify_words(text.replace("-", " "))))
    return [each for each in found if each.about]


def _statement(words: tuple[str, ...]) -> _Statement:
    about = (next(iter(named_values((word,))), word) for word in words if word not in NEGATIONS | _EMPTY)
    return _Statement(words, frozenset(DENYING.sub(r"\1", word) for word in about) - {"side"})
