"""Bring everything known about one run together and write score.json."""

from __future__ import annotations

import argparse
from pathlib import Path

from automedbench.base.console import run_script
from automedbench.scoring import score_files


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--card", type=Path, required=True, help="task card")
    parser.add_argument("--run-record", type=Path, required=True, help="run.json")
    parser.add_argument("--submission", type=Path, required=True, help="submission.json")
    parser.add_argument("--audit", type=Path, required=True, help="audit.json")
    parser.add_argument("--detail-report", type=Path, required=True, help="detail_report.json")
    parser.add_argument("--judge-record", type=Path, required=True, help="judge.json")
    parser.add_argument("--conversation", type=Path, required=True, help="conversation.json (for the error codes)")
    parser.add_argument("--out", type=Path, required=True, help="score.json to write")
    score_files(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    run_script(main)
