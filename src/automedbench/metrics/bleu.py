"""BLEU as the COCO caption evaluation computes it, per text and over a corpus; tokens in, numbers out.

Papineni et al., ACL 2002, in the form of ``pycocoevalcap`` 1.2: clipped n-gram precisions of the orders 1 to 4 with
tiny constants instead of smoothing, their geometric means B_1 … B_4, and a brevity penalty by the one reference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

ORDERS = (1, 2, 3, 4)
# The constants of pycocoevalcap; they keep a precision defined where a text has no n-gram of an order.
TINY, SMALL = 1e-15, 1e-9


@dataclass(frozen=True)
class BleuCounts:
    """Counts that BLEU is made of; the sum of the counts of texts gives the corpus value."""

    matches: tuple[int, ...]
    """Clipped n-gram matches of the orders 1 to 4."""
    ngrams: tuple[int, ...]
    """N-grams of the candidate."""
    candidate: int
    """Tokens of the candidate."""
    reference: int

    def __add__(self, other: BleuCounts) -> BleuCounts:
        return BleuCounts(
            tuple(map(sum, zip(self.matches, other.matches, strict=True))),
            tuple(map(sum, zip(self.ngrams, other.ngrams, strict=True))),
            self.candidate + other.candidate,
            self.reference + other.reference,
        )


NOTHING = BleuCounts((0, 0, 0, 0), (0, 0, 0, 0), 0, 0)


def bleu_counts(candidate: Sequence[str], reference: Sequence[str]) -> BleuCounts:
    """Counts of one candidate against its one reference, both as tokens."""
    return BleuCounts(
        tuple(_matches(candidate, reference, order) for order in ORDERS),
        tuple(max(0, len(candidate) - order + 1) for order in ORDERS),
        len(candidate),
        len(reference),
    )


def bleu(counts: BleuCounts) -> tuple[float, float, float, float]:
    """B_1 to B_4 of one text or of a sum of counts; all 0 when not one token matches.

    An identical text of at least four tokens gives 1 to nine digits (the constants take the rest); a shorter one loses
    the orders that it has no n-gram of.
    """
    if not counts.matches[0]:
        return 0.0, 0.0, 0.0, 0.0
    ratio = (counts.candidate + TINY) / (counts.reference + SMALL)
    brevity = math.exp(1 - 1 / ratio) if ratio < 1 else 1.0
    product, values = 1.0, []
    for order, matches, ngrams in zip(ORDERS, counts.matches, counts.ngrams, strict=True):
        product *= (matches + TINY) / (ngrams + SMALL)
        values.append(product ** (1 / order) * brevity)
    return values[0], values[1], values[2], values[3]


def mean_bleu(counts: BleuCounts) -> float:
    """The mean of B_1 to B_4, in [0, 1]."""
    return sum(bleu(counts)) / len(ORDERS)


def _matches(candidate: Sequence[str], reference: Sequence[str], order: int) -> int:
    """N-grams of the candidate that the reference has as well, each as often as the reference has it."""
    unmatched = Counter(_ngrams(reference, order))
    matches = 0
    for ngram in _ngrams(candidate, order):
        left = unmatched.get(ngram)
        if left:
            unmatched[ngram] = left - 1
            matches += 1
    return matches


def _ngrams(tokens: Sequence[str], order: int) -> zip[tuple[str, ...]]:
    return zip(*(tokens[start:] for start in range(order)), strict=False)
