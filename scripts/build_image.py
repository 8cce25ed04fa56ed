"""Build one container image from a definition file and a pinned list of packages."""

from __future__ import annotations

from automedbench.base.console import run_script
from automedbench.steps.build_image import build_image
from automedbench.steps.command_line import step_options, step_parser


def main(arguments: list[str]) -> None:
    parser = step_parser(__doc__)
    parser.add_argument("--image", required=True, help="which one: containers/<image>.def; light, research, scorer")
    parser.add_argument("--download-only", action="store_true", help="fetch the wheels and stop")
    build_image(**step_options(parser, arguments))


if __name__ == "__main__":
    run_script(main)
