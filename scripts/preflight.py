"""Check, before any agent runs, that the scorer of a task has the checkpoints and word lists that it needs."""

from __future__ import annotations

import argparse
from pathlib import Path

from automedbench.base.console import run_script
from automedbench.sandbox.container.roles import add_resource_option
from automedbench.steps.inside.preflight import run_preflight


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--card", type=Path, required=True, help="task card")
    add_resource_option(parser)
    parser.add_argument("--sandbox", choices=["apptainer", "local"], default="apptainer")
    parser.add_argument("--image", type=Path, help="container image of the scorer role")
    parser.add_argument("--out", type=Path, required=True, help="record to write when all is there")
    options = parser.parse_args(arguments)
    record = run_preflight(
        options.card, dict(options.resource), options.out, backend=options.sandbox, image=options.image
    )
    print(f"{record.task}: everything its scorer needs is there")


if __name__ == "__main__":
    run_script(main)
