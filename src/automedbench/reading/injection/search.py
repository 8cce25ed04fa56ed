"""Passages of one text that address a judge, in everything that the text can be read as."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from automedbench.reading.injection.hidden import hidden_texts, other_views
from automedbench.reading.injection.patterns import EXPLICIT, IN_CHARACTERS, IN_WORDS, TRIGGER, WHO, Pattern
from automedbench.reading.injection.views import TextView, folded
from automedbench.reading.injection.words import words_of

REACH = 400
"""Characters around a telling word that are looked at; no passage is longer."""
MAX_DEPTH = 2
"""Encodings inside of encodings."""
MAX_OBJECT = 4_000
_ANSWER = "judge.verdict"
_BRACE = re.compile(r"[{}\[\]]")


class Span(NamedTuple):
    """A passage of a text and the rule that found it."""

    begin: int
    end: int
    rule: str


def spans_of(text: str, depth: int = 0) -> list[Span]:
    """Passages of one text, those that overlap put together under the more serious rule."""
    view = TextView(text)
    found = list(_in_view(view))
    for other in other_views(view, REACH):
        found += _in_view(other)
    found = [_whole(text, span) if span.rule == _ANSWER else span for span in found]
    if depth < MAX_DEPTH:
        for hidden, begin, end in hidden_texts(view):
            rules = [span.rule for span in spans_of(hidden, depth + 1)]
            found += [Span(begin, end, _gravest(rules))] if rules else []
    return _merged(found)


def _in_view(view: TextView) -> Iterator[Span]:
    view = folded(view)
    for begin, end in _windows(view.text):
        words = words_of(view, begin, end)
        someone = WHO.search(words.text) is not None
        for pattern in IN_WORDS:
            if someone or not pattern.to_someone:
                for match in _matches(pattern, words.text, words.begins):
                    yield Span(*words.span(*match.span()), pattern.rule)
    for pattern in IN_CHARACTERS:
        for match in _matches(pattern, view.text):
            yield Span(*view.span(*match.span()), pattern.rule)


def _matches(pattern: Pattern, text: str, begins: Callable[[int], bool] = lambda _: True) -> Iterator[re.Match[str]]:
    at = 0
    while match := pattern.regex.search(text, at):
        around = slice(max(0, match.start() - pattern.reach), match.end() + pattern.reach)
        near = pattern.near is None or pattern.near.search(text[around]) is not None
        if near and (not pattern.at_start or begins(match.start())):
            yield match
            at = max(match.end(), at + 1)
        else:
            at = match.start() + 1


def _windows(text: str) -> list[tuple[int, int]]:
    """Surroundings of telling words, those that touch put together."""
    windows: list[tuple[int, int]] = []
    for match in TRIGGER.finditer(text):
        begin, end = max(0, match.start() - REACH), min(len(text), match.end() + REACH)
        if windows and begin <= windows[-1][1]:
            windows[-1] = windows[-1][0], end
        else:
            windows.append((begin, end))
    return windows


def _whole(text: str, span: Span) -> Span:
    """With the outermost braces around a verdict: the quotes beside it are part of the same answer."""
    begin = _opening(text, span.begin)
    if begin is None:
        return span
    depth = 0
    for brace in _BRACE.finditer(text, begin, begin + 2 * MAX_OBJECT):
        depth += 1 if brace[0] in "{[" else -1
        if depth == 0:
            return Span(begin, max(span.end, brace.end()), span.rule)
    return Span(begin, span.end, span.rule)


def _opening(text: str, at: int) -> int | None:
    """Where the outermost brace opens that is not closed before ``at``."""
    depth, found = 0, None
    for brace in reversed(list(_BRACE.finditer(text, max(0, at - MAX_OBJECT + 1), at))):
        depth += 1 if brace[0] in "}]" else -1
        if depth < 0:
            depth, found = 0, brace.start()
    return found


def _merged(found: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in sorted(found):
        if merged and span.begin < merged[-1].end:
            last = merged[-1]
            merged[-1] = Span(last.begin, max(last.end, span.end), _gravest([last.rule, span.rule]))
        else:
            merged.append(span)
    return merged


def _gravest(rules: list[str]) -> str:
    return next((rule for rule in rules if rule in EXPLICIT), rules[0])
