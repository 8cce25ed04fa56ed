"""Under which conditions runs were scored, and which of these differ so much that scores should not be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from automedbench.base.records import ScoreRecord
from automedbench.leaderboard.entries import Entry, cell_of, group_by

Condition = Literal["sandbox", "judge", "task version", "cases", "rubric version"]


def sandbox_class(score: ScoreRecord) -> str:
    """What isolated the run, for example ``apptainer/sealed``."""
    return f"{score.enforced.backend}/{score.enforced.network}"


def judge_class(score: ScoreRecord) -> str:
    """Who judged the run, for example ``heuristic (heuristic-1)``."""
    return f"{score.recipe.judge_kind} ({score.recipe.judge})"


CONDITIONS: dict[Condition, Callable[[ScoreRecord], object]] = {
    "sandbox": sandbox_class,
    "judge": judge_class,
    "task version": lambda score: (score.recipe.task_version, score.recipe.track_version),
    "cases": lambda score: score.recipe.cases_sha256,
    "rubric version": lambda score: score.recipe.rubric_version,
}
ACROSS: tuple[Condition, ...] = ("sandbox", "judge")
"""Must be the same for all runs; the others for all runs of a task."""


def what_differs(scores: Iterable[ScoreRecord]) -> list[str]:
    """Conditions that are not the same for all these runs, so that their scores should not be compared silently."""
    by_task = [_found(group) for group in group_by(scores, lambda score: score.run.task).values()]
    across = [name for name in ACROSS if len(set().union(*(found[name] for found in by_task))) > 1]
    within = [name for name in CONDITIONS if name not in ACROSS and any(len(found[name]) > 1 for found in by_task)]
    return [*across, *within]


def _found(scores: Iterable[ScoreRecord]) -> dict[Condition, set[object]]:
    """Condition → all that it was."""
    runs = list(scores)
    return {name: set(map(of_score, runs)) for name, of_score in CONDITIONS.items()}


def unequal_coverage(entries: Iterable[Entry]) -> bool:
    """Agents are planned on different cells, so that their means rest on different tasks or tiers."""
    agents = group_by(entries, lambda entry: entry.run.agent).values()
    return len({frozenset(map(cell_of, group)) for group in agents}) > 1
