"""Take the expected files of what an agent left, and nothing else, and check their form."""

from __future__ import annotations

from automedbench.base.console import run_script
from automedbench.steps.collect_submission import collect_submission
from automedbench.steps.command_line import step_options, step_parser


def main(arguments: list[str]) -> None:
    record = collect_submission(**step_options(step_parser(__doc__, "run"), arguments))
    print(f"{record.run.path}: completed {record.completion_rate:.1%}, valid {record.valid_rate:.1%}")


if __name__ == "__main__":
    run_script(main)
