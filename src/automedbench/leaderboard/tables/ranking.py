"""Rankings: the numbers of every agent over everything, in a track, on a task or in a cell, and contests of the agents.

Scores are in [0, 1] and pooled as configured (``cells``). What a run used (turns, time, tokens, cost), failure rates
and medals are means over runs in either case. Nothing is imputed: a run without a score is in no mean, and its row is
provisional. Reads and writes no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import pandas as pd

from automedbench.base.records import TIERS
from automedbench.leaderboard.entries import Method, Pooling
from automedbench.leaderboard.tables.cells import CELL, SCORES, cells_of, pooled, scored_of, what_differs
from automedbench.leaderboard.tables.table import Table
from automedbench.statistics.intervals import intervals
from automedbench.statistics.pairs import compare_pairs, tie_groups
from automedbench.statistics.ranks import pass_hat_k, rank_distribution, worst_of_k
from automedbench.statistics.samples import MEASURES, Interval, Measure, PairedComparison, RankRange, Sample

_NO_INTERVAL = Interval(low=None, high=None, n_tasks=0, min_repeats=0, sufficient=False)


@dataclass(frozen=True)
class Contest:
    """All agents of one place (everything, a track, a task, a cell) by name; those without a score take no part.

    No ties where no pair could be tested: letters would say that a test was made.
    """

    ranking: Sequence[str]
    intervals: Mapping[str, Mapping[Measure, Interval]]
    pairs: Sequence[PairedComparison]
    ranks: Mapping[str, RankRange]
    ties: Mapping[str, str]

    def row(self, agent: str) -> dict[str, Any]:
        """What a row of the ranking says of an agent: ends of its intervals, possible ranks, letters."""
        spans, possible = self.intervals.get(agent, {}), self.ranks.get(agent)
        found = {name: spans.get(name, _NO_INTERVAL) for name in MEASURES}
        return {
            **{f"{name}_low": span.low for name, span in found.items()},
            **{f"{name}_high": span.high for name, span in found.items()},
            "sufficient": found["overall"].sufficient,
            "rank_best": possible.best if possible and possible.sufficient else None,
            "rank_worst": possible.worst if possible and possible.sufficient else None,
            "tie": self.ties.get(agent) or None,
        }

    def comparison_rows(self, track: str | None) -> Iterator[dict[str, Any]]:
        """Every pair of agents."""
        return ({"track": track} | vars(pair) for pair in self.pairs)

    def rank_rows(self, track: str | None) -> Iterator[dict[str, Any]]:
        """Every rank of every agent in the order of the ranking; none where the data do not suffice."""
        for agent in self.ranking:
            for rank, share in enumerate(self.ranks[agent].shares if agent in self.ranks else (), 1):
                yield {"track": track, "agent": agent, "rank": rank, "share": share}


def hold_contest(agents: Mapping[str, Sequence[Sample]], ranking: Sequence[str], method: Method) -> Contest:
    """Intervals of every agent, and all of them against each other; ``ranking``: names, best first."""
    samples = {name: group for name, group in sorted(agents.items()) if group}
    options = method.resampling
    spans = {name: intervals(group, pooling=method.pooling, **options) for name, group in samples.items()}
    if len(samples) < 2:
        return Contest(ranking, spans, [], {}, {})
    pairs = compare_pairs(samples, "overall", method.pooling, **options)
    ranks = rank_distribution(samples, "overall", method.pooling, **options)
    tested = any(pair.sufficient for pair in pairs)
    ties = tie_groups([name for name in ranking if name in samples], pairs) if tested else {}
    return Contest(ranking, spans, pairs, ranks, ties)


Scope = Literal["overall", "track", "task", "cell"]
_WHERE: dict[Scope, list[str]] = {
    "overall": ["everything"],
    "track": ["track"],
    "task": ["track", "task"],
    "cell": ["track", "task", "tier"],
}
_TEXTS = ("sandbox", "judge", "mixed")


@dataclass(frozen=True)
class Ranking:
    """All places of a scope: their rows one after the other, and the contest of each (key: of ``everything`` True)."""

    rows: Table
    contests: dict[Any, Contest]


NO_RANKING = Ranking(Table("cells"), {})


def build_ranking(runs: pd.DataFrame, scope: Scope, method: Method) -> Ranking:
    """One row per agent and place, ranked within it; places by track, task and tier.

    ``runs``: of ``runs_of``; which tiers take part is the caller's choice, a cell row always stands for one.
    """
    if runs.empty:
        return NO_RANKING
    where = _WHERE[scope]
    table = _in_order(_numbers(runs, [*where, "agent"], method.pooling), where)
    samples = scored_of(runs).groupby([*where, "agent"], sort=False)["sample"].agg(list).to_dict()
    contests, found = {}, []
    for place, rows in table.groupby(where, sort=False):
        names = list(rows.agent)
        taking_part = {name: samples[*place, name] for name in names if (*place, name) in samples}
        contest = contests[place if len(place) > 1 else place[0]] = hold_contest(taking_part, names, method)
        found += [contest.row(name) for name in names]
    inferred = pd.DataFrame(found, index=table.index, dtype=object)
    absent = dict.fromkeys({"track", "task", "tier"} - set(where))
    return Ranking(Table("cells", table.assign(**inferred, **absent)), contests)


def pooled_ranks(cells: pd.DataFrame, where: Sequence[str], pooling: Pooling) -> pd.DataFrame:
    """Pooled scores and rank of every agent with a score, by ``where``; ``cells``: of ``cells_of``.

    Rank = 1 + number of agents that are better by more than rounding.
    """
    found = pooled(cells, [*where, "agent"], pooling, SCORES)
    ranks = found.overall.round(9).groupby(level=list(where)).rank(method="min", ascending=False)
    return found.assign(rank=ranks)


def mean_cost(costs: Iterable[Decimal | None]) -> Decimal | None:
    """Mean of the known costs in USD, to the micro-dollar; None where none is known: unknown is never 0."""
    known = [cost for cost in costs if cost is not None]
    return (sum(known, Decimal(0)) / len(known)).quantize(Decimal("0.000001")) if known else None


def _in_order(table: pd.DataFrame, where: list[str]) -> pd.DataFrame:
    """By place and rank; agents without a score last, equals by name."""

    def order(column: pd.Series) -> pd.Series:
        return column.map(TIERS.index) if column.name == "tier" else column

    return table.sort_values([*where, "rank", "agent"], key=order, ignore_index=True)


def _numbers(runs: pd.DataFrame, keys: list[str], pooling: Pooling) -> pd.DataFrame:
    """What can be counted and averaged of every agent in every place, a row each."""
    scored, cells = scored_of(runs), cells_of(runs)
    planned = runs.drop_duplicates(list(CELL)).groupby(keys, sort=False).size()
    spread = _spread_over_repeats(scored, planned, keys, pooling)
    table = pd.DataFrame({"n_planned": runs.groupby(keys, sort=False).size(), "cells_planned": planned})
    counts = _counts(scored.groupby(keys, sort=False), cells.groupby(keys, sort=False)) | {
        "sd_repeats": spread["count"]
    }
    table = table.assign(**counts).fillna(0).assign(overall_sd=spread["std"])
    table = table.assign(**_averages(scored.groupby(keys, sort=False))).fillna(dict.fromkeys(_TEXTS, ""))
    table = table.join([pooled_ranks(cells, keys[:-1], pooling), _reliability(cells, keys, pooling)])
    return table.assign(provisional=table.n_scored < table.n_planned).reset_index()


def _counts(runs: Any, cells: Any) -> dict[str, pd.Series]:
    """Numbers of scored runs and cells, both grouped; 0 where an agent has none."""
    return {
        "n_scored": runs.size(),
        "cells_scored": cells.size(),
        "n_failed": runs.failed.sum(),
        "n_disqualified": runs.disqualified.sum(),
        "n_priced": runs.cost.count(),
        "n_judge_priced": runs.judge_cost.count(),
        "min_repeats": cells.n_scored.min(),
    }


def _averages(runs: Any) -> dict[str, pd.Series]:
    """Means over scored runs, grouped, and the conditions they ran under."""
    return {
        "failure_rate": runs.failed.mean(),
        "no_medal_rate": runs.medal.agg(lambda won: float((~won).mean())),
        **{f"mean_{name}": runs[name].mean() for name in ("turns", "wall_s", "tokens")},
        "mean_cost_usd": runs.cost.agg(mean_cost),
        "judge_cost_usd": runs.judge_cost.agg(mean_cost),
        **{name: runs[name].agg(lambda names: " + ".join(sorted(set(names)))) for name in ("sandbox", "judge")},
        "mixed": runs.score.agg(lambda scores: ", ".join(what_differs(list(scores)))),
    }


def _spread_over_repeats(scored: pd.DataFrame, planned: pd.Series, keys: list[str], pooling: Pooling) -> pd.DataFrame:
    """Sample standard deviation (``std``) of the overall score between repeats, and their number (``count``).

    Each repeat that is scored in every planned cell gives one value, pooled like the row itself.
    """
    by_repeat = [*keys, "repeat"]
    values = pooled(scored.assign(n_scored=1), by_repeat, pooling, ["overall"]).overall.unstack("repeat")
    n_cells = scored.groupby(by_repeat, sort=False).size().unstack("repeat")
    return values.where(n_cells.eq(planned, axis=0)).agg(["std", "count"], axis=1)


def _reliability(cells: pd.DataFrame, keys: list[str], pooling: Pooling) -> pd.DataFrame:
    """How likely k repeats of a cell, drawn from those scored, all win a medal, and their expected lowest score.

    k is the smallest number of scored repeats of any cell of the row, so that every cell counts.
    """
    k = cells.groupby(keys, sort=False).n_scored.transform("min")
    chances = {
        "k": k,
        "pass_k": [pass_hat_k(*counts) for counts in zip(cells.n_scored, cells.n_medals, k, strict=True)],
        "worst_k": [worst_of_k(values, least) for values, least in zip(cells.every, k, strict=True)],
    }
    return pooled(cells.assign(**chances), keys, pooling, list(chances))
