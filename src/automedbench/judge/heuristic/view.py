"""The evidence of one run as the heuristic judge's rules read it, and the verdicts that they give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from automedbench.judge.evidence import Evidence, clip, quote_exists, visible
from automedbench.judge.rubric import Vocabulary
from automedbench.judge.trace import Event, first_batch, read_trace
from automedbench.reading.code import Spot
from automedbench.reading.text import own_text


@dataclass(frozen=True)
class Verdict:
    """What a rule found: how much is earned, the line that shows it, and why."""

    value: float
    reason: str
    quote: str = ""
    turn: int | None = None


class View:
    """The evidence of one run, prepared once for all rules."""

    def __init__(self, evidence: Evidence, vocabulary: Vocabulary) -> None:
        self.evidence, self.vocabulary = evidence, vocabulary

    @cached_property
    def events(self) -> list[Event]:
        return read_trace(self.evidence.calls, self.vocabulary.outputs)

    @cached_property
    def plan(self) -> str:
        """The plan without lines that stand in the brief or address the judge."""
        return own_text(without_orders(self.evidence.plan or ""), self.evidence.brief)

    @cached_property
    def writings(self) -> list[tuple[int | None, str]]:
        """(turn, text) of everything the agent wrote in its own words."""
        notes = [
            (note.turn, own_text(without_orders(note.content), self.evidence.brief)) for note in self.evidence.notes
        ]
        return [(None, self.plan), *notes]

    @cached_property
    def before_batch(self) -> list[Event]:
        """Calls that ended well before the full run (all of them when there was none)."""
        batch = first_batch(self.events)
        return [event for event in self.events[:batch] if event.ok]

    def found(self, value: float, reason: str, event: Event, spot: Spot) -> Verdict:
        """A verdict that rests on a line of code; falls back to a line of the call that ran it."""
        quote = clip(spot.line)
        if quote_exists(self.evidence, quote, spot.turn):
            return Verdict(value, reason, quote, spot.turn)
        return Verdict(value, reason, code_line(event.call.code, spot.name), event.call.turn)


Judgement = Callable[[View], Verdict]
"""A rule: one criterion judged from the evidence."""


def code_line(code: str, name: str) -> str:
    """The line of ``code`` that shares most words with ``name``, long enough to be a quote."""
    words = set(name.split())
    lines = [clip(line) for line in code.split("\n") if len(visible(clip(line))) >= 4]
    return max(lines, key=lambda line: len(words & set(line.split())), default=clip(code))


def without_orders(text: str) -> str:
    """``text`` without the lines that hold a passage meant for the judge, or a part of one."""
    from automedbench.reading.injection import mask  # takes a while to load; most who read a trace judge nothing

    if not text.strip():
        return text
    masked = mask(text).split("\n")
    return "\n".join(line for line, shown in zip(text.split("\n"), masked, strict=True) if line == shown)
