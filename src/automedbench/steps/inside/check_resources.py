"""Preflight inside the scorer role: resources that a task's scorer lacks, found where it will score."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field

from automedbench.base.cards import load_card
from automedbench.base.files import write_record
from automedbench.base.option_types import add_resource_option
from automedbench.base.records import Model, now
from automedbench.planning.rehearsal import make_up_resources
from automedbench.tracks import preflight

REPORT, MADE_UP = "preflight.json", "resources"


class PreflightRecord(Model):
    """``results/preflight/<task>.json``: the scorer of the task had what it needs."""

    schema_: Literal["automedbench/preflight/1"] = Field("automedbench/preflight/1", alias="schema")
    task: str
    resources: dict[str, str] = Field(description="name → place that the configuration gives")
    problems: list[str] = Field(description="what is missing or unusable and how to get it")
    checked_at: datetime


def main(arguments: list[str]) -> None:
    """Check inside the scorer role."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("card", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--make-up", action="store_true", help="make up resources that are not given (a rehearsal)")
    add_resource_option(parser)
    options = parser.parse_args(arguments)
    card = load_card(options.card, named=False)
    made_up = make_up_resources(options.output / MADE_UP) if options.make_up else {}
    problems = preflight(card, made_up | dict(options.resource)) or []
    record = PreflightRecord(task=card.id, resources={}, problems=problems, checked_at=now())
    write_record(options.output / REPORT, record)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
