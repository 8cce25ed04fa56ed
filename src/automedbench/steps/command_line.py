"""Command line of a step: ``--campaign FILE`` and what the step works on, the same words for every step."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from automedbench.campaign.load import read_campaign

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
    return parser
