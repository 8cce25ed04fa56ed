"""Build the leaderboard: tables, charts, pages, and the ranking on the console."""

from __future__ import annotations

from automedbench.base.console import run_script
from automedbench.steps.command_line import step_options, step_parser


def main(arguments: list[str]) -> None:
    parser = step_parser(__doc__)
    parser.add_argument("--partial", action="store_true", help="take what is finished")
    from automedbench.steps.build_leaderboard import build_leaderboard  # not for the processes that write pages

    build_leaderboard(**step_options(parser, arguments))


if __name__ == "__main__":
    run_script(main)
