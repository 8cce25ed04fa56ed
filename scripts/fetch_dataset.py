"""Get a data set from the first of its sources that works and write a receipt of every file."""

from __future__ import annotations

from automedbench.base.console import run_script
from automedbench.steps.command_line import step_options, step_parser
from automedbench.steps.fetch_dataset import fetch_dataset


def main(arguments: list[str]) -> None:
    parser = step_parser(__doc__, "dataset")
    parser.add_argument("--check", action="store_true", help="read every file that is there, not only size and time")
    receipt = fetch_dataset(**step_options(parser, arguments))
    print(f"{receipt.dataset}: {len(receipt.files)} files from {receipt.source}")


if __name__ == "__main__":
    run_script(main)
