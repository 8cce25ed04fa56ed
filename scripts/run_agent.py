"""Let one agent do one task once: brief, loop, sandbox, result. What was interrupted goes on where it was."""

from __future__ import annotations

from automedbench.base.console import run_script
from automedbench.steps.command_line import step_options, step_parser
from automedbench.steps.run_agent import run_agent


def main(arguments: list[str]) -> None:
    record = run_agent(**step_options(step_parser(__doc__, "run"), arguments))
    print(f"{record.run.path}: {record.outcome} ({record.detail}) in {record.totals.turns} turns")


if __name__ == "__main__":
    run_script(main)
