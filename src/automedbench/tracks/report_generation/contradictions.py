"""Statements of a report that contradict the reference by side or negation: shown beside the score, never in it.

A statement is a sentence, or the part of one from "no" on. It has a counterpart in the reference where this shares at
least ``SHARED`` of its other words; it contradicts where all counterparts are negated and it is not, or the other way
round, or name another side. Text metrics hardly see either: a report with every "no" left out keeps most of its words.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from automedbench.metrics.opposites import NEGATIONS, named_values, unify_words
from automedbench.tracks.report_generation.text import tokens

SHARED = 0.75
REMARKABLE = 0.1
"""Share of contradicting statements above which a report of scores says so."""

_PARTS = re.compile(r"[.;!?]+(?:\s|$)|(?:\b(?:and|but|with|or)\s+)?(?=\bno\b)")
_EMPTY = frozenset(
    # articles, forms of "be", prepositions; and what only says that something is there
    {"a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "for", "from", "has", "have", "in", "is", "it"}
    | {"no", "of", "on", "or", "there", "this", "to", "was", "were", "which", "with"}
    | {"evidence", "identified", "noted", "present", "seen", "visualized"}
)
_SIDE = frozenset({"left", "right", "bilateral", "l", "r"})


class Contradictions(NamedTuple):
    """Statements of reports, and how many of them contradict the reference."""

    contradicting: int
    statements: int

    @property
    def share(self) -> float | None:
        """Share of the statements; None without any."""
        return self.contradicting / self.statements if self.statements else None


class _Statement(NamedTuple):
    words: frozenset[str]
    negated: bool
    sides: frozenset[str]

    def agrees(self, other: _Statement) -> bool:
        """Neither side nor negation differs."""
        return self.negated == other.negated and (self.sides == other.sides or not (self.sides and other.sides))


def count_contradictions(reference: str, candidate: str) -> Contradictions:
    """Statements of a normalised candidate that contradict the normalised reference."""
    given, wanted = _statements(candidate), _statements(reference)
    contradicting = 0
    for each in given:
        counterparts = [other for other in wanted if len(each.words & other.words) >= SHARED * len(each.words)]
        contradicting += bool(counterparts) and not any(each.agrees(other) for other in counterparts)
    return Contradictions(contradicting, len(given))


def _statements(text: str) -> list[_Statement]:
    found = (_statement(tuple(tokens(part))) for part in _PARTS.split(unify_words(text)))
    return [each for each in found if each.words]


def _statement(words: tuple[str, ...]) -> _Statement:
    sides = named_values(words).get("side", frozenset())
    return _Statement(frozenset(words) - NEGATIONS - _EMPTY - _SIDE, not NEGATIONS.isdisjoint(words), frozenset(sides))
