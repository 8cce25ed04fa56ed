"""Rankings: the numbers of every agent over everything, in a track, on a task or in a cell, and contests of the agents.

Scores are in [0, 1] and pooled as configured (``cells``). What a run used (turns, time, tokens, cost), failure rates
and medals are means over runs in either case. Nothing is imputed: a run without a score is in no mean, and its row is
provisional. Reads and writes no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any, Literal

import pandas as pd

from automedbench.base.records import TIERS
from automedbench.leaderboard.conditions import find_differences, signature
from automedbench.leaderboard.tables.cells import (
    CELL,
    SCORES,
    USED,
    find_unranked,
    has_other_tasks,
    pool_scores,
    reduce_groups,
    select_scored,
    tabulate_cells,
)
from automedbench.leaderboard.tables.table import BoardTable
from automedbench.statistics.intervals import intervals
from automedbench.statistics.pairs import compare_pairs, rank_ranges, tie_groups
from automedbench.statistics.repeats import REPEAT_COUNTS, pass_hat_k, worst_of_k
from automedbench.statistics.samples import PairedComparison, Pooling, Sample, StatisticsMethod

Scope = Literal["overall", "track", "task", "cell"]
_WHERE: dict[Scope, list[str]] = {
    "overall": ["everything"],
    "track": ["track"],
    "task": ["track", "task"],
    "cell": ["track", "task", "tier"],
}
_NAMED = ("preset", "sandbox", "judge")
_PRICES = {"mean_cost_usd": "cost", "judge_cost_usd": "judge_cost", "attempts_cost_usd": "attempts_cost"}
_UNSCORED = {**dict.fromkeys(_NAMED, ""), "mixed": "", "outdated": "", "made_up": False, "other_judge": False}


@dataclass(frozen=True)
class Ranking:
    """All places of a scope, one after the other: their rows, and pairs of agents."""

    rows: BoardTable
    comparisons: list[dict[str, Any]]


NO_RANKING = Ranking(BoardTable("cells"), [])


def build_ranking(runs: pd.DataFrame, scope: Scope, method: StatisticsMethod) -> Ranking:
    """One row per agent and place, ranked within it; places by track, task and tier.

    ``runs``: of ``tabulate_runs``; which tiers take part is the caller's choice, a cell row always stands for one.
    """
    if runs.empty:
        return NO_RANKING
    where = _WHERE[scope]
    table = _sort_rows(_numbers(runs, [*where, "agent"], method.pooling), where)
    samples = reduce_groups(select_scored(runs).groupby([*where, "agent"], sort=False), "sample", list).to_dict()
    found: list[dict[str, Any]] = []
    comparisons: list[dict[str, Any]] = []
    for place, rows in table.groupby(where, sort=False):
        track = None if scope == "overall" else place[0]
        agents = {name: samples[*place, name] for name in sorted(rows.agent) if (*place, name) in samples}
        pairs = compare_pairs(agents, method)
        found += _infer(agents, rows, pairs, method)
        if scope in ("overall", "track"):
            comparisons += [{"track": track} | vars(pair) for pair in pairs]
    inferred = pd.DataFrame(found, index=table.index, dtype=object)
    absent = dict.fromkeys({"track", "task", "tier"} - set(where))
    return Ranking(BoardTable("cells", table.assign(**inferred, **absent)), comparisons)


def _infer(
    agents: Mapping[str, Sequence[Sample]],
    rows: pd.DataFrame,
    pairs: Sequence[PairedComparison],
    method: StatisticsMethod,
) -> Iterator[dict[str, Any]]:
    """Inference for every agent in the order of the ranking: ends of its intervals, possible ranks, letters.

    No letters where no pair is different: they would separate nothing. No ranks for an agent that could be compared
    with none. Ranks are of agents that are ranked.
    """
    letters = tie_groups([name for name in rows.agent if name in agents], pairs)
    differences: dict[str, list[bool]] = {}
    for pair in pairs:
        for name in (pair.a, pair.b) if pair.different else ():
            differences.setdefault(name, []).append(pair.generalises)
    possible = rank_ranges([name for name in rows.agent[rows["rank"].notna()] if name in agents], pairs)
    compared = {name for pair in pairs if pair.sufficient for name in (pair.a, pair.b)}
    for name in rows.agent:
        spans = intervals(agents.get(name, []), method)
        best, worst = possible.get(name, (None, None)) if name in compared else (None, None)
        yield {
            **{f"{measure}_low": span.low for measure, span in spans.items()},
            **{f"{measure}_high": span.high for measure, span in spans.items()},
            "sufficient": spans["overall"].sufficient,
            "rank_best": best,
            "rank_worst": worst,
            "tie": letters.get(name) if differences else None,
            "generalises": all(differences[name]) if name in differences else None,
        }


def rank_scores(cells: pd.DataFrame, unranked: pd.Series, where: Sequence[str], pooling: Pooling) -> pd.DataFrame:
    """Pooled scores and rank of every agent with a score, by ``where``; of ``tabulate_cells`` and ``find_unranked``.

    Rank = 1 + number of agents that are better by more than rounding, among those that are ranked.
    """
    found = pool_scores(cells, [*where, "agent"], pooling, SCORES)
    alike = found.overall[~unranked.reindex(found.index)].round(9)
    return found.assign(rank=alike.groupby(level=list(where)).rank(method="min", ascending=False))


def mean_cost(costs: Iterable[Decimal | None]) -> Decimal | None:
    """Mean of the known costs in USD, to the micro-dollar; None where none is known: unknown is never 0."""
    known = [cost for cost in costs if cost is not None]
    return (sum(known, Decimal(0)) / len(known)).quantize(Decimal("0.000001")) if known else None


def _sort_rows(table: pd.DataFrame, where: list[str]) -> pd.DataFrame:
    """By place and rank; agents on other tasks and then those without a score last, equals by name."""

    def order(column: pd.Series) -> pd.Series:
        return column.map(TIERS.index) if column.name == "tier" else column

    unscored = table.assign(unscored=table.n_scored == 0)
    return unscored.sort_values([*where, "rank", "unscored", "agent"], key=order, ignore_index=True)


def _numbers(runs: pd.DataFrame, keys: list[str], pooling: Pooling) -> pd.DataFrame:
    """Counts and means of every agent in every place, a row each."""
    scored, cells = select_scored(runs), tabulate_cells(runs)
    planned = runs.drop_duplicates(list(CELL)).groupby(keys, sort=False).size()
    table = pd.DataFrame({"n_planned": runs.groupby(keys, sort=False).size(), "cells_planned": planned})
    table = table.assign(**_counts(scored.groupby(keys, sort=False), cells.groupby(keys, sort=False))).fillna(0)
    table = table.assign(**_averages(scored.groupby(keys, sort=False))).fillna(_UNSCORED)
    other, unranked = has_other_tasks(runs, keys[:-1]), find_unranked(runs, keys[:-1])
    table = table.join([rank_scores(cells, unranked, keys[:-1], pooling), _reliability(cells, keys, pooling)])
    return table.assign(other_tasks=other, provisional=table.n_scored < table.n_planned).reset_index()


def _counts(runs: Any, cells: Any) -> dict[str, pd.Series]:
    """Numbers of scored runs and cells, both grouped; 0 where an agent has none."""
    return {
        "n_scored": runs.size(),
        "cells_scored": cells.size(),
        "n_failed": runs.failed.sum(),
        "n_disqualified": runs.disqualified.sum(),
        "n_no_effect": runs.no_effect.sum(),
        "n_contradicting": runs.contradicts.sum(),
        "n_priced": runs.cost.count(),
        "attempts": runs.attempts.sum(),
        "n_judge_priced": runs.judge_cost.count(),
        "min_repeats": cells.n_scored.min(),
    }


def _averages(runs: Any) -> dict[str, pd.Series]:
    """Means over scored runs, grouped, and the conditions they ran under."""
    return {
        "failure_rate": runs.failed.mean(),
        "no_medal_rate": 1 - runs.medal.mean(),
        **{f"mean_{name}": runs[name].mean() for name in USED},
        **{name: reduce_groups(runs, column, mean_cost) for name, column in _PRICES.items()},
        **{name: reduce_groups(runs, name, lambda names: " + ".join(sorted(set(names)))) for name in _NAMED},
        "made_up": runs.made_up.any(),
        "other_judge": runs.other_judge.any(),
        "mixed": reduce_groups(runs, "conditions", lambda conditions: ", ".join(find_differences(conditions))),
        "signature": reduce_groups(runs, "conditions", signature),
        "outdated": reduce_groups(runs, "outdated", lambda names: ", ".join(dict.fromkeys(chain.from_iterable(names)))),
    }


def _reliability(cells: pd.DataFrame, keys: list[str], pooling: Pooling) -> pd.DataFrame:
    """Probability that k repeats of a cell, drawn from those scored, all win a medal, and their expected minimum.

    NaN in rows with a cell of fewer than k scored repeats.
    """
    counts = list(zip(cells.n_scored, cells.n_medals, strict=True))
    passed = {f"pass_{k}": [pass_hat_k(n, medals, k) for n, medals in counts] for k in REPEAT_COUNTS}
    worst = {f"worst_{k}": [worst_of_k(values, k) for values in cells.every] for k in REPEAT_COUNTS[1:]}
    chances = pd.DataFrame(passed | worst, index=cells.index, dtype=float)
    return pool_scores(cells.join(chances), keys, pooling, list(chances))
