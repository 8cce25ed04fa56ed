"""ROUGE-L: the subsequence by hand and by a plain table, the score by rouge-score."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automedbench.metrics.rouge import lcs_length, rouge_l, rouge_tokens
from automedbench.tracks.report_generation.score import rouge_score_l

LCS = [
    pytest.param("", "", 0, id="both empty"),
    pytest.param("abc", "", 0, id="one empty"),
    pytest.param("abc", "xyz", 0, id="nothing in common"),
    pytest.param("abc", "abc", 3, id="identical"),
    pytest.param("abc", "cba", 1, id="reversed"),
    pytest.param("abcbdab", "bdcaba", 4, id="textbook example (Cormen, Introduction to Algorithms, 15.4)"),
    pytest.param("aaaa", "aa", 2, id="repeated"),
    pytest.param("axbxc", "abc", 3, id="with gaps"),
]


@pytest.mark.parametrize(("first", "second", "expected"), LCS)
def test_lcs_by_hand(first: str, second: str, expected: int) -> None:
    assert lcs_length(first, second) == expected
    assert lcs_length(second, first) == expected


def by_table(first: list[str], second: list[str]) -> int:
    """The recurrence of every textbook."""
    row = [0] * (len(second) + 1)
    for word in first:
        before, row = row, [0]
        for place, other in enumerate(second):
            row.append(before[place] + 1 if word == other else max(before[place + 1], row[place]))
    return row[-1]


WORDS = st.lists(st.sampled_from("abcd"), max_size=90)  # longer than a machine word


@settings(deadline=None)
@given(WORDS, WORDS)
def test_lcs_equals_the_table(first: list[str], second: list[str]) -> None:
    assert lcs_length(first, second) == by_table(first, second)


F1 = [
    pytest.param("", "", 0.0, id="both empty"),
    pytest.param("the lungs", "", 0.0, id="empty candidate"),
    pytest.param("", "the lungs", 0.0, id="empty reference"),
    pytest.param("the lungs are clear", "the lungs are clear", 1.0, id="identical"),
    # LCS 3 of 4 and 5 words: P = 3/5, R = 3/4, F = 2/3
    pytest.param("the lungs are clear", "the left lungs appear clear", 2 / 3, id="three words in order"),
    pytest.param("follow-up", "follow up", 1.0, id="a hyphen separates"),
    pytest.param("Clear!", "CLEAR", 1.0, id="case and punctuation"),
    pytest.param("é", "é", 0.0, id="no token at all"),
]


@pytest.mark.parametrize(("reference", "candidate", "expected"), F1)
def test_f1_by_hand(reference: str, candidate: str, expected: float) -> None:
    assert rouge_l(rouge_tokens(reference), rouge_tokens(candidate)) == pytest.approx(expected, abs=1e-15)


TEXTS = st.text(alphabet="abAB1 -.,\n\u00e9\u0130\u212a", max_size=60)


@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_equals_rouge_score(reference: str, candidate: str) -> None:
    """To the last bit, tokenizer included."""
    own = rouge_l(rouge_tokens(reference), rouge_tokens(candidate))
    assert [own] == rouge_score_l([(candidate, reference)])
