"""The pieces of a run that a judge is shown, and whether a quote stands in them.

A quote counts when it stands word for word in one piece of what this judge was shown: not across a gap, not in what
was left out or masked, and not in lines that the agent copied from its brief.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Literal

from automedbench.base.records import JudgedStage
from automedbench.judge.evidence import MIN_QUOTE, PLOT_LINE, one_line, visible
from automedbench.judge.fencing import fence, readings
from automedbench.reading.injection import MARK
from automedbench.reading.text import own_text

Where = Literal["brief", "plan", "note", "code", "stdout", "stderr", "files"]
_OPENS = PLOT_LINE.partition(" ")[2]
_MAX_READ = 2_000
"""Longer quotes are not looked up: undoing the marks of hidden characters could make gigabytes of them."""
_COMMENT = re.compile(r"\s*(?:#|//)")
_BULLET = re.compile(r"^\s*(?:[-*+•]|\(?\d{1,2}[.)])\s+")
_WRAPPED = re.compile(r"^([\"'`“«]+)(.*?)([\"'`”»]+)$", re.DOTALL)


@dataclass(frozen=True)
class Passage:
    """One text of the agent or of its programs: consecutive pieces with gaps between. ``turn``: None for no turn."""

    where: Where
    label: str
    turn: int | None
    pieces: tuple[str, ...]
    total: int
    """Characters of the whole text."""
    proves: bool = True
    """A quote from it counts: code that was refused proves nothing, for it never ran."""

    @property
    def is_whole(self) -> bool:
        """Nothing of the text is left out."""
        return len(self.pieces) == 1 and len(self.pieces[0]) == self.total

    def rendered(self) -> str:
        """The pieces as data, each in a fence of its own, and what lies between them in our words."""
        if not self.pieces:
            return f"({self.label}: {self.total:,} characters, not shown)"
        gap = self.total - sum(map(len, self.pieces))
        if len(self.pieces) == 2:
            first, last = self.pieces
            beginning, end = fence(f"{self.label}, beginning", first), fence(f"{self.label}, end", last)
            return f"{beginning}\n({gap:,} characters left out)\n{end}"
        rest = f"\n({gap:,} characters left out)" if gap else ""
        return fence(self.label, self.pieces[0]) + rest


def passage(where: Where, label: str, turn: int | None, text: str, head: int, tail: int = 0) -> Passage:
    """A passage with at most ``head`` characters of the beginning of ``text`` and ``tail`` of its end."""
    if len(text) <= head + tail:
        pieces: tuple[str, ...] = (text,)
    else:
        pieces = tuple(piece for piece in (text[:head], text[len(text) - tail :]) if piece)
    return Passage(where, label, turn, pieces, len(text))


@dataclass(frozen=True)
class Block:
    """What is shown together: a line of ours and the passages below it."""

    header: str
    passages: tuple[Passage, ...] = ()

    def rendered(self) -> str:
        """Text for the prompt."""
        return "\n".join([self.header, *(item.rendered() for item in self.passages)])


@dataclass(frozen=True)
class Shown:
    """Everything that a judge sees of one stage; ``left_out`` says what it does not see, empty when nothing."""

    stage: JudgedStage
    brief: Passage
    blocks: tuple[Block, ...]
    has_plot: bool
    n_cases: int | None
    left_out: str
    told: str
    """The whole brief: lines copied from it prove nothing."""

    @cached_property
    def _quotable(self) -> list[tuple[Passage, tuple[str, ...]]]:
        return [
            (item, tuple(one_line(part) for piece in item.pieces for part in self._own(item, piece)))
            for block in self.blocks
            for item in block.passages
            if item.proves
        ]

    def find_quote(self, quote: str, turn: int | None) -> Passage | None:
        """The passage that holds ``quote``, of ``turn`` if given or of no turn; None where it proves nothing.

        White space counts as one blank; the marks of the prompt (``| `` before lines, shown hidden characters) and
        quotation marks around the whole are taken off.
        """
        return next((found for text in _meanings(quote) if (found := self._find(text, turn))), None)

    def shows_plot(self, quote: str) -> bool:
        """The quote is our own line that says that the picture opens, which proves something about a plan only."""
        if self.stage != "S1" or not self.has_plot:
            return False
        return any(_OPENS in text and text in PLOT_LINE for text in map(one_line, _meanings(quote)))

    def _is_deed(self, item: Passage) -> bool:
        """Files and executed code count also where they follow the brief; a plan that code writes does not."""
        return item.where == "files" or (item.where == "code" and self.stage != "S1")

    def _own(self, item: Passage, text: str) -> list[str]:
        """``text`` cut at what is masked or copied from the brief; of what was done only comments are taken away."""
        lines = text.split("\n")
        bare = [_BULLET.sub("", line) for line in lines]
        own = set(own_text("\n".join(bare), self.told).split("\n"))
        kept = self._is_deed(item)
        is_own = (word in own or (kept and not _COMMENT.match(line)) for line, word in zip(lines, bare, strict=True))
        runs = groupby(zip(lines, is_own, strict=True), key=itemgetter(1))
        return [part for mine, run in runs if mine for part in "\n".join(line for line, _ in run).split(MARK)]

    def _find(self, text: str, turn: int | None) -> Passage | None:
        wanted = one_line(text)
        if len(visible(wanted)) < MIN_QUOTE:
            return None
        if not self.has_plot and _OPENS in wanted:
            return None  # our own words, which the name of a file may imitate
        is_copied = not own_text(wanted, self.told).strip()
        for item, texts in self._quotable:
            if item.turn is not None and turn is not None and item.turn != turn:
                continue
            if is_copied and not self._is_deed(item):
                continue
            if any(wanted in known for known in texts):
                return item
        return None


def _meanings(quote: str) -> Iterator[str]:
    if len(quote) > _MAX_READ:
        return
    yield from readings(quote)
    if found := _WRAPPED.match(quote.strip()):
        yield from readings(found.group(2))
