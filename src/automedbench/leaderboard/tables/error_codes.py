"""Error codes of a campaign in numbers: shares, pairs, what a code costs, and how often a run ends well despite them.

Counted are scored runs that were not disqualified (those have no codes). A code *fires* once per run, however many
detectors found it: shares of fired codes are what the paper prints, shares of runs stand beside them. Rows without an
agent are of all agents, rows without a track of all tracks. Nothing here enters a score. Where rules judge, missing
knowledge (E1) cannot be measured: its numbers are null, not 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from automedbench.base.records import ScoreRecord
from automedbench.leaderboard.entries import BoardEntry, has_failed, score_value
from automedbench.leaderboard.tables.table import BoardTable
from automedbench.scoring.codes.taxonomy import CODES, KNOWLEDGE

FEWEST_CELLS = 3
"""Cells that an interval needs at least."""
_CODES = list(CODES)
_PLACE = ["track", "agent"]
_OF_A_RUN = ["run", *_PLACE, "cell", "overall", "disqualified", "completed"]
_EVERY = ""
"""Stands for all tracks, all agents or the whole run until the rows are done; it comes first in any order."""


def error_tables(entries: Sequence[BoardEntry], confidence: float = 0.95) -> dict[str, BoardTable]:
    """All tables by their names; ``confidence`` is that of the intervals of what a code costs."""
    runs = _Runs(entries)
    found = [_share_rows(runs), _pair_rows(runs), _cost_rows(runs, confidence)]
    return {table.name: table for table in [*found, _summary_rows(runs)]}


def is_completed(score: ScoreRecord) -> bool:
    """Check for accepted and scored outputs (paper): a complete final submission with at least one output to score."""
    return not has_failed(score) and score.completion_rate > 0


class _Runs:
    """Scored runs as frames: ``every`` by each place they belong to, ``counted`` of these without disqualified ones.

    A run has four places: of all, of its agent, of its track, of both. ``fired``: a row per run of ``counted``, stage
    and code, the whole run being a stage of its own.
    """

    def __init__(self, entries: Sequence[BoardEntry]) -> None:
        runs = [(entry.track, entry.score) for entry in entries if entry.score is not None]
        by_model = any(score.recipe.judge_kind == "llm" for _, score in runs)
        self.measures_knowledge = by_model or any(e.code == KNOWLEDGE for _, score in runs for e in score.error_codes)
        frame = pd.DataFrame([[n, *_run(*run)] for n, run in enumerate(runs)], columns=_OF_A_RUN)
        causes = [[n, e.stage, e.code, e.source] for n, (_, score) in enumerate(runs) for e in score.error_codes]
        fired = _fired(pd.DataFrame(causes, columns=["run", "stage", "code", "source"]))
        has = fired[fired.stage == _EVERY].assign(has=True).pivot(index="run", columns="code", values="has")
        has = has.reindex(index=frame.run, columns=_CODES).notna()
        frame = frame.join(has.assign(n_codes=has.sum(axis=1)), on="run")
        places: list[list[str]] = [[], ["agent"], ["track"], _PLACE]
        self.every = pd.concat([frame.assign(**dict.fromkeys(all_of, _EVERY)) for all_of in places], ignore_index=True)
        self.counted = self.every[~self.every.disqualified.astype(bool)]
        self.fired = self.counted[["run", *_PLACE]].merge(fired, on="run")


def _fired(causes: pd.DataFrame) -> pd.DataFrame:
    """A row per run, stage (the whole run too) and code, and whether a detector that is no judge found it."""
    by_rule = causes.assign(by_rule=causes.source == "rule")
    whole = pd.concat([by_rule.assign(stage=_EVERY), by_rule])
    return whole.groupby(["run", "stage", "code"], as_index=False).by_rule.any()


def _run(track: str, score: ScoreRecord) -> list[Any]:
    run = score.run
    cell = "\0".join((run.agent, run.task, run.tier))
    return [track, run.agent, cell, score_value(score, "overall"), score.disqualified, is_completed(score)]


def _table(name: str, rows: pd.DataFrame) -> BoardTable:
    """The rows in the order of their groups, with null for all tracks, agents and stages."""
    rows = rows.reset_index()
    return BoardTable(name, rows.replace({column: {_EVERY: None} for column in (*_PLACE, "stage") if column in rows}))


# --- tables ---------------------------------------------------------------------------------------------------


def _share_rows(runs: _Runs) -> BoardTable:
    """Per place five rows of whole runs, then those of single stages that fired."""
    n_runs = runs.counted.groupby(_PLACE).size()
    by_stage = [*_PLACE, "stage"]
    found = runs.fired.groupby([*by_stage, "code"]).by_rule.agg(n_with_code="size", n_by_rule="sum")
    whole = [(*place, _EVERY, code) for place in n_runs.index for code in _CODES]
    index = pd.MultiIndex.from_tuples(sorted({*whole, *found.index}), names=[*by_stage, "code"])
    rows = found.reindex(index, fill_value=0)
    rows["n_runs"] = n_runs.reindex(index.droplevel([2, 3])).to_numpy()
    rows["n_fired"] = rows.groupby(by_stage).n_with_code.transform("sum")
    rows["n_by_judge"] = rows.n_with_code - rows.n_by_rule
    rows["run_share"] = rows.n_with_code / rows.n_runs
    rows["fired_share"] = rows.n_with_code / rows.n_fired.where(rows.n_fired > 0)
    if not runs.measures_knowledge:
        unknown = index.get_level_values("code") == KNOWLEDGE
        counts = ["n_with_code", "n_by_rule", "n_by_judge"]
        rows = rows.astype(dict.fromkeys(counts, object))
        rows.loc[unknown, [*counts, "run_share", "fired_share"]] = None
    return _table("errors", rows)


def _pair_rows(runs: _Runs) -> BoardTable:
    """Every pair of codes, also those that never fired together."""
    rows = []
    for track, group in runs.counted[runs.counted.agent == _EVERY].groupby("track"):
        has = group[_CODES].astype(int)
        both = has.T @ has
        for first, second in combinations(_CODES, 2):
            counts = {"n_first": both[first][first], "n_second": both[second][second], "n_both": both[first][second]}
            rows.append({"track": track, "first": first, "second": second, "n_runs": len(group)} | counts)
    table = pd.DataFrame(rows, columns=["track", "first", "second", "n_runs", "n_first", "n_second", "n_both"])
    either, chance = table.n_first + table.n_second - table.n_both, table.n_first * table.n_second
    table["jaccard"] = table.n_both / either.where(either > 0)
    table["lift"] = table.n_both * table.n_runs / chance.where(chance > 0)
    return _table("error_pairs", table)


def _cost_rows(runs: _Runs, confidence: float) -> BoardTable:
    """Rows of the score difference between runs with a code and those without (negative: less with it)."""
    keys = [*_PLACE, "code"]
    long = runs.counted.melt([*_PLACE, "cell", "overall"], _CODES, "code", "has")
    values = long.groupby([*keys, "has"]).overall
    means, sizes = (found.unstack("has").reindex(columns=[True, False]) for found in (values.mean(), values.size()))
    cells = long.groupby([*keys, "cell", "has"]).overall.mean().unstack("has").reindex(columns=[True, False])
    rows = {
        "n_with": sizes[True].fillna(0),
        "n_without": sizes[False].fillna(0),
        "mean_with": means[True],
        "mean_without": means[False],
        "difference": means[True] - means[False],
        **_within((cells[True] - cells[False]).groupby(keys).agg(["count", "mean", "std"]), confidence),
    }
    return _table("error_costs", pd.DataFrame(rows))


def _within(cells: pd.DataFrame, confidence: float) -> dict[str, pd.Series]:
    """Mean difference over cells that have both kinds of runs, with Student's interval."""
    from scipy.special import stdtrit

    n, mean = cells["count"], cells["mean"]
    reach = stdtrit(n - 1, (1 + confidence) / 2) * cells["std"] / np.sqrt(n)
    reach = reach.where(n >= FEWEST_CELLS)
    return {"n_cells": n, "within_difference": mean, "low": mean - reach, "high": mean + reach}


def _summary_rows(runs: _Runs) -> BoardTable:
    counted = runs.counted.assign(several=runs.counted.n_codes >= 2, none=runs.counted.n_codes == 0)
    groups = counted.assign(recovered=counted.several & counted.completed).groupby(_PLACE)
    rows = pd.DataFrame(
        {
            "n_runs": groups.size(),
            "n_without_code": groups.none.sum(),
            "n_fired": groups.n_codes.sum(),
            "n_knowledge": groups[KNOWLEDGE].sum(),
            "n_two_or_more": groups.several.sum(),
            "n_recovered": groups.recovered.sum(),
        }
    )
    disqualified = runs.every.groupby(_PLACE).disqualified.sum()
    rows = rows.reindex(disqualified.index, fill_value=0).assign(n_disqualified=disqualified)
    rows["n_engineering"] = rows.n_fired - rows.n_knowledge
    rows["ratio"] = rows.n_engineering / rows.n_knowledge.where(rows.n_knowledge > 0)
    if not runs.measures_knowledge:
        rows["n_knowledge"] = None
    rows["recovery_rate"] = rows.n_recovered / rows.n_two_or_more.where(rows.n_two_or_more > 0)
    return _table("error_summary", rows)
