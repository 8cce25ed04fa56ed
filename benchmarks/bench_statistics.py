"""How long the statistics of a large leaderboard take, and how much memory they add.

    python benchmarks/bench_statistics.py                    # 10 080 runs: 3 agents × 48 tasks × 2 tiers × 35 repeats
    python benchmarks/bench_statistics.py --agents 8 --repeats 5

Prints one JSON line: seconds per part, their sum, and the peak memory that was added to that of the runs themselves.
Everything is done that the leaderboard needs: intervals of every row and measure, ranks, pairs and ties of the
overall table and of every track and task.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # one core: before numpy is loaded

import numpy as np  # noqa: E402

from automedbench.statistics.intervals import intervals  # noqa: E402
from automedbench.statistics.pairs import compare_pairs, rank_ranges, tie_groups  # noqa: E402
from automedbench.statistics.samples import MEASURES, Sample, StatisticsMethod  # noqa: E402

TIERS = ("lite", "standard")
N_TRACKS = 7
Table = Mapping[str, Sequence[Sample]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=35)
    parser.add_argument("--cases", type=int, default=72)
    parser.add_argument("--resamples", type=int, default=2000)
    options = parser.parse_args()
    runs = synthetic_runs(options)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tables = list(all_tables(runs))
    figures: dict[str, float] = {"runs": sum(map(len, runs.values())), "tables": len(tables)}
    figures |= timed("intervals_s", lambda: all_intervals(runs, options.resamples))
    figures |= timed("pairs_s", lambda: all_pairs(tables, options.resamples))
    figures["total_s"] = round(sum(value for name, value in figures.items() if name.endswith("_s")), 2)
    figures["added_mb"] = round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000)
    print(json.dumps(figures))


def timed(name: str, action: Callable[[], object]) -> dict[str, float]:
    start = time.monotonic()
    action()
    return {name: round(time.monotonic() - start, 2)}


def synthetic_runs(options: argparse.Namespace) -> dict[str, list[Sample]]:
    chance = np.random.default_rng(1)
    return {
        f"agent-{agent}": [
            make_run(chance, f"task-{task:02d}", tier, repeat, options.cases)
            for task in range(options.tasks)
            for tier in TIERS
            for repeat in range(1, options.repeats + 1)
        ]
        for agent in range(options.agents)
    }


def make_run(chance: np.random.Generator, task: str, tier: str, repeat: int, n_cases: int) -> Sample:
    cases = chance.random(n_cases) * (chance.random() > 0.1)
    return Sample(task, tier, repeat, float(chance.random()), float(cases.mean()), cases)


def track_of(sample: Sample) -> int:
    return int(sample.task[-2:]) % N_TRACKS


def all_tables(runs: Table) -> list[Table]:
    """The overall table, one per track and one per task."""
    tasks = sorted({sample.task for own in runs.values() for sample in own})
    tracks = [
        {name: [sample for sample in own if track_of(sample) == track] for name, own in runs.items()}
        for track in range(N_TRACKS)
    ]
    by_task = {
        name: {key: list(group) for key, group in groupby(own, lambda run: run.task)} for name, own in runs.items()
    }
    return [runs, *tracks, *({name: by_task[name][task] for name in runs} for task in tasks)]


def all_intervals(runs: Table, resamples: int) -> None:
    for own in runs.values():
        scopes: list[Callable[[Sample], object]] = [
            lambda run: "all",
            track_of,
            lambda run: run.task,
            lambda run: (run.task, run.tier),
        ]
        for scope in scopes:
            groups: dict[object, list[Sample]] = {}
            for sample in own:
                groups.setdefault(scope(sample), []).append(sample)
            for group in groups.values():
                intervals(group, StatisticsMethod(resamples=resamples))


def all_pairs(tables: Sequence[Table], resamples: int) -> None:
    for table in tables:
        for measure in MEASURES:
            pairs = compare_pairs(table, StatisticsMethod(resamples=resamples), measure)
            tie_groups(sorted(table), pairs)
            rank_ranges(sorted(table), pairs)


if __name__ == "__main__":
    main()
