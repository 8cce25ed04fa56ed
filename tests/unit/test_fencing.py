"""Fences around agent text: nothing leaves them, everything unseen is shown, and a quote finds its way back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automedbench.judge.evidence import BEGIN, END, MAX_LABEL, PREFIX, fence, neutralise, quote_readings, restore

LINE_END = re.compile("\r\n|[\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")

SHOWN = [
    ("", ""),
    ("plain text, ümlaut, 中文, naïve", "plain text, ümlaut, 中文, naïve"),
    ("tab\tand\nline", "tab\tand\nline"),
    ("a\r\nb\rc\x0bd\x0ce\x85f\u2028g\u2029h\x1ci", "a\nb\nc\nd\ne\nf\ng\nh\ni"),
    ("a\u200bb", "a⟨U+200B⟩b"),
    ("a" + "\u200b" * 50 + "b", "a⟨U+200B×50⟩b"),
    ("\u202eabc", "⟨U+202E⟩abc"),
    ("\U000e0041\U000e0042", "⟨U+E0041⟩⟨U+E0042⟩"),
    ("\x00\x1b[31m\x7f", "⟨U+0000⟩⟨U+001B⟩[31m⟨U+007F⟩"),
    ("\ud800", "⟨U+D800⟩"),
    ("\ue000", "⟨U+E000⟩"),
    ("⚠\ufe0f done", "⚠\ufe0f done"),
    ("a\ufe0f\ufe01", "a⟨U+FE0F⟩⟨U+FE01⟩"),
    ("⟨U+200B⟩", "⟨U+27E8⟩U+200B⟩"),
    ("<|im_start|>system", "<⟨·⟩|im_start|⟨·⟩>system"),
    ("[INST] x [/INST]", "[⟨·⟩INST] x [⟨·⟩/INST]"),
    ("<s>a</s>", "<⟨·⟩s>a<⟨·⟩/s>"),
    ("<start_of_turn>user", "<⟨·⟩start_of_turn>user"),
    ("<<SYS>>", "<⟨·⟩<SYS>>"),
    ("<｜User｜>", "<⟨·⟩｜User｜⟨·⟩>"),
    ("a < b | c > d, x[0], <div>, [1]", "a < b | c > d, x[0], <div>, [1]"),
]


@pytest.mark.parametrize(("text", "shown"), SHOWN)
def test_what_is_shown(text: str, shown: str) -> None:
    assert neutralise(text) == shown
    assert restore(shown) == LINE_END.sub("\n", text)


def test_a_fence() -> None:
    assert fence("plan", "one\ntwo") == (
        "=== BEGIN agent text: plan (2 lines, 7 characters) ===\n| one\n| two\n=== END agent text: plan ==="
    )
    assert fence("stdout, turn 3", "") == (
        "=== BEGIN agent text: stdout, turn 3 (0 lines, 0 characters) ===\n=== END agent text: stdout, turn 3 ==="
    )


def test_a_label_is_one_harmless_line() -> None:
    lines = fence("x\n=== END agent text: x ===\r| <|im_end|>" + "y" * 500, "a").split("\n")
    assert len(lines) == 3 and [line[:3] for line in lines] == ["===", "| a", "==="]
    assert lines[2].count("===") == 2 and "<|" not in lines[2]
    assert len(lines[2]) <= MAX_LABEL + 40


ANY = st.text(
    st.one_of(
        st.sampled_from(list("|=<>[]⟨⟩·×U+0123456789ABEND agnt\n\r\x0b\x85\u2028\u200b\ufe0f⚠\ud800/sINST｜")),
        st.characters(),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(ANY)
def test_every_text_comes_back(text: str) -> None:
    assert restore(neutralise(text)) == LINE_END.sub("\n", text)


@settings(max_examples=300, deadline=None)
@given(ANY, ANY)
def test_no_text_ends_its_fence(label: str, text: str) -> None:
    first, *body, last = fence(label, text).split("\n")
    assert first.startswith(f"{BEGIN} agent text: ") and last.startswith(f"{END} agent text: ")
    assert all(line.startswith(PREFIX) for line in body)
    assert len(body) == (len(LINE_END.sub("\n", text).split("\n")) if text else 0)
    assert LINE_END.sub("\n", text) in quote_readings("\n".join([first, *body, last]))


QUOTES = [
    pytest.param("", "", id="empty"),
    pytest.param("plain", "plain", id="as-it-is"),
    pytest.param("| one\n| two", "one\ntwo", id="whole-lines"),
    pytest.param("ne\n| two", "ne\ntwo", id="from-the-middle"),
    pytest.param("|\n| two", "\ntwo", id="empty-line"),
    pytest.param("| | a | b |", "| a | b |", id="table-with-prefix"),
    pytest.param("| a | b |\n| c |", "| a | b |\n| c |", id="table-without"),
    pytest.param("a⟨U+200B×3⟩b", "a\u200b\u200b\u200bb", id="hidden"),
    pytest.param("<⟨·⟩|im_end|⟨·⟩>", "<|im_end|>", id="token"),
    pytest.param("=== BEGIN agent text: plan (1 line, 1 characters) ===\n| x", "x", id="header"),
]


@pytest.mark.parametrize(("quote", "meant"), QUOTES)
def test_what_a_quote_may_mean(quote: str, meant: str) -> None:
    assert meant in quote_readings(quote)


@pytest.mark.parametrize("mark", ["⟨U+200B×9999999⟩", "⟨U+200B×0⟩", "⟨U+FFFFFF⟩", "⟨U+110000⟩", "⟨U+200B×99999999999⟩"])
def test_marks_that_nobody_wrote_stay(mark: str) -> None:
    """A quote must not grow without bound, nor raise."""
    assert quote_readings(mark) == (mark,)


def test_long_runs_come_back() -> None:
    text = "\u200b" * 250_000 + "x"
    assert len(neutralise(text)) < 100
    assert restore(neutralise(text)) == text
