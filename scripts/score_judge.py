"""Judge stages S1–S3 of one run and write judge.json."""

from __future__ import annotations

import argparse
from pathlib import Path

from automedbench.console import run_script
from automedbench.judge import judge_conversation


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversation", type=Path, required=True, help="conversation.json of the run")
    parser.add_argument("--rubrics", type=Path, required=True, help="folder with skeleton.yaml and <track>.yaml")
    parser.add_argument("--track", required=True, help="track of the task, for example detection")
    parser.add_argument("--judge", default="heuristic", help="name of the judge (default: heuristic)")
    parser.add_argument("--out", type=Path, required=True, help="judge.json to write")
    options = parser.parse_args(arguments)
    judge_conversation(options.conversation, options.rubrics, options.track, options.judge, options.out)


if __name__ == "__main__":
    run_script(main)
