"""Write scored runs as logs of Inspect AI, one JSON file per agent, task and tier, for `inspect view`."""

from __future__ import annotations

import argparse
from itertools import groupby
from pathlib import Path

from automedbench.base.errors import ConfigError
from automedbench.base.files import write_json
from automedbench.base.plaintable import counted
from automedbench.commands._inspect_log import eval_log, log_name, read_logged_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``automedbench export-inspect``."""
    parser.add_argument("--results", type=Path, default=Path("results"), help="results of the campaign")
    parser.add_argument("--agent", help="only this agent")
    parser.add_argument("--task", help="only this task")
    parser.add_argument("--out", type=Path, required=True, help="folder for the logs")


def main(options: argparse.Namespace) -> None:
    """Write the logs and say how many."""
    pattern = f"{options.agent or '*'}/{options.task or '*'}/*/r*/score.json"
    scores = sorted((options.results / "runs").glob(pattern))
    if not scores:
        raise ConfigError([f"{options.results}/runs/{pattern}: no scored run; give --results, check agent and task"])
    cells = [list(paths) for _, paths in groupby(scores, key=lambda path: path.parents[1])]
    for paths in cells:
        runs = [read_logged_run(path.parent) for path in paths]
        write_json(options.out / log_name(runs), eval_log(runs))
    print(f"{counted(len(cells), 'log')} of {counted(len(scores), 'run')} in {options.out}")
    print(f"To read them: inspect view --log-dir {options.out}")
