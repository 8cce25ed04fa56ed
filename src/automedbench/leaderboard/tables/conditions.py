"""Under which conditions runs were scored, and which of these differ so much that scores should not be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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

Found = Mapping[Condition, frozenset[object]]


def what_differs(scores: Sequence[ScoreRecord]) -> list[str]:
    """Conditions that are not the same for all these runs, so that their scores should not be compared silently."""
    tasks = group_by(scores, lambda score: score.run.task)
    return differences(
        {
            task: [{name: frozenset(map(of_score, group)) for name, of_score in CONDITIONS.items()}]
            for task, group in tasks.items()
        }
    )


def differences(found: Mapping[str, Iterable[Found]]) -> list[str]:
    """The same, from what was found in parts of each task (task → parts)."""
    tasks = {task: list(parts) for task, parts in found.items()}
    everything = [part for parts in tasks.values() for part in parts]
    across = [name for name in ACROSS if len(union(everything, name)) > 1]
    within = [
        name
        for name in CONDITIONS
        if name not in ACROSS and any(len(union(parts, name)) > 1 for parts in tasks.values())
    ]
    return [*across, *within]


def union(parts: Iterable[Found], name: Condition) -> frozenset[object]:
    """All that a condition was."""
    return frozenset().union(*(part[name] for part in parts))


def unequal_coverage(entries: Iterable[Entry]) -> bool:
    """Agents are planned on different cells, so that their means rest on different tasks or tiers."""
    agents = group_by(entries, lambda entry: entry.run.agent).values()
    return len({frozenset(map(cell_of, group)) for group in agents}) > 1
