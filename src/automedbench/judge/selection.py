"""Selection of the parts of a run that a judge is shown about one stage, so that they fit its window.

Every code call appears at least as a line of ours, in order, while there is room; the window is then spent on what the
stage rests on first. What does not fit is named, to the judge and in the record (``Shown.left_out``).

A quote counts when it stands word for word in one piece of what this judge was shown: not across a gap, not in what
was left out or masked, and not in lines that the agent copied from its brief.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Literal

from automedbench.base.records import CodeCall, Effect, JudgedStage, Message
from automedbench.judge.evidence import (
    MIN_QUOTE,
    PLOT_LINE,
    RunEvidence,
    escape_line_ends,
    fence,
    file_line,
    one_line,
    quote_readings,
    visible,
)
from automedbench.judge.links import WEIGHTS, Links, fact_lines, turn_ranges
from automedbench.judge.record import Event, History, last_line, read_history
from automedbench.judge.rubric import Rubric
from automedbench.reading.injection import MARK
from automedbench.reading.text import own_text

Where = Literal["brief", "plan", "note", "code", "stdout", "stderr", "files"]
_OPENS = PLOT_LINE.partition(" ")[2]
_MAX_READ = 2_000
"""Longer quotes are not looked up: undoing the marks of hidden characters could make gigabytes of them."""
_COMMENT = re.compile(r"\s*(?:#|//)")
_BULLET = re.compile(r"^\s*(?:[-*+•]|\(?\d{1,2}[.)])\s+")
_TELLS = re.compile(r"agents_outputs|\bw(?:rite|open)|save\w*\(|dump\(|to_csv|imwrite|\b(?:cp|mv|tee)\s|>\s*[\"'$\w./]")
"""A line of code that may write a file."""
_LONGEST_TELLING = 300
_WRAPPED = re.compile(r"^([\"'`“«]+)(.*?)([\"'`”»]+)$", re.DOTALL)


@dataclass(frozen=True)
class Passage:
    """One text of the agent or of its programs: consecutive pieces with gaps between. ``turn``: None for no turn."""

    where: Where
    label: str
    turn: int | None
    text: str
    spans: tuple[tuple[int, int], ...]
    """Beginning and end of each piece that is shown."""
    proves: bool = True
    """A quote from it counts: code that was refused proves nothing, for it never ran."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """What is shown."""
        return tuple(self.text[first:last] for first, last in self.spans)

    @property
    def n_left_out(self) -> int:
        """Characters that are not shown."""
        return len(self.text) - sum(last - first for first, last in self.spans)

    def rendered(self) -> str:
        """The pieces as data, each in a fence of its own, and what lies between them in our words."""
        if not self.spans:
            return f"({self.label}: {len(self.text):,} characters, not shown)"
        if len(self.spans) == 1 and not self.n_left_out:
            return fence(self.label, self.text)
        ends = [*(first for first, _ in self.spans[1:]), len(self.text)]
        gaps = [after - last for (_, last), after in zip(self.spans, ends, strict=True)]
        parts = []
        for number, (piece, gap) in enumerate(zip(self.pieces, gaps, strict=True), start=1):
            parts.append(fence(f"{self.label}, part {number} of {len(gaps)}", piece))
            parts += [f"({gap:,} characters left out)"] if gap else []
        return "\n".join(parts)


def cut_passage(where: Where, label: str, turn: int | None, text: str, head: int, tail: int = 0) -> Passage:
    """A passage with at most ``head`` characters of the beginning of ``text`` and ``tail`` of its end."""
    if len(text) <= head + tail:
        return Passage(where, label, turn, text, ((0, len(text)),))
    spans = ((0, head), (len(text) - tail, len(text)))
    return Passage(where, label, turn, text, tuple(span for span in spans if span[0] < span[1]))


def _cut_code(label: str, turn: int, code: str, room: int) -> Passage:
    """Code with beginning, end, and of the middle the lines that write outputs, in ``room`` characters."""
    if len(code) <= room:
        return cut_passage("code", label, turn, code, room)
    edge = room // 4
    told = _telling(code, edge, len(code) - edge, room - 2 * edge)
    spans: list[tuple[int, int]] = []
    for first, last in sorted([(0, edge), *told, (len(code) - edge, len(code))]):
        if spans and first <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(last, spans[-1][1]))
        else:
            spans.append((first, last))
    return Passage("code", label, turn, code, tuple(spans))


def _telling(code: str, first: int, last: int, room: int) -> Iterator[tuple[int, int]]:
    """Lines between two places that write outputs, in turn from the beginning and the end, until the room is used."""
    found, at = list[tuple[int, int]](), 0
    for line in code.splitlines(keepends=True):
        if first <= at and at + len(line) <= last and _TELLS.search(line) and not _COMMENT.match(line):
            found.append((at, at + min(len(line), _LONGEST_TELLING)))
        at += len(line)
    half = (len(found) + 1) // 2
    for pair in zip_longest(found[:half], reversed(found[half:])):
        for span in filter(None, pair):
            room -= span[1] - span[0]
            if room < 0:
                return
            yield span


@dataclass(frozen=True)
class Block:
    """Block of evidence: a heading of ours and the passages below it."""

    header: str
    passages: tuple[Passage, ...] = ()

    def rendered(self) -> str:
        """Text for the prompt."""
        return "\n".join([self.header, *(item.rendered() for item in self.passages)])


@dataclass(frozen=True)
class ShownEvidence:
    """Everything that a judge sees of one stage; ``left_out`` says what it does not see, empty when nothing."""

    stage: JudgedStage
    brief: Passage
    blocks: tuple[Block, ...]
    has_plot: bool
    n_cases: int
    left_out: str
    brief_text: str
    """The whole brief: lines copied from it prove nothing."""
    facts: tuple[str, ...] = ()
    """What the record says of the run, in our words."""
    links: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Criterion → turns of the calls that bear on it."""
    needed: int = 0
    """Tokens that the calls take at least that the stage rests on; more than ``spare``: they do not fit."""
    spare: int = 0

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

    def is_linked(self, criterion: str, found: Passage) -> bool:
        """The passage bears on the criterion: plan, notes and files do, and the calls that the record links to it."""
        return found.turn is None or found.where == "note" or found.turn in self.links.get(criterion, frozenset())

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
        own = set(own_text("\n".join(bare), self.brief_text).split("\n"))
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
        is_copied = not own_text(wanted, self.brief_text).strip()
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
    yield from quote_readings(quote)
    if found := _WRAPPED.match(quote.strip()):
        yield from quote_readings(found.group(2))


BYTES_PER_TOKEN = 3
"""Careful: English text has about four, code and numbers three."""
MIN_ROOM = 1_000

MUST, MAKERS = 3, 2
"""Calls per criterion, and calls that wrote the scripts of each, that must fit, shortened, or nothing is asked."""
ALIKE = 4
"""So many failed calls in a row with the same complaint become one line between the first and the last of them."""
MAX_NEEDED = 1_200
"""Tokens that one of them is counted with at most: an agent's odd texts shall not make a window too small."""
_BRIEF_SHARE, _PLAN_SHARE, _FILES_SHARE, _FOLD_SHARE = 0.2, 0.5, 0.1, 0.05


@dataclass(frozen=True)
class Detail:
    """Excerpt lengths of a call or note, in characters."""

    code: int
    head: int
    tail: int
    note: int


LINE = Detail(0, 0, 0, 0)
LEVELS = (
    LINE,
    Detail(1_500, 300, 1_200, 400),
    Detail(8_000, 2_000, 6_000, 3_000),
    Detail(1_000_000, 500_000, 500_000, 1_000_000),
)
_URGENCY = (0.0, 0.0, 0.5, 3.2)
"""What is added to an item's priority (0: most important) for each level, to give the order of upgrades."""


@dataclass(frozen=True)
class Item:
    """A call, a note, or failed calls that are alike, and its priority for the stage, 0 first; below 1 it must fit."""

    turn: int
    what: CodeCall | Message | tuple[CodeCall, ...]
    priority: float

    @property
    def calls(self) -> tuple[CodeCall, ...]:
        """Calls that it stands for."""
        if isinstance(self.what, Message):
            return ()
        return self.what if isinstance(self.what, tuple) else (self.what,)

    def block(self, level: int) -> Block | None:
        """The item as it is shown at a level; None: not at all."""
        if isinstance(self.what, CodeCall):
            return _call_block(self.what, LEVELS[level])
        if isinstance(self.what, tuple):
            turns = turn_ranges(call.turn for call in self.what)
            return Block(f"## Turns {turns}: {len(self.what)} more failed calls with the same complaint (not shown)")
        if level == 0 or not self.what.content.strip():
            return None
        text = cut_passage("note", f"note of turn {self.turn}", self.turn, self.what.content, LEVELS[level].note)
        return Block(f"## Turn {self.turn}: what the agent wrote", (text,))


def estimate_tokens(text: str) -> int:
    """A careful estimate of the tokens of ``text``."""
    return len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN + 1


def select(
    evidence: RunEvidence,
    rubric: Rubric,
    stage: JudgedStage,
    room: int,
    history: History | None = None,
    effect: Effect | None = None,
) -> ShownEvidence:
    """Select the evidence for a judge of ``stage``, within ``room`` tokens (at least 1 000, brief included).

    ``history``: ``read_history`` of this evidence, where it is known already. ``effect``: that of the case.
    """
    room = max(room, MIN_ROOM)
    history = read_history(evidence, rubric) if history is None else history
    links = Links(history)
    rules = [rule.id for rule in rubric.criteria if rule.stage == stage]
    facts = fact_lines(history, effect or Effect())
    brief = _fitted("brief", "what the agent was told", evidence.brief, room * _BRIEF_SHARE)
    blocks, notes = [], []
    if stage == "S1":
        plan = Block("## plan/plan.md: the run left none")
        if evidence.plan is not None:
            text = _fitted("plan", "plan/plan.md", evidence.plan, room * _PLAN_SHARE)
            plan = Block("## plan/plan.md as it was at the end", (text,))
        blocks.append(plan)
        notes += _shortened("plan/plan.md", plan.passages)
    files, n_listed = _files_block(evidence, stage, room * _FILES_SHARE)
    blocks.append(files)
    if n_listed < len(evidence.files):
        notes.append(f"{len(evidence.files) - n_listed:,} of {len(evidence.files):,} files of the list")
    left = room - estimate_tokens(brief.rendered()) - sum(estimate_tokens(block.rendered()) for block in blocks)
    left -= estimate_tokens("\n".join(facts))
    left = int(left * (1 - _FOLD_SHARE))
    items = _items(evidence, links, rules, stage)
    levels = _spend(items, left)
    shown = list(_folded(items, levels))
    notes += _left_out(items, levels)
    notes += _shortened("the brief", (brief,))
    return ShownEvidence(
        stage=stage,
        brief=brief,
        blocks=(*blocks, *shown),
        has_plot=evidence.has_plot,
        n_cases=evidence.n_cases,
        left_out="; ".join(notes),
        brief_text=evidence.brief,
        facts=facts,
        links={rule: links.turns(rule) for rule in rules},
        needed=sum(min(_cost(item, 1), MAX_NEEDED) for item in items if item.priority < 1),
        spare=left,
    )


# --- plan, files ------------------------------------------------------------------------------------------------


def _fitted(where: Where, label: str, text: str, room: float) -> Passage:
    """Truncate a text in the middle to ``room`` tokens, beginning to end two to one."""
    size = int(room * BYTES_PER_TOKEN)
    while True:
        head, tail = size * 2 // 3, size // 3
        found = cut_passage(where, label, None, text, head, tail)
        if estimate_tokens(found.rendered()) <= room or size < 300:
            return found
        size = size * 4 // 5


def _files_block(evidence: RunEvidence, stage: JudgedStage, room: float) -> tuple[Block, int]:
    """The list of files, those that matter to the stage first, and how many of them are in it."""
    ours = PLOT_LINE if evidence.has_plot else "plan/plan.png is missing or does not open as a picture"
    matters = _FILE_ORDER[stage]
    ordered = sorted(evidence.files.items(), key=lambda entry: (not matters(*entry), entry[0]))
    lines: list[str] = []
    used = 0
    for path, size in ordered:
        line = file_line(path, size)
        used += estimate_tokens(line) + 1
        if used > room:
            break
        lines.append(line)
    text = "\n".join(lines)
    found = cut_passage("files", "files of the workspace", None, text, len(text))
    count = f"{len(lines):,} of {len(evidence.files):,} files"
    return Block(f"## Workspace at the end: {count}\n{ours}", (found,) if lines else ()), len(lines)


_FILE_ORDER: dict[JudgedStage, Callable[[str, int], bool]] = {
    "S1": lambda path, size: path.startswith("plan/"),
    "S2": lambda path, size: bool(WEIGHTS.search(path)) or size >= 1_000_000,
    "S3": lambda path, size: "agents_outputs/" in path,
}


# --- calls and notes --------------------------------------------------------------------------------------------


def _call_block(call: CodeCall, detail: Detail) -> Block:
    header = f"## Turn {call.turn}, call {call.call}: {call.language}, {_ending(call)}, {call.elapsed_s:.1f} s"
    if detail is LINE:
        sizes = f"code {len(call.code):,}, output {len(call.stdout):,}, errors {len(call.stderr):,} characters"
        return Block(f"{header} (not shown: {sizes}; {len(call.new_files)} files created or changed)")
    name = f"turn {call.turn}, call {call.call}"
    code = _cut_code(f"{name}: code", call.turn, call.code, detail.code)
    texts = [replace(code, proves=call.status != "refused")]
    streams: tuple[tuple[Where, str], ...] = (("stdout", call.stdout), ("stderr", call.stderr))
    texts += [
        cut_passage(where, f"{name}: {where}", call.turn, text, detail.head, detail.tail)
        for where, text in streams
        if text.strip()
    ]
    if call.new_files:
        files = "\n".join(map(escape_line_ends, call.new_files))
        label = f"{name}: files created or changed"
        texts.append(cut_passage("files", label, call.turn, files, detail.head + detail.tail))
    return Block(header, tuple(texts))


def _ending(call: CodeCall) -> str:
    if call.status == "refused":
        return "refused: this code was never run"
    return f"{call.status}, exit code {'none' if call.exit_code is None else call.exit_code}"


def _folded(items: Sequence[Item], levels: Sequence[int]) -> Iterator[Block]:
    """Lines of the items; consecutive calls without a line of their own become one line."""
    for hidden, run in groupby(zip(items, levels, strict=True), key=lambda pair: pair[1] < 0):
        if not hidden:
            yield from (block for item, level in run if (block := item.block(level)))
            continue
        calls = [call for item, _ in run for call in item.calls]
        if calls:
            failed = sum(call.status != "ok" for call in calls)
            files = sum(len(call.new_files) for call in calls)
            turns = turn_ranges(call.turn for call in calls)
            yield Block(f"## Turns {turns}: {len(calls)} calls, {failed} failed, {files} files (not shown)")


def _items(evidence: RunEvidence, links: Links, rules: Sequence[str], stage: JudgedStage) -> list[Item]:
    """Calls and notes in order: the note of a turn stands before its calls.

    Priority below 1: the first calls that each criterion rests on, in their order, with the calls that wrote their
    scripts; 1: all others that bear on one; 2: up to the full run, and what failed; 3: what follows.
    """
    events = links.events
    batch = links.history.batch if links.history.batch is not None else len(events)
    first = [index for rule in rules for index in links.of(rule)[:MUST]]
    resting = list(dict.fromkeys(each for index in first for each in (index, *links.makers[index][:MAKERS])))
    bearing = {index for rule in rules for index in links.of(rule)}
    scripts = {maker for index in bearing for maker in links.makers[index]}

    def priority(index: int) -> float:
        if index in resting:
            return resting.index(index) / len(resting)
        return 1 if index in bearing | scripts else 2 if index <= batch or events[index].failed else 3

    calls = [Item(event.call.turn, event.call, priority(index)) for index, event in enumerate(events)]
    series = list(_alike(events, {*resting, *scripts}))
    folded = {index for found in series for index in found}
    calls = [item for index, item in enumerate(calls) if index not in folded]
    calls += [Item(found[0].turn, found, 1) for found in (tuple(events[i].call for i in each) for each in series)]
    last = events[batch].call.turn if batch < len(events) else None
    early = {"S1": 0, "S2": 2, "S3": 3}[stage]
    notes = [Item(note.turn, note, early if last is None or note.turn <= last else 4) for note in evidence.notes]
    return sorted([*notes, *calls], key=lambda item: (item.turn, not isinstance(item.what, Message)))


def _alike(events: Sequence[Event], kept: Set[int]) -> Iterator[list[int]]:
    """Failed calls in a row that left no outputs and complain of the same, without the first and the last of them."""
    for complaint, found in groupby(range(len(events)), key=lambda i: None if i in kept else _complaint(events[i])):
        indexes = list(found)
        if complaint is not None and len(indexes) >= ALIKE:
            yield indexes[1:-1]


def _complaint(event: Event) -> tuple[str, str] | None:
    """Ending and last line of a failed call, numbers apart; None for any other."""
    if not event.failed or event.cases:
        return None
    return event.call.status, re.sub(r"\d+", "#", last_line(event.call.stderr) or last_line(event.call.stdout))


# --- spending the window ----------------------------------------------------------------------------------------


def _spend(items: Sequence[Item], room: float) -> list[int]:
    """The level of each item; -1: not even a line."""
    costs = [[_cost(item, level) for level in range(len(LEVELS))] for item in items]
    levels = [-1] * len(items)
    left = room
    for _, level, index in sorted((_turn(item, level), level, i) for i, item in enumerate(items) for level in range(4)):
        more = costs[index][level] - (costs[index][levels[index]] if level else 0)
        if levels[index] == level - 1 and more <= left:
            levels[index] = level
            left -= more
    return levels


def _turn(item: Item, level: int) -> tuple[int, float, float]:
    """Order of showing: what must fit, shortened; then a line of each other item; then more of all."""
    if item.priority < 1 and level <= 1:
        return 0, item.priority, level
    return (1, item.priority, 0) if level == 0 else (2, item.priority // 1 + _URGENCY[level], item.priority)


def _cost(item: Item, level: int) -> int:
    block = item.block(level)
    return estimate_tokens(block.rendered()) + 2 if block else 0


def _left_out(items: Sequence[Item], levels: Sequence[int]) -> list[str]:
    """Summary of the items left out, reduced to a line, or shortened."""
    pairs = list(zip(items, levels, strict=True))
    found = []
    calls = [(call.turn, _state(item, level)) for item, level in pairs for call in item.calls]
    notes = [(item.turn, _state(item, level)) for item, level in pairs if isinstance(item.what, Message)]
    for name, states in (("calls", calls), ("notes", notes)):
        for state in ("left out", "shortened"):
            turns = [turn for turn, known in states if known == state]
            if turns:
                words = "" if state == "left out" else "shortened: "
                found.append(f"{words}{len(turns)} of {len(states)} {name}: turns {turn_ranges(turns)}")
    return found


def _state(item: Item, level: int) -> str:
    if level <= 0 or isinstance(item.what, tuple):
        return "shown" if isinstance(item.what, Message) and not item.what.content.strip() else "left out"
    block = item.block(level)
    return "shown" if block is None or not any(text.n_left_out for text in block.passages) else "shortened"


def _shortened(name: str, passages: Iterable[Passage]) -> list[str]:
    return [f"{text.n_left_out:,} of {len(text.text):,} characters of {name}" for text in passages if text.n_left_out]
