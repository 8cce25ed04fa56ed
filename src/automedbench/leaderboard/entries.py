"""Planned runs with their scores, and what a score says. Pure: reads and writes no file.

Scores are in [0, 1]. Nothing is imputed: a run without a score is in no mean. How they are pooled: ``tables.cells``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import TypeVar

import numpy as np

from automedbench.base.effects import cap_stages
from automedbench.base.records import JudgedStage, RunId, ScoreRecord
from automedbench.leaderboard.conditions import RecordedConditions, read_conditions, signature
from automedbench.scoring.run import agentic
from automedbench.statistics.samples import Sample

JUDGED: tuple[JudgedStage, ...] = ("S1", "S2", "S3")
ItemT = TypeVar("ItemT")
KeyT = TypeVar("KeyT")


@dataclass(frozen=True)
class BoardEntry:
    """One planned run and its score, if it has one.

    ``outdated``: conditions under which it was not made or scored as the campaign asks now. ``other_judge``: it was
    judged otherwise than the preset's published rows.
    """

    run: RunId
    track: str
    score: ScoreRecord | None
    outdated: tuple[str, ...] = ()
    other_judge: bool = False

    @cached_property
    def conditions(self) -> RecordedConditions | None:
        """What its score depends on; None without one."""
        return read_conditions(self.score) if self.score else None

    @property
    def signature(self) -> str:
        """Signature of the run alone; empty without a score."""
        return signature([self.conditions] if self.conditions else [])


def match_scores(
    planned: Iterable[RunId], scores: Iterable[ScoreRecord], tracks: Mapping[str, str]
) -> list[BoardEntry]:
    """Match scores to planned runs; ``tracks`` (task → track) serves tasks that have no score yet."""
    found = {score.run.path: score for score in scores}
    known = dict(tracks) | {score.run.task: score.track for score in found.values()}
    return [BoardEntry(run, known.get(run.task, "unknown"), found.get(run.path)) for run in planned]


def list_scores(entries: Iterable[BoardEntry]) -> list[ScoreRecord]:
    """The scores that exist."""
    return [entry.score for entry in entries if entry.score is not None]


def entry_cell(entry: BoardEntry) -> tuple[str, str]:
    """Task and tier."""
    return entry.run.task, entry.run.tier


def group_by(items: Iterable[ItemT], key: Callable[[ItemT], KeyT]) -> dict[KeyT, list[ItemT]]:
    """Items by key; keys in order of first appearance."""
    groups: dict[KeyT, list[ItemT]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def score_value(score: ScoreRecord, name: str) -> float:
    """One of a run's scores; 0 when it was disqualified."""
    value: float = 0.0 if score.disqualified else getattr(score.scores, name)
    return value


def has_failed(score: ScoreRecord) -> bool:
    """Return whether the run lacks a complete final submission; a disqualified run does."""
    return score.failed or score.disqualified


def has_medal(score: ScoreRecord) -> bool:
    """Good or okay: above the task's lowest threshold."""
    return not score.disqualified and score.medal not in ("fail", "disqualified")


def judge_scores(score: ScoreRecord) -> dict[str, float]:
    """Judge of a panel → agentic score of the run by its judgements alone; 0 when disqualified."""
    return {judge: agentic(stages) for judge, stages in judge_stages(score).items()}


def judge_stages(score: ScoreRecord) -> dict[str, dict[str, float]]:
    """Judge of a panel → scores of the stages (s1 … s5) by its judgements alone; 0 when disqualified.

    The limits of the run's stages hold for each of them. Judges without a valid judgement of every stage are left out.
    """
    judges = group_by(score.panel, lambda name: name.rpartition("#")[0])
    found = {}
    for judge, names in judges.items():
        own = {known: [score.panel[name][known] for name in names if known in score.panel[name]] for known in JUDGED}
        if all(own.values()):
            means = cap_stages({known: fmean(values) for known, values in own.items()}, score.stage_limits)
            stages = vars(score.scores) | {known.lower(): mean for known, mean in means.items()}
            found[judge] = dict.fromkeys(stages, 0.0) if score.disqualified else stages
    return found


def make_samples(entries: Iterable[BoardEntry]) -> list[Sample]:
    """The scored entries for the statistics, in their order.

    Cases are resampled only where all runs of a task had the same ones; a task that was staged anew in between has none
    that its runs share.
    """
    scores = list_scores(entries)
    tasks = group_by(scores, lambda score: score.run.task)
    changed = {task for task, runs in tasks.items() if len({score.recipe.cases_sha256 for score in runs}) > 1}
    return [_make_sample(score, same_cases=score.run.task not in changed) for score in scores]


def _make_sample(score: ScoreRecord, *, same_cases: bool) -> Sample:
    """The run as the statistics see it; with zeros when it was disqualified."""
    run, cases = score.run, None
    if same_cases and score.case_scores is not None:
        cases = np.array(score.case_scores)
        if score.disqualified:
            cases = np.zeros_like(cases)
    halves = score_value(score, "agentic"), score_value(score, "task")
    return Sample(run.task, run.tier, run.repeat, *halves, cases, judge_scores(score))
