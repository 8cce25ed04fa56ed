"""Build the leaderboard: tables, charts, pages, and the ranking on the console."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from automedbench.base.console import run_script
from automedbench.base.option_types import confidence, whole_number
from automedbench.leaderboard.build import build_leaderboard
from automedbench.leaderboard.console import print_ranking

SHOWN = 10


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="folder with runs/")
    parser.add_argument("--planned", type=Path, required=True, help="plan.json: the runs that the campaign asks for")
    parser.add_argument("--cards", nargs="+", required=True, help="folders with task cards")
    parser.add_argument("--rubrics", type=Path, default=Path("config/rubrics"), help="folder with rubrics")
    parser.add_argument("--pooling", choices=["tasks", "runs"], default="tasks")
    parser.add_argument("--confidence", type=confidence, default=0.95, help="of intervals and ties")
    parser.add_argument(
        "--resamples", type=whole_number(1), default=2000, help="of the bootstrap and the permutation test"
    )
    parser.add_argument("--partial", action=argparse.BooleanOptionalAction, default=False, help="take what is finished")
    parser.add_argument("--out", type=Path, required=True, help="folder for index.html and the tables")
    options = parser.parse_args(arguments)
    built = build_leaderboard(
        options.results,
        options.planned,
        options.cards,
        options.rubrics,
        options.out,
        pooling=options.pooling,
        confidence=options.confidence,
        resamples=options.resamples,
        partial=options.partial,
    )
    print_ranking(built.ranking, built.method)
    for path, reason in list(built.unreadable.items())[:SHOWN]:
        print(f"Counted as missing: {path}: {reason}", file=sys.stderr)
    if (more := len(built.unreadable) - SHOWN) > 0:
        print(f"Counted as missing: {more} more; the page names all of them.", file=sys.stderr)
    print(f"Page: {built.page}")


if __name__ == "__main__":
    run_script(main)
