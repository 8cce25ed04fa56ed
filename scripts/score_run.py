"""Bring everything known about one run together and write score.json."""

from __future__ import annotations

from automedbench.base.console import run_script
from automedbench.steps.command_line import step_options, step_parser
from automedbench.steps.score_run import score_run


def main(arguments: list[str]) -> None:
    score_run(**step_options(step_parser(__doc__, "run"), arguments))


if __name__ == "__main__":
    run_script(main)
