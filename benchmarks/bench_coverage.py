"""How often an interval holds the true score: simulated campaigns of many designs (docs/statistics.md has the table).

    python benchmarks/bench_coverage.py                         # all designs, one row each; half an hour on one core
    python benchmarks/bench_coverage.py --tasks 1 4 --runs 4000

Prints a Markdown table: coverage of the 95 % intervals of the three measures in percent.
"""

from __future__ import annotations

import argparse
import os
import sys
from itertools import product
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # one core: before numpy is loaded

import numpy as np  # noqa: E402

from automedbench.statistics.intervals import MIN_TASKS, intervals  # noqa: E402
from automedbench.statistics.samples import MEASURES  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "unit"))
from statistics_simulation import FAILURES, Design, population_truth, simulate  # noqa: E402

LARGE = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 4, 7, 24, 48])
    parser.add_argument("--tiers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, nargs="+", default=[3, 5, 10])
    parser.add_argument("--cases", type=int, nargs="+", default=[0, 20, 100, 500], help="0: no mean over cases")
    parser.add_argument("--runs", type=int, default=2000, help="simulated campaigns per design; a fifth of large ones")
    parser.add_argument("--failures", type=float, nargs=2, default=FAILURES, help="Beta distribution of failures")
    options = parser.parse_args()
    print("| tasks | tiers | repeats | cases | campaigns | overall | agentic | task |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for numbers in product(options.tasks, options.tiers, options.repeats, options.cases):
        design = Design(*numbers[:3], numbers[3] or None)
        large = numbers[0] * numbers[1] * numbers[2] * max(numbers[3], 10) > LARGE
        print(row(design, options.runs // (5 if large else 1), tuple(options.failures)), flush=True)


def row(design: Design, n: int, failures: tuple[float, float]) -> str:
    """Coverage of one design."""
    sampled = design.tasks >= MIN_TASKS
    population = {
        measure: population_truth(design.cases is not None, measure, failures) if sampled else 0.0
        for measure in MEASURES
    }
    hits = dict.fromkeys(MEASURES, 0)
    for campaign in simulate(np.random.default_rng([7, *numbers(design)]), design, n, failures):
        found = intervals(campaign.samples)
        for measure in MEASURES:
            truth = population[measure] if sampled else campaign.truth(measure)
            low, high = found[measure].low, found[measure].high
            hits[measure] += low is not None and high is not None and low - 1e-9 <= truth <= high + 1e-9
    shares = [f"{100 * hits[measure] / n:.1f}" for measure in MEASURES]
    return f"| {' | '.join(map(str, [*numbers(design), n, *shares]))} |"


def numbers(design: Design) -> list[int]:
    return [design.tasks, design.tiers, design.repeats, design.cases or 0]


if __name__ == "__main__":
    main()
