"""Get a task's raw data from the first source that works and write a receipt of every file."""

from __future__ import annotations

import argparse
from pathlib import Path

from automedbench.base.cards import load_card
from automedbench.base.console import run_script
from automedbench.datasets.download.access import read_mirrors
from automedbench.datasets.download.fetch import fetch_dataset
from automedbench.datasets.download.rehearsal import made_up


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--card", type=Path, required=True, help="a task card that describes the data set")
    parser.add_argument("--path", type=Path, help="your own copy of the data in its upstream layout")
    parser.add_argument("--raw", type=Path, required=True, help="folder to fill; receipt.json is written into it")
    parser.add_argument(
        "--mirror",
        action="append",
        default=[],
        metavar="HOST=URL",
        help="ask this URL instead of https://HOST, without credentials; may be given several times",
    )
    parser.add_argument(
        "--offline", action=argparse.BooleanOptionalAction, default=False, help="use only what is there already"
    )
    parser.add_argument("--workers", type=int, default=4, help="files that are downloaded at a time")
    parser.add_argument("--check", action="store_true", help="read every file that is there, not only size and time")
    parser.add_argument(
        "--fixtures",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="take a tiny made-up stand-in of the data set from a server on this machine",
    )
    options = parser.parse_args(arguments)
    card = load_card(options.card)
    settings = {"offline": options.offline, "workers": options.workers, "check": options.check}
    if options.fixtures and options.path is None:
        with made_up(card.dataset.name) as (mirrors, own):
            receipt = fetch_dataset(card, own, options.raw, mirrors=mirrors, stand_in=True, **settings)
    else:
        receipt = fetch_dataset(card, options.path, options.raw, mirrors=read_mirrors(options.mirror), **settings)
    print(f"{receipt.dataset}: {len(receipt.files)} files from {receipt.source}")


if __name__ == "__main__":
    run_script(main)
