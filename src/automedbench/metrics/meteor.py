"""METEOR as NLTK defines it (α 0.9, β 3, γ 0.5), to the last bit and some ten times faster.

Lavie and Agarwal, WMT 2007, in the form of ``nltk.translate.meteor_score`` 3.10: words are matched greedily, first as
they are, then by Porter stem, then by WordNet synset. One habit of NLTK's is kept because its value is called NLTK's:
after the second stage the left-over words *are* their stems, so that WordNet is asked for "effus", not "effusion".
It is another metric than METEOR 1.5 (the Java program), whose values are far lower.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

ALPHA, BETA, GAMMA = 0.9, 3.0, 0.5
_Words = dict[int, str]  # left-over words by their places in the text, in order
_Matches = list[tuple[int, int]]  # places in candidate and reference


class Thesaurus(Protocol):
    """What METEOR asks of WordNet; ``wordnet.Wordnet`` is one."""

    def synonyms(self, word: str) -> frozenset[str]:
        """Words that share a synset with ``word``."""
        ...


@dataclass(frozen=True)
class MeteorCounts:
    """What METEOR is made of; the sum of the counts of texts gives a corpus value."""

    matches: int
    chunks: int
    """Runs of matches that are adjacent and in order on both sides."""
    candidate: int
    """Words of the candidate."""
    reference: int

    def __add__(self, other: MeteorCounts) -> MeteorCounts:
        return MeteorCounts(
            self.matches + other.matches,
            self.chunks + other.chunks,
            self.candidate + other.candidate,
            self.reference + other.reference,
        )


NOTHING = MeteorCounts(0, 0, 0, 0)


def meteor_counts(candidate: Sequence[str], reference: Sequence[str], wordnet: Thesaurus) -> MeteorCounts:
    """Aligns two token lists, the candidate's last word first, as NLTK does."""
    left, right = (dict(enumerate(map(str.lower, words))) for words in (candidate, reference))
    matches = _match_equal(left, right)
    left, right = _stems(left), _stems(right)
    matches += _match_equal(left, right)
    matches += _match_synonyms(left, right, wordnet)
    return MeteorCounts(len(matches), _chunks(sorted(matches)), len(candidate), len(reference))


def meteor(counts: MeteorCounts) -> float:
    """F-mean × (1 − fragmentation penalty), in [0, 1); 0 when nothing matches. n equal words give 1 − 0.5 / n³."""
    if not counts.matches:
        return 0.0
    precision = counts.matches / counts.candidate
    recall = counts.matches / counts.reference
    mean = (precision * recall) / (ALPHA * precision + (1 - ALPHA) * recall)
    penalty: float = GAMMA * (counts.chunks / counts.matches) ** BETA
    return (1 - penalty) * mean


def _match_equal(left: _Words, right: _Words) -> _Matches:
    """Take equal words out of both and return their places: from the last word on, each with the last one."""
    last: dict[str, int | None] = {}
    earlier: dict[int, int | None] = {}  # the place before with the same word
    for place, word in right.items():
        earlier[place] = last.get(word)
        last[word] = place
    matches = []
    for place, word in reversed(left.items()):
        partner = last.get(word)
        if partner is not None:
            last[word] = earlier[partner]
            matches.append((place, partner))
    return _taken(matches, left, right)


def _match_synonyms(left: _Words, right: _Words, wordnet: Thesaurus) -> _Matches:
    """Take synonyms out of both and return their places.

    From the last word of ``left`` on, each takes the last word of ``right`` that is itself or a synonym.
    """
    free = list(reversed(right))
    matches = []
    for place, word in reversed(left.items()):
        synonyms = wordnet.synonyms(word)
        for partner in free:
            if right[partner] == word or right[partner] in synonyms:
                matches.append((place, partner))
                free.remove(partner)
                break
    return _taken(matches, left, right)


def _taken(matches: _Matches, left: _Words, right: _Words) -> _Matches:
    for place, partner in matches:
        del left[place], right[partner]
    return matches


def _chunks(matches: _Matches) -> int:
    """Number of runs in which both places grow by one from match to match."""
    chunks, next_left, next_right = 0, -1, -1
    for left, right in matches:
        if left != next_left or right != next_right:
            chunks += 1
        next_left, next_right = left + 1, right + 1
    return chunks


def _stems(words: _Words) -> _Words:
    stem = _stemmer()
    return {place: stem(word) for place, word in words.items()}


@functools.cache
def _stemmer() -> Callable[[str], str]:
    """NLTK's Porter stemmer, which remembers; importing NLTK takes up to a second, so it waits until needed."""
    from nltk.stem.porter import PorterStemmer

    return functools.lru_cache(maxsize=100_000)(PorterStemmer().stem)
