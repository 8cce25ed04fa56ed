"""Rules of the heuristic judge for stage S1: the plan and its drawing."""

from __future__ import annotations

import re

from automedbench.judge.evidence import PLOT_LINE, clip, visible
from automedbench.judge.heuristic.view import Verdict, View
from automedbench.judge.trace import Event
from automedbench.reading.candidates import Candidate, candidates_in
from automedbench.reading.code import Spot
from automedbench.reading.text import find_word, line_at, paragraphs, pieces, sentences

MIN_PLAN_CHARS = 200
MIN_PLAN_WORDS = 15
MIN_PROSE = 0.08
"""Share of words such as "the", "with", "to": catchwords in a row have none, notes in bullets have more than this."""
MIN_PLOT_BYTES = 1_000
MIN_CANDIDATES = 3

_JOINING = frozenset(
    "a an the and or of to in on at by for with from as is are be was were will would can cannot then than that this "  # noqa: SIM905
    "it its i we my our not no but because so if which what when where how only into out over has have until since "
    "while there here".split()
)
_DRAWING_PROGRAMS = frozenset(["dot", "neato", "mmdc", "plantuml", "d2"])
_ARROWS = re.compile(r"→|⟶|➜|-+>|=>")
_SHAPES = re.compile(r"<(?:rect|text|path|line|circle|ellipse|polygon)\b")
_MAX_DRAWN_TEXT = 300


def plan_written(view: View) -> Verdict:
    """A plan of its own of 200 characters and 15 different words (track-vqa.md E.2), in sentences, not catchwords."""
    if view.evidence.plan is None:
        return Verdict(0, "there is no plan/plan.md")
    words = re.findall(r"[^\W\d_]{2,}", view.plan.casefold())
    size, different = len(_shown(view.plan)), len(set(words))
    if size < MIN_PLAN_CHARS or different < MIN_PLAN_WORDS:
        needed = f"({MIN_PLAN_CHARS} and {MIN_PLAN_WORDS} needed)"
        return Verdict(0, f"{size} characters and {different} different words of its own {needed}")
    if not _is_prose(words):
        return Verdict(0, "catchwords in a row, no sentences")
    lines = [line for line in view.plan.split("\n") if visible(line)]
    line = next((line for line in lines if len(visible(line)) >= 10), lines[0])
    return Verdict(1, f"a plan of {size} characters", clip(line))


def _is_prose(words: list[str]) -> bool:
    return sum(word in _JOINING for word in words) >= MIN_PROSE * len(words)


def _shown(text: str) -> str:
    """The visible words of a text with one blank between them."""
    return " ".join(part for part in map(visible, text.split()) if part)


# --- the pipeline -------------------------------------------------------------------------------------------------


def pipeline_described(view: View) -> Verdict:
    """At least three of preprocessing, model, inference and export, each in a step of its own."""
    words = view.vocabulary
    named = [spelling for spellings in words.candidates.values() for spelling in spellings]
    groups = {
        "preprocessing": words.preprocessing,
        "model": [*words.model, *words.method, *words.not_method, *named],
        "inference": words.inference,
        "export": words.export,
    }
    matched = _match_steps(list(dict.fromkeys(pieces(view.plan))), list(groups.values()))
    if len(matched) < 3:
        return Verdict(0, f"{len(matched)} of the 4 parts of a pipeline have a step in the plan (3 needed)")
    found = [name for number, name in enumerate(groups) if number in matched]
    return Verdict(1, f"steps for {', '.join(found)}", max(map(clip, matched.values()), key=len))


def _match_steps(steps: list[str], groups: list[list[str]]) -> dict[int, str]:
    """Largest assignment of different steps to groups (augmenting paths); group number → step."""
    options = [[i for i, step in enumerate(steps) if find_word(step, words)] for words in groups]
    taken: dict[int, int] = {}
    for group in range(len(groups)):
        _assign(group, options, taken, set())
    return {group: steps[step] for step, group in sorted(taken.items(), key=lambda item: item[1])}


def _assign(group: int, options: list[list[int]], taken: dict[int, int], tried: set[int]) -> bool:
    for step in options[group]:
        if step in tried:
            continue
        tried.add(step)
        if step not in taken or _assign(taken[step], options, taken, tried):
            taken[step] = group
            return True
    return False


# --- the method ---------------------------------------------------------------------------------------------------


def method_fits(view: View) -> Verdict:
    """What the plan settles on can solve the task: behind a word of decision, in its line, where the method is
    described, or, in a plan that decides nowhere, what it names first."""
    words = view.vocabulary
    decisions = _decisions(view)
    whole = [(view.plan, 0)] if _is_prose(re.findall(r"[^\W\d_]{2,}", view.plan.casefold())) else []
    lines = [(line_at(view.plan, view.plan.find(sentence)), 0) for sentence, end in decisions if _ends(sentence[end:])]
    for places in (decisions, lines, _approaches(view), whole):
        if found := _first_hit(places, words.method):
            hit, line = found
            return Verdict(1, f"chosen method: {hit.group()}", clip(line))
        if found := _first_hit(places, words.not_method):
            return Verdict(0, f"the choice is a method for another question: {found[0].group()}")
    return Verdict(0, "the plan does not name a fitting method as its choice")


def _ends(rest: str) -> bool:
    """Nothing stands behind the word of decision: what was chosen stands before it."""
    return not re.search(r"\w", rest)


def _decisions(view: View) -> list[tuple[str, int]]:
    """Sentences with a word of decision, and where it ends: what was chosen stands behind it."""
    hits = ((sentence, find_word(sentence, view.vocabulary.choice)) for sentence in sentences(view.plan))
    return [(sentence, hit.end()) for sentence, hit in hits if hit]


def _approaches(view: View) -> list[tuple[str, int]]:
    """Paragraphs about the method."""
    return [(text, 0) for text in paragraphs(view.plan) if find_word(text, view.vocabulary.approach)]


def _first_hit(places: list[tuple[str, int]], words: list[str]) -> tuple[re.Match[str], str] | None:
    hits = ((find_word(text, words, start), text) for text, start in places)
    return next(((hit, line_at(text, hit.start())) for hit, text in hits if hit), None)


def three_candidates(view: View) -> Verdict:
    """Three different methods or repositories, each with a word for or against it, in the plan or in notes."""
    weighed: dict[str, tuple[int | None, Candidate]] = {}
    named: set[str] = set()
    for turn, text in view.writings:
        for candidate in candidates_in(text, view.vocabulary.candidates):
            named.add(candidate.name)
            if candidate.weighed:
                weighed.setdefault(candidate.name, (turn, candidate))
    if len(weighed) < MIN_CANDIDATES:
        shown = ", ".join(sorted(named)[:6]) or "none"
        return Verdict(0, f"{len(weighed)} candidates weighed ({MIN_CANDIDATES} needed); named: {shown}")
    turn, first = next(iter(weighed.values()))
    return Verdict(1, f"candidates weighed: {', '.join(sorted(weighed)[:6])}", clip(first.line), turn)


# --- the drawing --------------------------------------------------------------------------------------------------


def plot_exists(view: View) -> Verdict:
    """plan/plan.png opens as a picture (found out by the driver)."""
    if not view.evidence.has_plot:
        return Verdict(0, "plan/plan.png is missing or does not open")
    return Verdict(1, "plan/plan.png opens", PLOT_LINE)


def plot_shows_pipeline(view: View) -> Verdict:
    """The picture is not tiny, and code that made it draws texts, boxes or arrows, or is a drawing program."""
    size = view.evidence.files.get("plan/plan.png", 0)
    if not view.evidence.has_plot or size < MIN_PLOT_BYTES:
        return Verdict(0, f"plan/plan.png has {size} bytes ({MIN_PLOT_BYTES} needed)")
    for event in view.events:
        saves = any("plan.png" in path for path in event.call.new_files)
        drawn = _drawn(event, view.vocabulary.drawing) if event.ok and saves else None
        if drawn is not None:
            return view.found(1, "drawn by code; what it shows is not verified", event, drawn)
    return Verdict(0, "no code that ran draws text, boxes or arrows")


def _drawn(event: Event, words: list[str]) -> Spot | None:
    """Two calls that draw, a text with two arrows or shapes in it, or a program that draws graphs."""
    drawing = frozenset(words)
    calls = [spot for spot in event.facts.calls if spot.is_a(drawing)]
    texts = [spot for spot in event.facts.strings if _draws_arrows(spot.name)]
    shapes = [spot for spot in event.facts.strings for _ in _SHAPES.findall(spot.name)]
    programs = [spot for spot in event.facts.commands if spot.name.split()[0] in _DRAWING_PROGRAMS]
    first = [found[0] for found in (calls, shapes) if len(found) >= 2]
    return next(iter([*first, *programs, *texts]), None)


def _draws_arrows(text: str) -> bool:
    """A short text with several arrows; a long one may be the plan itself."""
    return len(text) <= _MAX_DRAWN_TEXT and len(_ARROWS.findall(text)) >= 2
