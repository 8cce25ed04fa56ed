"""Weigh the evidence of broken rules in a run: clean, warned or disqualified."""

from __future__ import annotations

from automedbench.base.console import run_script
from automedbench.steps.audit_run import audit_run
from automedbench.steps.command_line import step_options, step_parser


def main(arguments: list[str]) -> None:
    record = audit_run(**step_options(step_parser(__doc__, "run"), arguments))
    print(f"{record.run.path}: {record.verdict}, {len(record.findings)} findings")


if __name__ == "__main__":
    run_script(main)
