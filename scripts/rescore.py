"""Show what scoring or judging finished runs again would change."""

from __future__ import annotations

from automedbench.base.console import run_script
from automedbench.steps.command_line import step_options, step_parser
from automedbench.steps.rescore import rescore


def main(arguments: list[str]) -> None:
    parser = step_parser(__doc__)
    parser.add_argument("--what", choices=["rescore", "rejudge"], required=True, help="what was done again")
    print("\n".join(rescore(**step_options(parser, arguments))))


if __name__ == "__main__":
    run_script(main)
