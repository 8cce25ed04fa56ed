"""Build the leaderboard: tables, charts, pages, and the ranking on the console."""

from __future__ import annotations

from automedbench.base.console import run_script


def main(arguments: list[str]) -> None:
    # Not for the processes that write pages, which import this file.
    from automedbench.steps.build_leaderboard import build_leaderboard
    from automedbench.steps.command_line import step_options, step_parser

    parser = step_parser(__doc__)
    parser.add_argument("--partial", action="store_true", help="take what is finished")
    build_leaderboard(**step_options(parser, arguments))


if __name__ == "__main__":
    run_script(main)
