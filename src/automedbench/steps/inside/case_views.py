"""Case views: which cases of a run are shown on its page, and what is shown of them (``case_views.json``).

Runs in the scorer role after the scores are written. Nothing here can fail a scoring: a case that cannot be drawn gets
a note, and the scores never depend on a picture.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from automedbench.base.records import CaseScore, CaseSubmission, DetailReport
from automedbench.base.views import CaseView, CaseViews, Frame, ViewText
from automedbench.tracks import Drawing, ScoringInputs, get_track, no_picture
from automedbench.tracks.common.pictures import MAX_CASE_CHARS

MAX_PROBLEMS = 5
MAX_WHY, MAX_TEXT = 100, 20_000
OF_EVERY_RUN = "shown of every run"
SHARED_PART = 3
"""One case in so many is the same for all runs, so that agents can be seen beside each other."""
NO_VIEWS = "No case is shown: the campaign's case_views or the data set's access does not allow it."


@dataclass(frozen=True)
class Choice:
    """A case to show, and why this one."""

    case: CaseScore
    why: str


def no_views(report: DetailReport, note: str = NO_VIEWS) -> CaseViews:
    """The record of a run whose cases are not shown; holds nothing of any case."""
    return CaseViews(run=report.run, n_cases=len(report.cases), cases=[], note=note)


def draw_views(inputs: ScoringInputs, report: DetailReport, limit: int) -> CaseViews:
    """Draw up to ``limit`` cases of a scored run with their pictures and answers; 0 draws none."""
    if limit <= 0:
        return no_views(report)
    choices = choose_cases(report.cases, get_track(report.track).metric_of_cases, limit)
    return CaseViews(
        run=report.run,
        n_cases=len(report.cases),
        cases=[_view(inputs, choice) for choice in choices],
        note="" if len(choices) == len(report.cases) else f"{len(choices)} of {len(report.cases)} cases are shown.",
    )


# --- which cases ----------------------------------------------------------------------------------------------


def choose_cases(cases: Sequence[CaseScore], metric: str, limit: int) -> list[Choice]:
    """The task's first cases, which every run shows; then from the worst to the best, evenly by rank; then faulty ones.

    Of those the first malformed and the first missing one. The same cases for the same scores; ties go by the order of
    the cases. What is left is filled up with further cases that were handed in.
    """
    shared = [Choice(case, OF_EVERY_RUN) for case in cases[: limit // SHARED_PART]]
    others = cases[len(shared) :]
    seen, limit = {choice.case.status for choice in shared}, limit - len(shared)
    faulty = [each for each in _first_faulty(others, limit // 2 if limit > 1 else 0) if each.case.status not in seen]
    known = [case for case in cases if case.status == "valid" and case.metrics.get(metric) is not None]
    ranked = sorted(known, key=lambda case: case.metrics[metric] or 0.0)
    there = {choice.case.case for choice in shared}
    places = [place for place, case in enumerate(ranked) if case.case not in there]
    spaced = [places[number] for number in spread(len(places), limit - len(faulty))]
    chosen = [Choice(ranked[place], _why(place, ranked, metric)) for place in spaced]
    taken = {choice.case.case for choice in [*chosen, *faulty]}
    rest = [Choice(case, case.status) for case in others if case.status != "missing" and case.case not in taken]
    return [*shared, *chosen, *faulty, *rest[: limit - len(chosen) - len(faulty)]]


def spread(n: int, count: int) -> list[int]:
    """Choose up to ``count`` indices of 0 … n - 1, evenly spaced, both ends included."""
    if count >= n:
        return list(range(n))
    if count == 1:
        return [0]
    return [round(number * (n - 1) / (count - 1)) for number in range(count)]


def _first_faulty(cases: Sequence[CaseScore], room: int) -> list[Choice]:
    found = []
    for status in ("malformed", "missing"):
        faulty = [case for case in cases if case.status == status]
        if faulty:
            found.append(Choice(faulty[0], f"first of {len(faulty)} {status}" if len(faulty) > 1 else f"{status}"))
    return found[:room]


def _why(place: int, ranked: Sequence[CaseScore], metric: str) -> str:
    n, value = len(ranked), ranked[place].metrics[metric]
    alike = sum(case.metrics[metric] == value for case in ranked)
    if n == 1 or alike > 1:
        why = f"{metric} {value:.3g}" + (f", like {alike} of {n}" if alike > 1 else "")
    elif place in (0, n - 1):
        why = f"{'lowest' if place == 0 else 'highest'} {metric} of {n}"
    else:
        why = f"{metric}: {place + 1} of {n} from below"
    return why[:MAX_WHY]


# --- what of them ---------------------------------------------------------------------------------------------


def _view(inputs: ScoringInputs, choice: Choice) -> CaseView:
    case = choice.case
    verdict = next((each for each in inputs.checked.cases if each.case == case.case), None)
    drawing = _draw(inputs, case)
    texts = [text.model_copy(update={"text": text.text[:MAX_TEXT]}) for text in drawing.texts]
    return CaseView(
        case=case.case,
        status=case.status,
        why=choice.why,
        frames=within(drawing.frames, MAX_CASE_CHARS),
        texts=[*texts, *_problems(verdict)],
        legend=drawing.legend,
        metrics=case.metrics,
    )


def _draw(inputs: ScoringInputs, case: CaseScore) -> Drawing:
    try:
        return get_track(inputs.card.track).show(inputs, case)
    except Exception as error:  # any fault: pictures never fail a scoring
        logging.getLogger(__name__).warning("%s could not be drawn: %s: %s", case.case, type(error).__name__, error)
        return no_picture(f"This case could not be drawn ({type(error).__name__}); the log of score_metrics says why.")


def _problems(verdict: CaseSubmission | None) -> list[ViewText]:
    """Messages of the format check about an invalid case."""
    if verdict is None or verdict.status == "valid":
        return []
    lines = [f"{problem.code}: {problem.message}" for problem in verdict.problems[:MAX_PROBLEMS]]
    text = "\n".join(lines) or "The output does not exist."
    return [ViewText(side="prediction", title=f"Why it is {verdict.status}", text=text[:MAX_TEXT])]


def within(frames: list[Frame], room: int) -> list[Frame]:
    """The frames, or so many of them, evenly, that their pictures fit into ``room`` characters."""
    for count in range(len(frames), 0, -1):
        kept = [frames[place] for place in spread(len(frames), count)]
        if sum(len(layer.picture) for frame in kept for layer in frame.layers) <= room:
            return kept
    return []
