"""Words of a text joined by single blanks: punctuation, quotes, comment signs and line ends do not part a sentence."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from automedbench.reading.injection.views import TextView

MARK = "[masked: text that addresses the judge]"
"""What a masked passage shows."""

# A number with its point, per cent or fraction; a stretch of Chinese; a word; a colon; the end of a sentence.
_TOKEN = re.compile(
    rf"{re.escape(MARK)}|\d+(?:[.,/]\d+)*%?(?![a-z0-9])|[\u3400-\u9fff]+|[^\W_\u3400-\u9fff]+|:"
    r"|[.!?;](?=[\s\"'`)\]}*]|$)|[。｡]"
)
_OPENING = re.compile(r"[.:] |(?:please|must|should|always|simply|just|instead|now|therefore|hence|kindly|so|but|you) ")
_ENDS = frozenset(".!?;。｡")


@dataclass(frozen=True)
class Words:
    """A view as words; colons stay, and a sentence's end is a word ``.``."""

    text: str
    view: TextView
    _offsets: Sequence[int]
    _places: Sequence[tuple[int, int]]

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """Where ``[begin, end)`` of ``text`` stood in the text below the view."""
        first, last = bisect_right(self._offsets, begin) - 1, bisect_right(self._offsets, max(begin, end - 1)) - 1
        return self.view.span(self._places[first][0], self._places[last][1])

    def begins(self, at: int) -> bool:
        """Whether a sentence, a clause or a line begins at ``at`` of ``text``."""
        if at == 0 or _OPENING.match(self.text, at):
            return True
        place = self._places[bisect_right(self._offsets, at) - 1][0]
        line = self.view.text[self.view.text.rfind("\n", 0, place) + 1 : place]
        return not any(map(str.isalnum, line))


def words_of(view: TextView, begin: int = 0, end: int | None = None) -> Words:
    """The words of ``[begin, end)`` of a folded view."""
    offsets, places, words, at = array("l"), [], [], 0
    for match in _TOKEN.finditer(view.text, begin, len(view.text) if end is None else end):
        word = "." if match[0] in _ENDS or match[0] == MARK else match[0]
        offsets.append(at)
        places.append(match.span())
        words.append(word)
        at += len(word) + 1
    return Words(" ".join(words), view, offsets, places)
