"""Get a task's raw data from the first source that works and write a receipt of every file."""

from __future__ import annotations

import argparse
from pathlib import Path

from automedbench.cards import load_card
from automedbench.console import run_script
from automedbench.datasets.fetch import fetch_dataset


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--card", type=Path, required=True, help="a task card that describes the data set")
    parser.add_argument("--path", type=Path, help="your own copy of the data in its upstream layout")
    parser.add_argument("--raw", type=Path, required=True, help="folder to fill; receipt.json is written into it")
    options = parser.parse_args(arguments)
    receipt = fetch_dataset(load_card(options.card), options.path, options.raw)
    print(f"{receipt.dataset}: {len(receipt.files)} files from {receipt.source}")


if __name__ == "__main__":
    run_script(main)
