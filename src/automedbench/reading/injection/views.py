"""Text as a reader would understand it, with the way back to where each character stood.

Folding undoes what hides a word from a search but not from a language model: compatibility forms, accents, look-alike
letters, unseen characters, terminal colours and markup inside a word.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

# Letters of other scripts that look like Latin ones (the common part of Unicode's confusables, UTS #39), and Latin
# letters that have no decomposition.
_LOOK_ALIKES = dict(
    zip(
        "аеорсухіјѕԁԛԝһӏκαοριντυχωεγηβмкнтвгпзьъℓıȷƒøłđħŧæœßþɑɡɩɪʟʙɢʜɴʀᴀᴄᴅᴇᴊᴋᴍᴏᴘᴛᴜᴠᴡᴢꜰꜱɐǝɹʇʎʍɯʞɟƃɥᴉɔʌⅼ∕⁄․։սոօհցյքԼ",
        "aeopcyxijsdqwhlkaopivtuxwegnbmkhtbrnzbblijfoldhtaosbagiilbghnracdejkmoptuvwzfsaertywmkfghicvl//.:unohgjpl",
        strict=True,
    )
)
_FOREIGN = re.compile(r"[^\x00-\x7f]")
_LOWER = {code: chr(code).lower() for code in range(ord("A"), ord("Z") + 1)}
_IN_WORD = r"(?<=[a-z])(?:\*{1,3}|__|~~|`|\\)(?=[a-z])"
_DROPPED = re.compile(
    r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\))"  # terminal colours and titles
    r"|[\x00-\x08\x0e-\x1f\x7f]"
    r"|</?(?:b|i|em|strong|span|u|sub|sup|font|wbr|mark|small)(?:\s[^<>]{0,200})?/?>"
    rf"|{_IN_WORD}"
    r"|(?<=[a-z])-[ \t]{0,40}\r?\n[ \t]{0,40}(?:[#/*|>]{1,8}[ \t]{0,8})?(?=[a-z])"  # a divided word
)


class TextView:
    """A text made from another one by replacing pieces, with the way back to the text that it all began with."""

    def __init__(
        self, text: str, below: TextView | None = None, pieces: Sequence[Piece] = (), *, turned: bool = False
    ) -> None:
        self.text = text
        self._below, self._pieces, self._turned = below, pieces, turned
        self._begins = [piece.begin for piece in pieces]

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """Where ``[begin, end)`` of this text stood, of an empty piece where it would have."""
        end = max(end, begin + 1)
        if self._turned:
            begin, end = len(self.text) - end, len(self.text) - begin
        if self._pieces:
            begin, end = self._place(begin)[0], self._place(end - 1)[1]
        return (begin, end) if self._below is None else self._below.span(begin, end)

    def _place(self, at: int) -> tuple[int, int]:
        piece = self._pieces[bisect_right(self._begins, at) - 1]
        if not piece.alike:
            return piece.first, piece.last
        return piece.first + at - piece.begin, piece.first + at - piece.begin + 1

    @property
    def changed(self) -> list[tuple[int, int]]:
        """Places in this text whose characters are not those of the text below."""
        ends = [*self._begins[1:], len(self.text)] if self._pieces else []
        return [(piece.begin, end) for piece, end in zip(self._pieces, ends, strict=True) if not piece.alike]


class Piece(NamedTuple):
    """A stretch of a view from ``begin`` on: ``[first, last)`` of the text below, ``alike`` character by character."""

    begin: int
    first: int
    last: int
    alike: bool


def replaced(view: TextView, pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str]) -> TextView:
    """The view with every match replaced; what replaces it comes from the place of the whole match."""
    parts: list[str] = []
    pieces: list[Piece] = []
    done = at = 0
    for match in pattern.finditer(view.text):
        new = replacement(match)
        begin = match.start()
        pieces += [Piece(at, done, begin, True), Piece(at + begin - done, begin, match.end(), False)]
        parts += [view.text[done:begin], new]
        at += begin - done + len(new)
        done = match.end()
    if not parts:
        return view
    pieces.append(Piece(at, done, len(view.text), True))
    return TextView("".join([*parts, view.text[done:]]), view, pieces)


def translated(view: TextView, table: dict[int, str]) -> TextView:
    """The view with characters exchanged one for one."""
    return TextView(view.text.translate(table), view)


def turned(view: TextView) -> TextView:
    """The view read from its end."""
    return TextView(view.text[::-1], view, turned=True)


def cut(view: TextView, places: Iterable[tuple[int, int]], reach: int) -> Iterator[TextView]:
    """The surroundings of places in a view, those that touch put together."""
    begin = end = -1
    for first, last in sorted(places):
        if end >= 0 and first - reach > end:
            yield TextView(view.text[begin:end], view, [Piece(0, begin, end, True)])
            end = -1
        if end < 0:
            begin = max(0, first - reach)
        end = max(end, min(len(view.text), last + reach))
    if end >= 0:
        yield TextView(view.text[begin:end], view, [Piece(0, begin, end, True)])


def folded(view: TextView) -> TextView:
    """Lower case, Latin letters for look-alikes, nothing that cannot be seen, no markup inside words."""
    return replaced(_letters(view), _DROPPED, lambda _: "")


def _letters(view: TextView) -> TextView:
    low = translated(view, _LOWER)
    return low if low.text.isascii() else replaced(low, _FOREIGN, lambda match: _letter(match[0]))


@lru_cache(maxsize=20_000)
def _letter(char: str) -> str:
    code = ord(char)
    for first, last in ((0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189), (0x1F1E6, 0x1F1FF)):
        if first <= code <= last:  # letters in squares and circles, and those that flags are made of
            return chr(ord("a") + code - first)
    if code in (0x85, 0x2028, 0x2029):
        return "\n"
    decomposed = unicodedata.normalize("NFKD", char).casefold()
    return "".join(_LOOK_ALIKES.get(part, part) for part in decomposed if not _unseen(part))


def _unseen(char: str) -> bool:
    """Accents, format characters, fillers: nothing that a word consists of."""
    return (
        unicodedata.category(char) in ("Mn", "Me", "Cf", "Cc", "Cs", "Co", "Cn") or char in "\u115f\u1160\u3164\u2800"
    )
