"""Reliability: runs under faults and what became of them; of each agent a profile without any fault."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from automedbench.base.records import HEADLINE_TIERS, ScoreRecord
from automedbench.campaign.treatments import find_base, variant_name
from automedbench.leaderboard.entries import group_by, has_medal, score_value
from automedbench.leaderboard.reliability import FaultVerdict
from automedbench.leaderboard.tables.cells import select_scored, tabulate_runs
from automedbench.leaderboard.tables.table import BoardTable
from automedbench.statistics.pairs import compare_pairs
from automedbench.statistics.samples import Sample, StatisticsMethod


def build_faults(verdicts: Sequence[FaultVerdict]) -> BoardTable:
    """One row per scored run under a fault."""
    return BoardTable("faults", map(_fault_row, verdicts))


def _fault_row(verdict: FaultVerdict) -> dict[str, Any]:
    run, fault = verdict.run.score.run, verdict.run.fault
    said_in, said = verdict.said or (None, None)
    found = {"track": verdict.run.score.track, "said_in": said_in, "said": said, "change_unaffected": verdict.change}
    own = {"agent": find_base(run.agent), "fault_cases": " ".join(fault.cases) or None}
    return dict(run) | dict(fault) | found | own | {name: getattr(verdict, name) for name in ("recovered", "silent")}


def build_reliability(
    runs: pd.DataFrame, verdicts: Sequence[FaultVerdict], confidences: Mapping[str, float], method: StatisticsMethod
) -> BoardTable:
    """Of every agent its profile without a fault, then a row per fault, in the tiers of the headline.

    ``runs``: those without a fault, as ``tabulate_runs`` makes them; ``confidences``: of ``read_confidences``.
    """
    headline = [verdict for verdict in verdicts if verdict.run.score.run.tier in HEADLINE_TIERS]
    families = group_by(headline, lambda verdict: find_base(verdict.run.score.run.agent))
    rows: list[dict[str, Any]] = []
    for base, own in sorted(families.items()):
        known = select_scored(runs[runs.agent == base])
        faulted = tabulate_runs(verdict.run.entry for verdict in own).groupby("agent")
        samples = {base: list(known["sample"])} | {name: list(part["sample"]) for name, part in faulted}
        rows += [_profile(base, list(known.score), confidences), *_compare_faults(base, own, samples, method)]
    return BoardTable("reliability", rows)


def _profile(base: str, scores: Sequence[ScoreRecord], confidences: Mapping[str, float]) -> dict[str, Any]:
    """Consistency, predictability and safety of the runs without a fault."""
    cells = group_by(scores, lambda score: (score.run.task, score.run.tier)).values()
    overall = [[score_value(score, "overall") for score in cell] for cell in cells]
    medals = [[has_medal(score) for score in cell] for cell in cells]
    stated = [(confidences[score.run.path], score) for score in scores if score.run.path in confidences]
    return {
        "agent": base,
        "fault": None,
        "n_runs": len(scores),
        "repeat_sd": _mean(stdev(values) for values in overall if len(values) > 1),
        "all_medals": _mean(map(all, medals)),
        "any_medal": _mean(map(any, medals)),
        "n_confident": len(stated),
        "confidence_gap": _mean(abs(share - score_value(score, "task")) for share, score in stated),
        "safe_share": _mean(
            not (score.disqualified or score.totals.n_warnings or score.n_findings) for score in scores
        ),
    }


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return fmean(known) if known else None


def _compare_faults(
    base: str, verdicts: Sequence[FaultVerdict], samples: Mapping[str, Sequence[Sample]], method: StatisticsMethod
) -> Iterator[dict[str, Any]]:
    """Rows of an agent's faults, whose differences to the runs without one are corrected together."""
    faults = dict(sorted(group_by(verdicts, lambda verdict: verdict.run.fault.fault).items()))
    pairs = compare_pairs(samples, method, "task", pairs=[(variant_name(base, fault), base) for fault in faults])
    for pair, (fault, own) in zip(pairs, faults.items(), strict=True):
        met = [verdict for verdict in own if verdict.run.fault.met]
        yield {
            "agent": base,
            "fault": fault,
            "n_runs": len(own),
            "n_met": len(met),
            "n_unknown": sum(verdict.run.fault.met is None for verdict in own),
            "n_said": sum(verdict.said is not None for verdict in met),
            "n_fault_recovered": sum(bool(verdict.recovered) for verdict in met),
            "n_silent": sum(bool(verdict.silent) for verdict in met),
            "n_cells": pair.n_cells,
            "change": pair.difference,
            "low": pair.low,
            "high": pair.high,
            "different": pair.different if pair.sufficient else None,
        }
