"""BLEU in COCO's form: values by hand, NLTK's precisions as the twin, sums as the corpus."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automedbench.metrics.bleu import NOTHING, bleu, bleu_counts, mean_bleu
from automedbench.tracks.report_generation.score import nltk_bleu

# By hand; the tiny constants change the ninth digit.
CASES = [
    pytest.param("", "a b c d", (0, 0, 0, 0), id="empty candidate"),
    pytest.param("a b c d", "", (0, 0, 0, 0), id="empty reference"),
    pytest.param("", "", (0, 0, 0, 0), id="both empty"),
    pytest.param("x y z", "a b c", (0, 0, 0, 0), id="nothing in common"),
    pytest.param("a b c d", "a b c d", (1, 1, 1, 1), id="identical, four tokens"),
    pytest.param("a a a a", "a", (1 / 4, 0, 0, 0), id="clipped: the reference has it once"),
    pytest.param(
        "a b c d e",
        "a b c d f",
        (
            4 / 5,
            math.sqrt(4 / 5 * 3 / 4),
            (4 / 5 * 3 / 4 * 2 / 3) ** (1 / 3),
            (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4),
        ),
        id="last token differs",
    ),
    pytest.param("a b c d", "a b c d e f g h", (math.exp(-1),) * 4, id="half as long: brevity exp(1 - 2)"),
    pytest.param("b a", "a b", (1, 0, None, None), id="order matters from pairs on"),
]


@pytest.mark.parametrize(("candidate", "reference", "expected"), CASES)
def test_by_hand(candidate: str, reference: str, expected: tuple[float | None, ...]) -> None:
    found = bleu(bleu_counts(candidate.split(), reference.split()))
    for value, wanted in zip(found, expected, strict=True):
        # B_2 of a text without a common pair is the root of 1e-15, not 0.
        assert wanted is None or value == pytest.approx(wanted, abs=2e-4 if wanted == 0 else 2e-9)


@pytest.mark.parametrize("n_tokens", [1, 2, 3])
def test_short_texts_lose_orders_they_do_not_have(n_tokens: int) -> None:
    """COCO's constants give a missing order the precision 1e-15 / 1e-9; the existing orders are 1."""
    words = ["a", "b", "c"][:n_tokens]
    found = bleu(bleu_counts(words, words))
    expected = [1.0] * n_tokens + [1e-6 ** ((order - n_tokens) / order) for order in range(n_tokens + 1, 5)]
    assert found == pytest.approx(expected, rel=1e-6)


def test_corpus_is_the_sum_of_counts() -> None:
    """Two texts of 2 and 6 tokens with 1 and 6 matches: B_1 is 7/8, not the mean of 1/2 and 1."""
    pairs = [("a x", "a b"), ("c d e f g h", "c d e f g h")]
    total = sum((bleu_counts(left.split(), right.split()) for left, right in pairs), NOTHING)
    assert bleu(total)[0] == pytest.approx(7 / 8, abs=1e-8)
    assert total.ngrams == (8, 6, 4, 3)


def test_longer_candidate_is_not_punished_for_length_alone() -> None:
    """No brevity penalty above the reference's length: B_1 = 4/8."""
    assert bleu(bleu_counts(list("abcdxyzw"), list("abcd")))[0] == pytest.approx(0.5, abs=1e-9)


WORDS = st.lists(st.sampled_from("abcde"), max_size=12)


@settings(deadline=None)
@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4))
def test_equals_its_twin(pairs: list[tuple[list[str], list[str]]]) -> None:
    """NLTK counts, logarithms multiply: another library and another arithmetic."""
    for left, right in pairs:
        assert mean_bleu(bleu_counts(left, right)) == pytest.approx(nltk_bleu([(left, right)]), abs=1e-12)
    total = sum((bleu_counts(left, right) for left, right in pairs), NOTHING)
    assert mean_bleu(total) == pytest.approx(nltk_bleu(pairs), abs=1e-12)


@settings(deadline=None)
@given(WORDS, WORDS)
def test_within_bounds(left: list[str], right: list[str]) -> None:
    assert 0 <= mean_bleu(bleu_counts(left, right)) <= 1
