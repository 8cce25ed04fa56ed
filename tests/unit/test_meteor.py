"""METEOR: values by hand with a thesaurus of a few words, and NLTK to the last bit."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from automedbench.metrics.meteor import NOTHING, MeteorCounts, Wordnet, meteor, meteor_counts
from automedbench.tracks.report_generation.score import nltk_meteor, nltk_wordnet

ROOT = Path(__file__).resolve().parents[2]
EXCERPT = ROOT / "demo/data/wordnet"


class Words:
    """A thesaurus by hand."""

    def __init__(self, **synonyms: set[str]) -> None:
        self._synonyms = synonyms

    def synonyms(self, word: str) -> frozenset[str]:
        return frozenset(self._synonyms.get(word, set()))


PLAIN = Words()

# Counts by hand: matches, chunks, words of candidate and reference.
COUNTS = [
    pytest.param("", "", PLAIN, (0, 0, 0, 0), id="both empty"),
    pytest.param("", "a b", PLAIN, (0, 0, 0, 2), id="empty candidate"),
    pytest.param("x", "a b", PLAIN, (0, 0, 1, 2), id="nothing in common"),
    pytest.param("a b c", "a b c", PLAIN, (3, 1, 3, 3), id="identical is one chunk"),
    pytest.param("c b a", "a b c", PLAIN, (3, 3, 3, 3), id="reversed: every match its own chunk"),
    pytest.param("a b x c", "a b c", PLAIN, (3, 2, 4, 3), id="a gap on one side parts chunks"),
    pytest.param("A B", "a b", PLAIN, (2, 1, 2, 2), id="case does not matter"),
    pytest.param("a a", "a", PLAIN, (1, 1, 2, 1), id="a word is matched once"),
    pytest.param("effusions", "effusion", PLAIN, (1, 1, 1, 1), id="same stem"),
    # The last of equal words goes first: b–b (place 2), then the last a takes the last a.
    pytest.param("a b", "a a b", PLAIN, (2, 1, 2, 3), id="the last free word is taken"),
    pytest.param("big", "larg", Words(big={"larg"}), (1, 1, 1, 1), id="synonym of the candidate's word"),
    pytest.param("larg", "big", Words(big={"larg"}), (0, 0, 1, 1), id="synonyms are looked up for the candidate only"),
    pytest.param(
        "effusion", "gush", Words(effusion={"gush"}), (0, 0, 1, 1), id="asked for the stem 'effus' (NLTK's habit)"
    ),
    pytest.param("effusion", "gush", Words(effus={"gush"}), (1, 1, 1, 1), id="the stem's synonyms count"),
]


@pytest.mark.parametrize(("candidate", "reference", "thesaurus", "expected"), COUNTS)
def test_counts(candidate: str, reference: str, thesaurus: Words, expected: tuple[int, ...]) -> None:
    assert meteor_counts(candidate.split(), reference.split(), thesaurus) == MeteorCounts(*expected)


VALUES = [
    pytest.param(NOTHING, 0.0, id="nothing"),
    pytest.param(MeteorCounts(0, 0, 3, 4), 0.0, id="no match"),
    pytest.param(MeteorCounts(1, 1, 1, 1), 0.5, id="one equal word: 1 - 0.5 / 1"),
    pytest.param(MeteorCounts(10, 1, 10, 10), 1 - 0.5 / 1000, id="ten equal words: 1 - 0.5 / 10³"),
    # P = 1/2, R = 1: F = 0.5 / (0.45 + 0.1), penalty 0.5 · (1/2)³
    pytest.param(MeteorCounts(2, 1, 4, 2), 0.5 / 0.55 * (1 - 0.5 / 8), id="precision and recall differ"),
]


@pytest.mark.parametrize(("counts", "expected"), VALUES)
def test_values(counts: MeteorCounts, expected: float) -> None:
    assert meteor(counts) == pytest.approx(expected, abs=1e-15)


def random_pairs(vocabulary: list[str], n_pairs: int, seed: int) -> list[tuple[list[str], list[str]]]:
    """Texts that share words, stems and synonyms, in order and out of it."""
    rng = random.Random(seed)
    pairs = []
    for _ in range(n_pairs):
        left = [rng.choice(vocabulary) for _ in range(rng.randint(0, 50))]
        right = list(left) if rng.random() < 0.5 else rng.sample(left, len(left))
        for _ in range(rng.randint(0, 12)):
            right.insert(rng.randint(0, len(right)), rng.choice(vocabulary))
            right.pop(rng.randrange(len(right)))
        pairs.append((left, right))
    return pairs


def nltk_corpus_meteor(pairs: Sequence[tuple[Sequence[str], Sequence[str]]], wordnet: Any) -> float:
    """The formula on the sums of NLTK's alignments."""
    from nltk.translate import meteor_score

    alignments = [meteor_score.align_words(left, right, wordnet=wordnet)[0] for left, right in pairs]
    matches = sum(map(len, alignments))
    chunks = sum(meteor_score._count_chunks(each) for each in alignments if each)
    precision, recall = (matches / sum(len(pair[side]) for pair in pairs) for side in (0, 1))
    return float((1 - 0.5 * (chunks / matches) ** 3) * precision * recall / (0.9 * precision + 0.1 * recall))


def compare(folder: Path, vocabulary: list[str], n_pairs: int) -> None:
    pairs = random_pairs(vocabulary, n_pairs, seed=5)
    own = Wordnet(folder)
    counts = [meteor_counts(left, right, own) for left, right in pairs]
    with nltk_wordnet(folder) as theirs:
        assert [meteor(each) for each in counts] == nltk_meteor(pairs, theirs)
        total = sum(counts, NOTHING)
        assert meteor(total) == pytest.approx(nltk_corpus_meteor(pairs, theirs), abs=1e-14)


def test_equals_nltk_with_the_excerpt() -> None:
    """No tolerance: the value is called NLTK's."""
    words = (EXCERPT / "words.txt").read_text().split()
    compare(EXCERPT, [*words, *(word + "s" for word in words)], 300)


@pytest.mark.wordnet
def test_equals_nltk_with_all_of_wordnet() -> None:
    folder = Path(os.environ.get("AMB_WORDNET", "/usr/share/wordnet"))
    if not (folder / "data.noun").is_file():
        pytest.skip("no complete WordNet: install wordnet-base or set AMB_WORDNET")
    rng = random.Random(7)
    index = sorted(lemma.decode() for lemma in Wordnet(folder)._parts[0].index if b"_" not in lemma)
    words = (EXCERPT / "words.txt").read_text().split()
    compare(folder, [*words * 4, *rng.sample(index, 200)], 300)
