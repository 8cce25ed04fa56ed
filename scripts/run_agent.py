"""Let one agent do one task once: brief, loop, sandbox, result. What was interrupted goes on where it was."""

from __future__ import annotations

from automedbench.agent.run import run_agent
from automedbench.base.console import run_script
from automedbench.planning.run_command import read_plan


def main(arguments: list[str]) -> None:
    """Read the options, call the package, say how it ended."""
    plan, count_invalid = read_plan(arguments, __doc__)
    record = run_agent(plan, count_invalid=count_invalid)
    print(f"{record.run.path}: {record.outcome} ({record.detail}) in {record.totals.turns} turns")


if __name__ == "__main__":
    run_script(main)
