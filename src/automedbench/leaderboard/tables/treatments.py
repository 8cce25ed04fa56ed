"""Treatments: each variant against its base, on scores, stages and what a run takes; whether what it gives was used.

A family is a base with all its variants. Differences of a family are corrected together, for each quantity and place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from automedbench.base.records import HelpUse
from automedbench.campaign.treatments import find_base
from automedbench.leaderboard.tables.cells import select_scored, split_by_track
from automedbench.leaderboard.tables.table import BoardTable
from automedbench.statistics import samples
from automedbench.statistics.pairs import compare_pairs
from automedbench.statistics.samples import Measure, PairedComparison, Sample, StatisticsMethod

SkillUse = Mapping[str, Sequence[HelpUse]]
"""Run → what it used of its skills or MCP servers; a run that is not here does not tell, or had none."""
SCORES: dict[str, Measure] = {"overall": "overall", "task": "task"}
"""Quantities that are measures of the statistics."""
STAGES = ("s1", "s2", "s3", "s4", "s5")
USED = {"tokens": ("tokens", 1.0), "cost_usd": ("cost", 1.0), "minutes": ("wall_s", 60.0)}
"""Quantity that a run takes → column of the runs, and how much of it is one unit."""
QUANTITIES = (*SCORES, *STAGES, *USED)


def build_treatments(runs: pd.DataFrame, use: SkillUse, method: StatisticsMethod) -> BoardTable:
    """One row per track (first all of them), variant and quantity; ``runs``: of ``tabulate_runs``."""
    scored = select_scored(runs)
    rows = [
        row
        for track, part in split_by_track(scored)
        for base, family in list_families(part.agent.unique()).items()
        for row in _compare_family(track, base, family, part, use, method)
    ]
    return BoardTable("treatments", rows)


def list_families(agents: Sequence[str]) -> dict[str, list[str]]:
    """Base → its variants, of the agents that have one and are there."""
    known = set(agents)
    bases = sorted({base for agent in known if (base := find_base(agent)) in known})
    return {base: sorted(agent for agent in known if find_base(agent) == base) for base in bases}


def build_skills(runs: pd.DataFrame, use: SkillUse) -> BoardTable:
    """One row per run and file or tool that it used of its treatment, with the first call that did."""
    rows = []
    for score in select_scored(runs).score:
        opened = {read.file: read for read in reversed(use.get(score.run.path, ()))}
        rows += [dict(score.run) | {"track": score.track} | dict(opened[file]) for file in sorted(opened)]
    return BoardTable("skills", rows)


@dataclass(frozen=True)
class _Quantity:
    """Samples of a family's agents for one quantity: the statistics' measure of them, and the unit of 1."""

    samples: dict[str, list[Sample]]
    measure: Measure
    unit: float


def _compare_family(
    track: str | None, base: str, variants: Sequence[str], runs: pd.DataFrame, use: SkillUse, method: StatisticsMethod
) -> Iterator[dict[str, Any]]:
    """Rows of a base's variants in one place."""
    own = {agent: part for agent, part in runs.groupby("agent") if agent in (base, *variants)}
    used = {agent: _split_by_use(own[agent], use) for agent in variants}
    for name in QUANTITIES:
        quantity, pairs = _read_quantity(name, own), [(agent, base) for agent in variants]
        for pair in compare_pairs(quantity.samples, method, quantity.measure, pairs=pairs):
            if pair.difference is None:
                continue
            traced, users = used[pair.a]
            yield {
                "track": track,
                "agent": base,
                "treatment": pair.a.removeprefix(f"{base}+"),
                "quantity": name,
                "n_cells": pair.n_cells,
                "mean_base": _mean_of_base(quantity, pair, method) * quantity.unit,
                **{key: _scale(getattr(pair, of), quantity.unit) for key, of in _SCALED.items()},
                "p": pair.p,
                "different": pair.different if pair.sufficient else None,
                "n_scored": len(own[pair.a]),
                "n_traced": len(traced) or None,
                "n_used": len(users) if len(traced) else None,
                "change_used": _change_among_users(name, pair, own, users, method),
            }


_SCALED = {"change": "difference", "low": "low", "high": "high"}


def _scale(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit


def _split_by_use(runs: pd.DataFrame, use: SkillUse) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs that tell what they used of their treatment, and those of them that used something."""
    paths = runs.score.map(lambda score: score.run.path)
    return runs[paths.isin(list(use))], runs[paths.map(lambda path: bool(use.get(path)))]


def _read_quantity(name: str, agents: Mapping[str, pd.DataFrame]) -> _Quantity:
    """Samples for one quantity; runs where it is not known are left out.

    The statistics are about values between 0 and 1: what a run takes is divided by the most that one of these took;
    where none took any, there is nothing to compare.
    """
    if name in SCORES:
        return _Quantity({agent: list(runs["sample"]) for agent, runs in agents.items()}, SCORES[name], 1.0)
    column, one = USED.get(name, (name, 1.0))
    known = {agent: runs[runs[column].notna()] for agent, runs in agents.items()}
    largest = max((float(value) for runs in known.values() for value in runs[column]), default=0.0)
    unit = largest if name in USED else 1.0
    found = {
        agent: [
            replace(sample, agentic=float(value) / unit)
            for sample, value in zip(runs["sample"], runs[column], strict=True)
            if unit
        ]
        for agent, runs in known.items()
    }
    return _Quantity(found, "agentic", unit / one)


def _mean_of_base(quantity: _Quantity, pair: PairedComparison, method: StatisticsMethod) -> float:
    """Mean of the base on the cells of both."""
    first, second = (samples.group_cells(quantity.samples[agent]) for agent in (pair.a, pair.b))
    places = sorted(first.keys() & second.keys())
    weights = samples.cell_weights(places, [first[place].n + second[place].n for place in places], method.pooling)
    return float(weights @ samples.means(second, places, quantity.measure))


def _change_among_users(
    name: str,
    pair: PairedComparison,
    agents: Mapping[str, pd.DataFrame],
    users: pd.DataFrame,
    method: StatisticsMethod,
) -> float | None:
    """Difference of the runs that used their treatment to the base, on their cells; who uses them is no chance."""
    if users.empty:
        return None
    quantity = _read_quantity(name, {pair.a: users, pair.b: agents[pair.b]})
    (found,) = compare_pairs(quantity.samples, method, quantity.measure, pairs=[(pair.a, pair.b)])
    return _scale(found.difference, quantity.unit)
