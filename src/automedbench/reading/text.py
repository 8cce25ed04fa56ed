"""Plain text of an agent: its own lines, words of a vocabulary, paragraphs, steps and candidates."""

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


def words_in(text: str) -> list[str]:
    """Words of two letters or more, in small letters; each sign of a script without blanks counts as one."""
    return _WORD.findall(text.casefold())


def own_text(text: str, brief: str) -> str:
    """``text`` without the lines that were copied from the brief (25 characters or more, in any spacing)."""
    told = _plain(brief)
    plain = ((line, _plain(line)) for line in text.split("\n"))
    return "\n".join(line for line, words in plain if len(words) < MIN_COPIED or words not in told)


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
    joined = re.sub(r"^(#[^\n]*)\n(?:[ \t]*\n)+", r"\1\n", text, flags=re.MULTILINE)
    return [block for block in re.split(r"\n[ \t]*\n", joined) if block.strip()]


def sentences(text: str) -> list[str]:
    """Lines and sentences of at least three words."""
    parts = re.split(r"\n|(?<=[.;!?])\s|(?<=[。；！？])|→|->", text)
    return [part for part in parts if len(words_in(part)) >= 3]


def pieces(text: str) -> list[str]:
    """Steps of a text: lines, sentences, clauses, and links of chains."""
    parts = re.split(r"\n|[.;!?](?:\s|$)|[。；！？]|→|⟶|(?<![-=])[-=]+>|,\s|[，、]|\bthen\b", text)
    return [part for part in parts if re.search(r"\w{2}", part)]


def line_at(text: str, position: int) -> str:
    """The line of ``text`` that holds ``position``."""
    return text[text.rfind("\n", 0, position) + 1 :].partition("\n")[0]


MAX_READ = 256 * 1024
"""Characters of one text that are read."""
_REPOSITORY = re.compile(
    r"(?:https?://)?(?:huggingface\.co|hf\.co|github\.com|gitlab\.com)/([\w.-]+/[\w.-]+)", re.IGNORECASE
)
_MODEL_NAME = re.compile(r"\b(?:[A-Z][\w+]*[a-z0-9][A-Z][\w+]*|[A-Z]\w*-[A-Z0-9]\w*|[A-Z][a-z]+-?\d+\w*)\b")
_ROW = re.compile(r"^\s*+\|?(?P<name>[^|]+)\|(?P<remark>.*\|.*)$")
_REMARKED = re.compile(
    r"(?:^|[,:]\s+)(?:[-*+•]\s+|\(?[a-z0-9]{1,2}[.)]\s+)?(?P<name>[^\W\d_][^();:—–,]{1,60}?)\s*"
    r"(?:\((?P<bracket>[^()]{4,})\)|:\s+(?P<colon>[^:]{6,})$|\s[—–-]\s(?P<dash>.{6,})$)"
)
_CLAUSE = re.compile(r"[;.。；](?=\s|$)|(?<=\)),|\b(?:and|or|und|oder|et|ou|y) (?=a |an |ein|un)")
_LEAD = re.compile(
    r"\b(?:candidate|option|alternative|considered|compar|weigh|looked at|contender|choices|which |kandidat|variante"
    r"|möglichkeit|verglich|vergleich|candidat|opcion|opción|alternativ|évalué|compará)|候选|备选|方案|比较|可选",
    re.IGNORECASE,
)


def candidates_in(text: str, vocabulary: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """(name, passage) of methods and repositories of which a text says more than their names.

    Known ones anywhere; others in a paragraph that weighs, or that speaks of three.
    """
    for block in paragraphs(text[:MAX_READ]):
        lines = block.split("\n")
        items = [line for line in lines if _ITEM.match(line) or _ROW.match(line)]
        prose = " ".join(line for line in lines if line not in items and not line.startswith("#"))
        parts = [part.strip() for part in (*items, *_CLAUSE.split(prose))]
        found = [(name, part) for part in parts for name in _weighed_in(part, vocabulary)]
        weighs = len(set(dict(found))) > 2 or _LEAD.search(block)
        yield from (each for each in found if weighs or each[0] in vocabulary or "/" in each[0])


def _weighed_in(part: str, vocabulary: dict[str, list[str]]) -> set[str]:
    """Known methods and repositories that it weighs, or else the one that its form marks as a candidate."""
    known = {name for name, words in vocabulary.items() if any(find_words(part, words))}
    known |= {hit[1].casefold().rstrip(".") for hit in _REPOSITORY.finditer(part)}
    if known:
        return known if _remark(part, vocabulary) >= len(known) else set()
    form, model = _ROW.match(part) or _REMARKED.search(part), _MODEL_NAME.search(part)
    if form and _remark(" ".join(filter(None, form.groups()[1:])), vocabulary) > 1:
        return {form["name"].strip("*`_ ").casefold()}
    return {model[0].casefold()} if model and _remark(part, vocabulary) > 3 else set()


def _remark(said: str, vocabulary: dict[str, list[str]]) -> int:
    """Words of a remark: not the names of methods themselves."""
    said = _REPOSITORY.sub(" ", said)
    for words in vocabulary.values():
        said = without_words(said, words)
    return len(re.findall(r"[^\W\d_]{3,}|[\u3040-\uffdc]{2,}", said))
