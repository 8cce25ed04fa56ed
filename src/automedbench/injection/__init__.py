"""Passages of an agent's text that address the judge: found by rules, masked for a second judgement.

Deterministic and offline. A language model that judges may be steered by what it reads; what is found here is shown to
it only masked, lowers what it says at most, and is a finding of the audit where it can be meant for nobody else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from automedbench.injection.hidden import hidden_texts, other_views
from automedbench.injection.patterns import EXPLICIT, IN_CHARACTERS, IN_WORDS, TRIGGER, WHO, Pattern
from automedbench.injection.views import View, folded
from automedbench.injection.words import MARK, words_of
from automedbench.records import Injection

__all__ = ["MARK", "AgentText", "explicit", "find_injections", "mask", "mask_texts"]

REACH = 400
"""Characters around a telling word that are looked at; no passage is longer."""
MAX_DEPTH = 2
"""Encodings inside of encodings."""
MAX_PASSES = 4
ANSWER = "judge.verdict"
MAX_OBJECT = 4000
MAX_PASSAGE = 300

Span = tuple[int, int, str]
"""Begin, end, rule."""


@dataclass(frozen=True)
class AgentText:
    """A text of the agent; ``where``: plan, note, code, stdout, stderr, file name or picture."""

    where: str
    turn: int | None
    text: str


def explicit(injection: Injection) -> bool:
    """The passage can be meant for nobody but a judge: an order, a verdict in its form, a turn in its conversation."""
    return injection.rule in EXPLICIT


def find_injections(texts: Iterable[AgentText]) -> list[Injection]:
    """Passages that address a judge, in the order of the texts; one that is split over several is put down once."""
    given = list(texts)
    found = [
        (index, begin, Injection(rule=rule, where=given[index].where, turn=given[index].turn, passage=passage))
        for index, begin, rule, passage in _found(given)
    ]
    return [injection for _, _, injection in sorted(found, key=lambda item: item[:2])]


def mask(text: str) -> str:
    """``text`` with those passages replaced by ``MARK``; it keeps its number of lines."""
    return mask_texts([AgentText("note", None, text)])[0].text


def mask_texts(texts: Sequence[AgentText]) -> list[AgentText]:
    """The same texts with their passages masked, also those that are split over several of them."""
    masked = list(texts)
    for _ in range(MAX_PASSES):
        cuts: dict[int, list[tuple[int, int]]] = {}
        for members in _by_place(masked):
            joined = _Joined(masked, members)
            for begin, end, _rule in _spans(joined.text):
                for index, first, last in joined.pieces(begin, end):
                    cuts.setdefault(index, []).append((first, last))
        if not cuts:
            break
        for index, spans in cuts.items():
            text = masked[index]
            masked[index] = AgentText(text.where, text.turn, _cut(text.text, spans))
    return masked


def _cut(text: str, spans: list[tuple[int, int]]) -> str:
    parts, done = [], 0
    for begin, end in sorted(spans):
        if end <= done:
            continue
        begin = max(begin, done)
        parts += [text[done:begin], MARK, "\n" * text.count("\n", begin, end)]
        done = end
    return "".join([*parts, text[done:]])


def _found(texts: Sequence[AgentText]) -> Iterator[tuple[int, int, str, str]]:
    """Index of the text, place in it, rule, passage."""
    for members in _by_place(texts):
        joined = _Joined(texts, members)
        for begin, end, rule in _spans(joined.text):
            index, first, _ = joined.pieces(begin, end)[0]
            yield index, first, rule, joined.text[begin:end][:MAX_PASSAGE]


def _by_place(texts: Sequence[AgentText]) -> list[list[int]]:
    """Indices of the texts of each kind: an order may be split over several notes or several outputs."""
    kinds: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        kinds.setdefault(text.where, []).append(index)
    return list(kinds.values())


class _Joined:
    """Texts one below the other, and the way back."""

    def __init__(self, texts: Sequence[AgentText], members: list[int]) -> None:
        self.text = "\n".join(texts[index].text for index in members)
        self._places: list[tuple[int, int, int]] = []
        at = 0
        for index in members:
            self._places.append((index, at, at + len(texts[index].text)))
            at += len(texts[index].text) + 1

    def pieces(self, begin: int, end: int) -> list[tuple[int, int, int]]:
        """Parts of ``[begin, end)``: index of the text, begin and end in it."""
        return [
            (index, max(begin, first) - first, min(end, last) - first)
            for index, first, last in self._places
            if first < end and begin < last
        ]


def _spans(text: str, depth: int = 0) -> list[Span]:
    """Passages of one text, those that overlap put together under the more serious rule."""
    view = View(text)
    found = list(_in_view(view))
    for other in other_views(view, REACH):
        found += _in_view(other)
    found = [
        (*_object_around(text, begin, end), rule) if rule == ANSWER else (begin, end, rule)
        for begin, end, rule in found
    ]
    if depth < MAX_DEPTH:
        for hidden, begin, end in hidden_texts(view):
            rules = [rule for _, _, rule in _spans(hidden, depth + 1)]
            found += [(begin, end, _gravest(rules))] if rules else []
    return _merged(found)


def _in_view(view: View) -> Iterator[Span]:
    view = folded(view)
    for begin, end in _windows(view.text):
        words = words_of(view, begin, end)
        someone = WHO.search(words.text) is not None
        for pattern in IN_WORDS:
            if someone or not pattern.to_someone:
                for match in _matches(pattern, words.text, words.begins):
                    yield *words.span(*match.span()), pattern.rule
    for pattern in IN_CHARACTERS:
        for match in _matches(pattern, view.text):
            yield *view.span(*match.span()), pattern.rule


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


def _object_around(text: str, begin: int, end: int) -> tuple[int, int]:
    """The outermost braces around a verdict: the quotes beside it are part of the same answer."""
    depth, first = 0, begin
    for at in range(begin - 1, max(-1, begin - MAX_OBJECT), -1):
        if text[at] in "}]":
            depth += 1
        elif text[at] in "{[":
            depth -= 1
            if depth < 0:
                depth, first = 0, at
    if first == begin:
        return begin, end
    for at in range(first, min(len(text), first + 2 * MAX_OBJECT)):
        depth += (text[at] in "{[") - (text[at] in "}]")
        if depth == 0:
            return first, max(end, at + 1)
    return first, end


def _merged(found: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for begin, end, rule in sorted(found):
        if merged and begin < merged[-1][1]:
            first, last, other = merged[-1]
            merged[-1] = first, max(end, last), _gravest([other, rule])
        else:
            merged.append((begin, end, rule))
    return merged


def _gravest(rules: list[str]) -> str:
    return next((rule for rule in rules if rule in EXPLICIT), rules[0])
