"""Check, before any agent runs, that the scorer of a task has the checkpoints and word lists that it needs."""

from __future__ import annotations

from automedbench.base.console import run_script
from automedbench.steps.command_line import step_options, step_parser
from automedbench.steps.preflight import preflight


def main(arguments: list[str]) -> None:
    record = preflight(**step_options(step_parser(__doc__, "task"), arguments))
    print(f"{record.task}: everything its scorer needs is there")


if __name__ == "__main__":
    run_script(main)
