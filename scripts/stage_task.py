"""Turn raw data into public cases, private answers and a manifest."""

from __future__ import annotations

from automedbench.base.console import run_script
from automedbench.base.option_types import whole_number
from automedbench.steps.command_line import step_options, step_parser
from automedbench.steps.stage_task import stage_task


def main(arguments: list[str]) -> None:
    parser = step_parser(__doc__, "task")
    parser.add_argument("--workers", type=whole_number(1), default=1, metavar="N", help="cases worked on at a time (1)")
    manifest = stage_task(**step_options(parser, arguments))
    print(f"{manifest.task}: {len(manifest.cases)} cases staged")


if __name__ == "__main__":
    run_script(main)
