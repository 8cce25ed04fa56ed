"""Passages of an agent's text that address the judge: found by rules, masked for a second judgement.

Deterministic and offline. A language model that judges may be steered by what it reads; what is found here is shown to
it only masked, lowers what it says at most, and is a finding of the audit where it can be meant for no other. Of
each kind of text so many characters are searched; what lies behind them counts as one passage.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from automedbench.base.records import Injection
from automedbench.reading.injection.patterns import EXPLICIT
from automedbench.reading.injection.search import Span, spans_of
from automedbench.reading.injection.words import MARK

__all__ = ["MARK", "AgentText", "explicit", "find_injections", "mask", "mask_texts"]

MAX_PASSES = 4
MAX_PASSAGE = 300
MAX_FOUND = 1_000
"""Passages that are put down of one run; all of them are masked."""
MAX_SEARCHED = 1_000_000
"""Characters that are searched of each kind of text."""
UNSEARCHED = "judge.unsearched"


@dataclass(frozen=True)
class AgentText:
    """A text of the agent; ``where``: plan, note, code, stdout, stderr, file name or picture."""

    where: str
    turn: int | None
    text: str


def explicit(injection: Injection) -> bool:
    """The passage can be meant for none but a judge: an order, a verdict in its form, a turn in its conversation."""
    return injection.rule in EXPLICIT


def find_injections(texts: Iterable[AgentText]) -> list[Injection]:
    """Passages that address a judge, in the order of the texts; one that is split over several is put down once."""
    given, rest = _bounded(list(texts))
    found = [(0, 0, _unsearched(where, count)) for where, count in rest.items()]
    for joined in _by_place(given):
        for span in joined.spans():
            index, first, _ = joined.pieces(span)[0]
            # A record holds no lone surrogate.
            passage = joined.text[span.begin : span.end][:MAX_PASSAGE].encode("utf-8", "replace").decode()
            text = given[index]
            found.append((index, first, Injection(rule=span.rule, where=text.where, turn=text.turn, passage=passage)))
    return [injection for _, _, injection in sorted(found, key=lambda item: item[:2])[:MAX_FOUND]]


def _bounded(texts: Sequence[AgentText]) -> tuple[list[AgentText], Counter[str]]:
    """The texts as far as they are searched, and how many characters of each kind are not."""
    taken, rest, bounded = Counter[str](), Counter[str](), []
    for text in texts:
        left = MAX_SEARCHED - taken[text.where]
        taken[text.where] += min(left, len(text.text))
        rest[text.where] += len(text.text) - min(left, len(text.text))
        bounded.append(text if len(text.text) <= left else replace(text, text=text.text[:left]))
    return bounded, +rest


def _unsearched(where: str, count: int) -> Injection:
    return Injection(rule=UNSEARCHED, where=where, passage=f"{count} characters were not searched: there are too many")


def mask(text: str) -> str:
    """``text`` with those passages replaced by ``MARK``; it keeps its number of lines."""
    return mask_texts([AgentText("note", None, text)])[0].text


def mask_texts(texts: Sequence[AgentText]) -> list[AgentText]:
    """The same texts with their passages masked, also those that are split over several of them."""
    bounded, rest = _bounded(texts)
    masked = list(bounded)
    for _ in range(MAX_PASSES):
        cuts: dict[int, list[tuple[int, int]]] = {}
        for joined in _by_place(masked):
            for span in joined.spans():
                for index, begin, end in joined.pieces(span):
                    cuts.setdefault(index, []).append((begin, end))
        if not cuts:
            break
        for index, places in cuts.items():
            text = masked[index]
            masked[index] = AgentText(text.where, text.turn, _cut(text.text, places))
    if not rest:
        return masked
    behind = [whole.text[len(part.text) :] for part, whole in zip(bounded, texts, strict=True)]
    return [
        replace(text, text=text.text + MARK + "\n" * gone.count("\n")) if gone else text
        for text, gone in zip(masked, behind, strict=True)
    ]


def _cut(text: str, places: list[tuple[int, int]]) -> str:
    parts, done = [], 0
    for begin, end in sorted(places):
        if end > done:
            begin = max(begin, done)
            parts += [text[done:begin], MARK, "\n" * text.count("\n", begin, end)]
            done = end
    return "".join([*parts, text[done:]])


def _by_place(texts: Sequence[AgentText]) -> list[_Joined]:
    """The texts of each kind together: an order may be split over several notes or several outputs."""
    kinds: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        kinds.setdefault(text.where, []).append(index)
    return [_Joined(texts, members) for members in kinds.values()]


class _Joined:
    """Texts one below the other, and the way back."""

    def __init__(self, texts: Sequence[AgentText], members: list[int]) -> None:
        self.text = "\n".join(texts[index].text for index in members)
        self._places: list[tuple[int, int, int]] = []
        at = 0
        for index in members:
            self._places.append((index, at, at + len(texts[index].text)))
            at += len(texts[index].text) + 1

    def spans(self) -> list[Span]:
        """Passages; one that goes over an end of a text only where none of its texts holds one by itself."""
        found: dict[Span, None] = {}
        for span in spans_of(self.text):
            touched = [(first, last) for _, first, last in self._touched(span)]
            alone = _alone(self.text, touched) if len(touched) > 1 else []
            found |= dict.fromkeys([item for item in alone if _overlap(item, span)] or [span])
        return list(found)

    def pieces(self, span: Span) -> list[tuple[int, int, int]]:
        """Parts of a passage: index of the text, begin and end in it."""
        return [
            (index, max(span.begin, first) - first, min(span.end, last) - first)
            for index, first, last in self._touched(span)
        ]

    def _touched(self, span: Span) -> list[tuple[int, int, int]]:
        """Places that a passage lies in, at least partly."""
        after = bisect_left(self._places, span.end, key=itemgetter(1))
        before = bisect_right(self._places, span.begin, key=itemgetter(2))
        return [place for place in self._places[before:after] if place[1] < place[2]]


def _overlap(one: Span, other: Span) -> bool:
    return one.begin < other.end and other.begin < one.end


def _alone(text: str, places: Sequence[tuple[int, int]]) -> list[Span]:
    """Passages of single texts."""
    return [
        Span(first + span.begin, first + span.end, span.rule)
        for first, last in places
        for span in spans_of(text[first:last])
    ]
