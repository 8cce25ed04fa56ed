"""Error codes of a campaign in numbers: shares, pairs, what a code costs, and how often a run ends well despite them.

Counted are scored runs that were not disqualified (those have no codes). A code *fires* once per run, however many
detectors found it: shares of fired codes are what the paper prints, shares of runs stand beside them. Rows without an
agent are of all agents, rows without a track of all tracks. Nothing here enters a score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import combinations
from typing import Any, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from automedbench.base.records import ScoreRecord, Stage
from automedbench.error_codes.taxonomy import CODES, KNOWLEDGE, TAXONOMY
from automedbench.leaderboard.entries import Entry, has_failed, value_of
from automedbench.leaderboard.tables.error_code_rows import (
    CostRow,
    CountRow,
    DetectorRow,
    ErrorAtlas,
    ErrorRow,
    PairRow,
    SummaryRow,
)

__all__ = [
    "CostRow",
    "CountRow",
    "DetectorRow",
    "ErrorAtlas",
    "ErrorRow",
    "PairRow",
    "SummaryRow",
    "completed",
    "error_atlas",
    "error_rows",
]

Flags = NDArray[np.bool_]
RowT = TypeVar("RowT")

MANY = 3
"""Runs with this many codes or more are one group (paper, figure 7)."""
FEWEST_CELLS = 3
"""Cells that an interval needs at least."""
_CODES = tuple(CODES)
_STAGES: tuple[Stage, ...] = get_args(Stage)
_ENGINEERING = [code != KNOWLEDGE for code in _CODES]


def error_rows(entries: Sequence[Entry]) -> list[ErrorRow]:
    """Shares of the codes: of all runs, and per track, agent, both, and stage."""
    return _rows(_groups(entries), _share_rows)


def error_atlas(entries: Sequence[Entry], confidence: float = 0.95) -> ErrorAtlas:
    """All tables; ``confidence`` is that of the intervals of what a code costs."""
    groups = _groups(entries)
    overall = [group for group in groups if group.agent is None]
    return ErrorAtlas(
        taxonomy=TAXONOMY,
        rows=_rows(groups, _share_rows),
        pairs=_rows(overall, _pair_rows),
        costs=_rows(groups, lambda group: _cost_rows(group, confidence)),
        counts=_rows(groups, _count_rows),
        summaries=[_summary(group) for group in groups],
        detectors=_detector_rows(entries),
    )


def completed(score: ScoreRecord) -> bool:
    """Outputs were accepted and scored (paper): a complete final submission with at least one output to score."""
    return not has_failed(score) and score.completion_rate > 0


# --- runs as columns ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Runs:
    """Scored runs as columns; ``fired`` and ``by_rule``: runs × stages × codes, ``cell``: numbers agent, task, tier."""

    agent: NDArray[Any]
    track: NDArray[Any]
    cell: NDArray[np.int64]
    overall: NDArray[np.float64]
    fired: Flags
    by_rule: Flags
    disqualified: Flags
    completed: Flags

    def take(self, kept: Flags) -> _Runs:
        """The runs where ``kept`` is true."""
        return _Runs(*(getattr(self, field.name)[kept] for field in fields(self)))


@dataclass(frozen=True)
class _Group:
    """The counted runs of one agent and track (None: of all)."""

    track: str | None
    agent: str | None
    runs: _Runs
    n_disqualified: int

    @cached_property
    def has(self) -> Flags:
        """Runs × codes: the code fired, in any stage."""
        return _any_stage(self.runs.fired)

    @property
    def n_runs(self) -> int:
        return len(self.runs.overall)


def _any_stage(flags: Flags) -> Flags:
    """Runs × stages × codes → runs × codes."""
    return np.asarray(flags.any(axis=1), dtype=np.bool_)


def _rows(groups: Sequence[_Group], make: Callable[[_Group], Iterator[RowT]]) -> list[RowT]:
    return [row for group in groups for row in make(group)]


def _groups(entries: Sequence[Entry]) -> list[_Group]:
    """All runs, then each agent's; then the same of every track."""
    runs = _columns([(entry.track, entry.score) for entry in entries if entry.score is not None])
    everything = np.ones(len(runs.overall), dtype=bool)
    tracks = {None: everything} | {name: runs.track == name for name in sorted(set(runs.track.tolist()))}
    agents = {None: everything} | {name: runs.agent == name for name in sorted(set(runs.agent.tolist()))}
    groups = []
    for track, of_track in tracks.items():
        for agent, of_agent in agents.items():
            both = of_track & of_agent
            if both.any():
                counted = runs.take(both & ~runs.disqualified)
                groups.append(_Group(track, agent, counted, int((both & runs.disqualified).sum())))
    return groups


def _columns(scores: Sequence[tuple[str, ScoreRecord]]) -> _Runs:
    n = len(scores)
    fired = np.zeros((n, len(_STAGES), len(_CODES)), dtype=bool)
    by_rule = np.zeros_like(fired)
    stages, codes = {name: i for i, name in enumerate(_STAGES)}, {name: i for i, name in enumerate(_CODES)}
    cells: dict[tuple[str, str, str], int] = {}
    for row, (_, score) in enumerate(scores):
        for error in score.error_codes:
            place = row, stages[error.stage], codes[error.code]
            fired[place] = True
            by_rule[place] |= error.source == "rule"
    return _Runs(
        agent=np.array([score.run.agent for _, score in scores], dtype=object),
        track=np.array([track for track, _ in scores], dtype=object),
        cell=np.array(
            [cells.setdefault((s.run.agent, s.run.task, s.run.tier), len(cells)) for _, s in scores], dtype=np.int64
        ),
        overall=np.array([value_of(score, "overall") for _, score in scores], dtype=np.float64),
        fired=fired,
        by_rule=by_rule,
        disqualified=np.array([score.disqualified for _, score in scores], dtype=bool),
        completed=np.array([completed(score) for _, score in scores], dtype=bool),
    )


# --- tables ---------------------------------------------------------------------------------------------------


def _share_rows(group: _Group) -> Iterator[ErrorRow]:
    """Five rows of whole runs, then those of single stages that fired."""
    if not group.n_runs:
        return
    yield from _shares(group, None, group.has, _any_stage(group.runs.by_rule))
    for number, stage in enumerate(_STAGES):
        rows = _shares(group, stage, group.runs.fired[:, number], group.runs.by_rule[:, number])
        yield from (row for row in rows if row.n_with_code)


def _shares(group: _Group, stage: str | None, fired: Flags, by_rule: Flags) -> Iterator[ErrorRow]:
    counts, rules, n_fired = fired.sum(axis=0).tolist(), by_rule.sum(axis=0).tolist(), int(fired.sum())
    for code, count, n_by_rule in zip(_CODES, counts, rules, strict=True):
        yield ErrorRow(
            track=group.track,
            agent=group.agent,
            stage=stage,
            code=code,
            n_runs=group.n_runs,
            n_with_code=count,
            run_share=count / group.n_runs,
            n_fired=n_fired,
            fired_share=count / n_fired if n_fired else None,
            n_by_rule=n_by_rule,
            n_by_judge=count - n_by_rule,
        )


def _pair_rows(group: _Group) -> Iterator[PairRow]:
    """Every pair of codes, also those that never fired together."""
    if not group.n_runs:
        return
    both = group.has.astype(np.int64).T @ group.has.astype(np.int64)
    for i, j in combinations(range(len(_CODES)), 2):
        n_first, n_second, n_both = (int(both[place]) for place in ((i, i), (j, j), (i, j)))
        either = n_first + n_second - n_both
        yield PairRow(
            track=group.track,
            first=_CODES[i],
            second=_CODES[j],
            n_runs=group.n_runs,
            n_first=n_first,
            n_second=n_second,
            n_both=n_both,
            jaccard=n_both / either if either else None,
            lift=n_both * group.n_runs / (n_first * n_second) if n_first and n_second else None,
        )


def _cost_rows(group: _Group, confidence: float) -> Iterator[CostRow]:
    """What runs with a code score less (negative) or more than those without."""
    if not group.n_runs:
        return
    for number, code in enumerate(_CODES):
        has, overall = group.has[:, number], group.runs.overall
        mean_with, mean_without = _mean(overall[has]), _mean(overall[~has])
        cells = _cell_differences(group.runs.cell, overall, has)
        low, high = _interval(cells, confidence)
        yield CostRow(
            track=group.track,
            agent=group.agent,
            code=code,
            n_with=int(has.sum()),
            n_without=int((~has).sum()),
            mean_with=mean_with,
            mean_without=mean_without,
            difference=None if mean_with is None or mean_without is None else mean_with - mean_without,
            n_cells=len(cells),
            within_difference=_mean(cells),
            low=low,
            high=high,
        )


def _cell_differences(cell: NDArray[np.int64], overall: NDArray[np.float64], has: Flags) -> NDArray[np.float64]:
    """Mean with the code − mean without it, of every cell that has both kinds of runs."""
    size = int(cell.max()) + 1
    means, counts = [], []
    for kind in (has, ~has):
        n = np.bincount(cell[kind], minlength=size)
        means.append(np.bincount(cell[kind], weights=overall[kind], minlength=size) / np.maximum(n, 1))
        counts.append(n)
    differences: NDArray[np.float64] = (means[0] - means[1])[(counts[0] > 0) & (counts[1] > 0)]
    return differences


def _interval(values: NDArray[np.float64], confidence: float) -> tuple[float | None, float | None]:
    """Student's interval of the mean over cells; null below three."""
    if len(values) < FEWEST_CELLS:
        return None, None
    from scipy.special import stdtrit

    half = float(stdtrit(len(values) - 1, (1 + confidence) / 2)) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return float(values.mean()) - half, float(values.mean()) + half


def _count_rows(group: _Group) -> Iterator[CountRow]:
    n_codes = np.minimum(group.has.sum(axis=1), MANY)
    for number in range(MANY + 1):
        runs = group.runs.overall[n_codes == number]
        yield CountRow(group.track, group.agent, number, len(runs), _mean(runs))


def _summary(group: _Group) -> SummaryRow:
    n_codes = group.has.sum(axis=1)
    n_engineering = int(group.has[:, _ENGINEERING].sum())
    n_knowledge = int(group.has.sum()) - n_engineering
    several = n_codes >= 2
    n_recovered = int(group.runs.completed[several].sum())
    return SummaryRow(
        track=group.track,
        agent=group.agent,
        n_runs=group.n_runs,
        n_disqualified=group.n_disqualified,
        n_without_code=int((n_codes == 0).sum()),
        n_fired=n_knowledge + n_engineering,
        n_knowledge=n_knowledge,
        n_engineering=n_engineering,
        ratio=n_engineering / n_knowledge if n_knowledge else None,
        n_two_or_more=int(several.sum()),
        n_recovered=n_recovered,
        recovery_rate=n_recovered / int(several.sum()) if several.any() else None,
    )


def _detector_rows(entries: Sequence[Entry]) -> list[DetectorRow]:
    """All tracks first; within a track the most frequent first."""
    counts: dict[tuple[str, str, str, str], int] = {}
    for entry in entries:
        if entry.score is None or entry.score.disqualified:
            continue
        # A judge's name says little here; each of its codes counts once per run.
        found = {
            (error.detector or "unnamed" if error.source == "rule" else "judge", error.code, error.source)
            for error in entry.score.error_codes
        }
        for key in found:
            for track in ("", entry.track):
                counts[track, *key] = counts.get((track, *key), 0) + 1
    order = sorted(counts.items(), key=lambda item: (item[0][0], -item[1], item[0]))
    return [DetectorRow(track or None, name, code, source, n) for (track, name, code, source), n in order]


def _mean(values: NDArray[np.float64]) -> float | None:
    return float(values.mean()) if len(values) else None
