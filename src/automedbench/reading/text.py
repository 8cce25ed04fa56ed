"""Plain text of an agent: its own lines, words of a vocabulary, paragraphs and steps."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

MIN_COPIED = 25
"""Shorter lines may agree with the brief by chance (names of files, models, classes)."""

_NEGATION = re.compile(
    r"\b(?:no|not|without|never|over|instead of|rather than|unlike|avoid\w*|nicht|kein\w*|ohne|statt|sans|pas"
    r"|plutôt que|sin|en lugar de|non|senza)\W+(?:\w+\W+){0,3}$|(?:不|没有|而非|未)\w{0,6}$",
    re.IGNORECASE,
)
_SIGN = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Signs of Chinese, Japanese and Korean, which put no blanks between words."""
_WORD = re.compile(rf"[{_SIGN}]|[^\W\d_{_SIGN}]{{2,}}")


_ITEM = re.compile(r"^\s*(?:[-*+•]\s|\(?\w{1,2}[.)]\s|\d{1,2}[、．])\s*")
_CHAIN = re.compile(r"→|⟶|(?<![-=])[-=]+>|\s>\s|;")


def words_in(text: str) -> list[str]:
    """Words of two letters or more, in small letters; each sign of a script without blanks counts as one."""
    return _WORD.findall(text.casefold())


def own_text(text: str, brief: str) -> str:
    """``text`` without the lines that were copied from the brief (25 characters or more, in any spacing)."""
    told = _plain(brief)
    return "\n".join(line for line in text.split("\n") if not _copied(_plain(line), told))


def _copied(line: str, told: str) -> bool:
    return len(line) >= MIN_COPIED and line in told


def _plain(text: str) -> str:
    """The words of ``text``, however they are written: case, width, underscores and characters unseen don't matter."""
    if not text.isascii():
        taken_apart = unicodedata.normalize("NFKD", text)
        text = "".join(char for char in taken_apart if unicodedata.category(char) not in ("Cf", "Mn"))
    return " ".join(re.findall(r"[^\W_]+", text.casefold()))


def find_word(text: str, words: list[str], start: int = 0) -> re.Match[str] | None:
    """The first word of a vocabulary in ``text`` from ``start`` on that is not negated shortly before."""
    for hit in find_words(text, words, start):
        if not _NEGATION.search(text[max(start, hit.start() - 60) : hit.start()]):
            return hit
    return None


def find_words(text: str, words: list[str], start: int = 0) -> Iterator[re.Match[str]]:
    """All hits of whole words, or of beginnings where an entry ends in ``*``; case does not matter."""
    return _pattern(tuple(words)).finditer(text, start) if words else iter(())


def without_words(text: str, words: list[str]) -> str:
    """The text with a blank in the place of each hit of ``find_words``."""
    return _pattern(tuple(words)).sub(" ", text) if words else text


@lru_cache(maxsize=256)
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    letter = rf"(?-i:[^\W{_SIGN}])"  # without the flag: the signs have no case, and looking for it in all takes long
    signs = [re.escape(word) for word in words if re.match(f"[{_SIGN}]", word)]
    parts = [
        re.escape(word[:-1].rstrip()) if word.endswith("*") else f"{re.escape(word)}(?!{letter})"
        for word in words
        if re.escape(word) not in signs
    ]
    bounded = [f"(?<!{letter})(?:{'|'.join(parts)})"] if parts else []
    return re.compile("|".join([*bounded, *signs]), re.IGNORECASE)


def paragraphs(text: str) -> list[str]:
    """Blocks between blank lines; a heading belongs to the block below it."""
    blocks: list[str] = []
    heading = ""
    for block in re.split(r"\n[ \t]*\n", text):
        if block.strip().startswith("#") and "\n" not in block.strip():
            heading = block.strip()
        elif block.strip():
            blocks.append(f"{heading}\n{block}" if heading else block)
            heading = ""
    return blocks


def sentences(text: str) -> list[str]:
    """Lines and sentences of at least three words."""
    parts = re.split(r"\n|(?<=[.;!?])\s|(?<=[。；！？])|→|->", text)
    return [part for part in parts if len(words_in(part)) >= 3]


def pieces(text: str) -> list[str]:
    """Steps of a text: its sentences, items of lists and links of chains however short, and clauses of two words."""
    found: list[str] = []
    for line in text.split("\n"):
        item = _ITEM.match(line)
        links = _CHAIN.split(line[item.end() :] if item else line)
        if len(links) > 2 or item:
            found += [link for link in links if re.search(r"\w{2,}", link)]
    clauses = (clause for sentence in sentences(text) for clause in re.split(r",\s|[，、]|\bthen\b", sentence))
    found += [clause for clause in clauses if len(words_in(clause)) >= 2]
    return found + sentences(text)


def line_at(text: str, position: int) -> str:
    """The line of ``text`` that holds ``position``."""
    begin = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return text[begin : end if end >= 0 else len(text)]
