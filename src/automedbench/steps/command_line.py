"""Command line of a step: ``--campaign FILE`` and what the step works on, the same words for every step."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from automedbench.base.files import set_sharing
from automedbench.campaign.record import RunFiles, read_campaign

WORKS_ON: dict[str, dict[str, Any]] = {
    "run": {"type": Path, "metavar": "FOLDER", "help": "folder of the run: results/runs/<agent>/<task>/<tier>/r<k>"},
    "task": {"metavar": "NAME", "help": "id of the task"},
    "dataset": {"metavar": "NAME", "help": "name of the data set"},
}


def step_parser(description: str | None, *works_on: str) -> argparse.ArgumentParser:
    """Options of a step; its parsed ``campaign`` is the record in that file."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--campaign", type=read_campaign, required=True, metavar="FILE", help="settings: <results>/campaign.json"
    )
    for name in works_on:
        parser.add_argument(f"--{name}", required=True, **WORKS_ON[name])
    if "run" in works_on:
        parser.add_argument("--log", action="store_true", help="print into logs/<rule>/<agent>/<task>-<tier>-r<k>.log")
    return parser


def step_options(parser: argparse.ArgumentParser, arguments: list[str]) -> dict[str, Any]:
    """The options by name. With ``--log``, all that is printed from here on goes into the log of the step's rule.

    A redirection in the rule would write the run's name into every command twice. Raises ConfigError when the folder
    is not that of a run.
    """
    options = vars(parser.parse_args(arguments))
    set_sharing(options["campaign"].settings.share)
    if options.pop("log", False):
        print_into(run_log(Path(parser.prog).stem, options["campaign"].run_files(options["run"])))
    return options


def run_log(step: str, files: RunFiles) -> Path:
    """Log of the rule that does the step for a run: ``score_metrics``, or ``rescore_metrics`` for a run done again."""
    rule = f"{files.again}_{step.removeprefix('score_')}" if files.again else step
    agent, name = files.run.path.split("/", 1)
    return Path("logs", rule, agent, f"{name.replace('/', '-')}.log")


def print_into(log: Path) -> None:
    """Replace standard output and error, of this process and of those that it starts, by the file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)
