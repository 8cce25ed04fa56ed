"""Cells: an agent on a task in one tier; planned runs as a frame and as the ledger.

Every row of a table is made of whole cells, and every table can be recomputed from the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from math import fsum
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from automedbench.base.files import hash_json
from automedbench.base.records import TIERS, ScoreRecord
from automedbench.leaderboard.conditions import judge_class
from automedbench.leaderboard.entries import (
    BoardEntry,
    group_by,
    has_failed,
    has_medal,
    make_samples,
    score_value,
)
from automedbench.leaderboard.tables.columns import TABLES
from automedbench.statistics.samples import Pooling, Sample


def has_other_tasks(runs: pd.DataFrame, where: Sequence[str]) -> pd.Series:
    """Agent by place (``where``) → planned on other cells than most agents there, whose means its own can't rank with.

    Of sets that equally many agents have, the largest counts. ``runs``: of ``tabulate_runs``.
    """
    planned = runs.drop_duplicates(list(CELL))
    cells = pd.Series(list(zip(planned.task, planned.tier, strict=True)), planned.index)
    sets = cells.groupby([planned[key] for key in (*where, "agent")], sort=False).agg(frozenset)
    return sets.groupby(level=list(where), sort=False).transform(_unlike_most).astype(bool)


def find_unranked(runs: pd.DataFrame, where: Sequence[str]) -> pd.Series:
    """Agent by place (``where``) → without a rank there: on other tasks, or judged otherwise than the preset's judge.

    The latter only beside agents that this judge judged; where it judged none, all are ranked.
    """
    tasks = has_other_tasks(runs, where)
    judged = select_scored(runs).groupby([*where, "agent"], sort=False).other_judge.any()
    alone = judged.groupby(level=list(where), sort=False).transform("all")
    return tasks | (judged & ~alone).reindex(tasks.index, fill_value=False)


def _unlike_most(sets: pd.Series) -> list[bool]:
    count = Counter(sets)
    usual = max(count, key=lambda cells: (count[cells], len(cells)))
    return [cells != usual for cells in sets]


CELL = ("track", "task", "tier", "agent")
SCORES = ("overall", "agentic", "task_score", "s1", "s2", "s3", "s4", "s5")
_FLAGS = ("failed", "medal", "disqualified", "no_effect", "contradicts", "made_up", "other_judge")
USED = ("turns", "wall_s", "tokens", "gpu_held_s", "gpu_busy_s", "cpu_s")
_COSTS = ("cost", "judge_cost", "attempts_cost")
_OF_A_RUN = (*_FLAGS, *USED, *_COSTS, "attempts", "preset", "sandbox", "judge", "outdated", "conditions", "sample")


def tabulate_runs(entries: Iterable[BoardEntry]) -> pd.DataFrame:
    """A row per planned run by track, task, tier, agent and repeat; without a score its numbers are null.

    ``sample`` is the run for the statistics, ``score`` its record, ``conditions`` its recorded conditions,
    ``everything`` the same in all rows.
    """
    ordered = sorted(entries, key=lambda entry: (*_place(entry), entry.run.repeat))
    rows = [row for cell in group_by(ordered, _place).values() for row in _cell_rows(cell)]
    names = [*CELL, "repeat", "everything", "score", *SCORES, *_OF_A_RUN]
    frame = pd.DataFrame(rows, columns=names, dtype=object)
    return frame.astype(dict.fromkeys([*SCORES, *USED], float))


def select_scored(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that have a score."""
    return runs[runs.score.notna()].astype(dict.fromkeys(_FLAGS, bool))


def tabulate_cells(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per cell with a scored run: means of its scores, numbers of runs and medals, overall score of each run."""
    scored = select_scored(runs)
    groups = scored.groupby(list(CELL), sort=False)
    counts = {
        "n_scored": groups.size(),
        "n_medals": groups.medal.sum(),
        "every": reduce_groups(groups, "overall", list),
    }
    return _group_means(scored, CELL, SCORES).assign(everything=True, **counts).reset_index()


def pool_scores(cells: pd.DataFrame, keys: Sequence[str], pooling: Pooling, columns: Sequence[str]) -> pd.DataFrame:
    """Columns of scored cells by ``keys``: mean over tasks of the mean over tiers, or over cells by their runs."""
    keys, columns = list(keys), list(columns)
    if pooling == "tasks":
        tasks = _group_means(cells, list(dict.fromkeys([*keys, "task"])), columns)
        return _group_means(tasks.reset_index(), keys, columns)
    runs = (
        cells[columns].mul(cells.n_scored, axis=0).join(cells[[*keys, "n_scored"]]).groupby(keys, sort=False).agg(fsum)
    )
    return runs[columns].div(runs.n_scored, axis=0)


def _group_means(rows: pd.DataFrame, keys: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """Mean of each column in each group, groups in the order of their first rows.

    Sums are exact: pandas' own could differ in the last digit that files show. Groups are cut out of one array, because
    pandas makes an object of every column of every group, which takes ten times as long.
    """
    groups = rows.groupby(list(keys), sort=False)
    codes = groups.ngroup().to_numpy()
    order = np.argsort(codes, kind="stable")
    parts = np.split(rows[list(columns)].to_numpy(float)[order], np.flatnonzero(np.diff(codes[order])) + 1)
    means = [[fmean(column) for column in part.T.tolist()] for part in parts if len(part)]
    return pd.DataFrame(means, index=groups.size().index, columns=list(columns), dtype=float)


def reduce_groups(groups: Any, column: str, reduce: Callable[[list[Any]], Any]) -> pd.Series:
    """Group → ``reduce`` of its values, in their order; pandas would make a series of every group's values first."""
    values = groups.obj[column].tolist()
    return pd.Series({key: reduce([values[i] for i in places]) for key, places in groups.indices.items()}, dtype=object)


def split_by_track(runs: pd.DataFrame) -> list[tuple[str | None, pd.DataFrame]]:
    """All runs (None), and those of each track in alphabetical order; nothing without runs."""
    return [(None, runs), *runs.groupby("track")] if len(runs) else []


def _place(entry: BoardEntry) -> tuple[str, str, int, str]:
    return entry.track, entry.run.task, TIERS.index(entry.run.tier), entry.run.agent


def _cell_rows(entries: Sequence[BoardEntry]) -> list[list[Any]]:
    """Rows of one cell's runs; its samples are made together."""
    samples = iter(make_samples(entries))
    return [_row(entry, next(samples) if entry.score else None) for entry in entries]


def _row(entry: BoardEntry, sample: Sample | None) -> list[Any]:
    run, score = entry.run, entry.score
    place = [entry.track, run.task, run.tier, run.agent, run.repeat, True, score]
    if score is None:
        return [*place, *[None] * (len(SCORES) + len(_OF_A_RUN))]
    totals = score.totals
    costs = [
        None if usd is None else Decimal(usd)
        for usd in (totals.cost_usd, score.judge_cost_usd, score.attempts_cost_usd)
    ]
    took = score.used
    used = [totals.turns, totals.wall_s, totals.tokens.total, took.gpu_held_s, took.gpu_busy_s, took.cpu_s]
    values = [score_value(score, name.removesuffix("_score")) for name in SCORES]
    won = has_medal(score)
    contradicts = won and score.contradicting is not None
    ends = [has_failed(score), won, score.disqualified, score.no_effect, contradicts, score.made_up, entry.other_judge]
    classes = score.recipe.preset, score.enforced.isolation, judge_class(score)
    return [*place, *values, *ends, *used, *costs, score.attempts, *classes, entry.outdated, entry.conditions, sample]


_MICRO = Decimal("0.000001")


def ledger_rows(entries: Iterable[BoardEntry]) -> list[dict[str, Any]]:
    """Rows of ``runs.csv``, one per scored run; money in USD."""
    return [_ledger_row(entry, entry.score) for entry in entries if entry.score]


def _ledger_row(entry: BoardEntry, score: ScoreRecord) -> dict[str, Any]:
    """What the record says under the column's name, or what stands here."""
    found = (
        vars(score) | vars(score.run) | vars(score.totals) | vars(score.used) | vars(score.recipe) | _computed(score)
    )
    found |= {"outdated": ", ".join(entry.outdated), "other_judge": entry.other_judge, "signature": entry.signature}
    return {name: found[name] for name in TABLES["runs"].columns}


def _computed(score: ScoreRecord) -> dict[str, Any]:
    tokens, enforced, spread = score.totals.tokens, score.enforced, score.judge_spread
    return {
        **{name: score_value(score, name) for name in ("overall", "agentic", "s1", "s2", "s3", "s4", "s5")},
        "task_score": score_value(score, "task"),
        "failed": has_failed(score),
        "effect": score.effect.verdict,
        **{f"effect_{name}": getattr(score.effect, name) for name in ("value", "low", "high", "p")},
        "n_case_scores": len(score.case_scores or []),
        "error_codes": " ".join(sorted({error.code for error in score.error_codes})),
        **{f"tokens_{name}": value for name, value in tokens},
        "tokens_total": tokens.total,
        "cost_usd": _money(score.totals.cost_usd),
        **{name: ", ".join(getattr(score.used, name)) or None for name in ("nodes", "gpu_models", "gpu_drivers")},
        "sandbox": enforced.backend,
        "network": enforced.network,
        "image_sha256": enforced.image_sha256,
        "n_judgements": len(score.panel) or 1,
        **{f"judge_spread_{stage.lower()}": spread.get(stage) for stage in ("S1", "S2", "S3")},
        "judge_cost_usd": _money(score.judge_cost_usd),
        "attempts_cost_usd": _money(score.attempts_cost_usd),
        "sources": hash_json(score.sources),
    }


def _money(usd: str | None) -> Decimal | None:
    return None if usd is None else Decimal(usd).quantize(_MICRO)
