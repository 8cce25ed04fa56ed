"""Fill the cache of models and packages: lite checkpoints of the tasks, and what sandbox.egress names."""

from __future__ import annotations

from automedbench.base.console import run_script
from automedbench.steps.command_line import step_options, step_parser
from automedbench.steps.fill_cache import fill_cache


def main(arguments: list[str]) -> None:
    parser = step_parser(__doc__)
    parser.add_argument("--tasks", nargs="*", default=[], metavar="TASK", help="tasks whose lite checkpoints are got")
    record = fill_cache(**step_options(parser, arguments))
    print(f"The cache {record.folder} is filled; delete the folder to free its space, nothing else needs it.")


if __name__ == "__main__":
    run_script(main)
