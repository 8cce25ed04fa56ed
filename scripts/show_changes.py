"""Show what scoring or judging finished runs again would change."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from automedbench.base.console import run_script
from automedbench.steps.rescore import change_lines, read_changes, write_changes


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", choices=["rescore", "rejudge"], required=True, help="what was done again")
    parser.add_argument("--results", type=Path, required=True, help="folder with runs/ and again/")
    options = parser.parse_args(arguments)
    changes = read_changes(options.results, options.what)
    out = options.results / "again" / f"{options.what}.csv"
    write_changes(changes, options.what, out)
    shutil.rmtree(options.results / "again" / options.what)
    print("\n".join(change_lines(changes, options.what)))
    print(f"All runs: {out}")


if __name__ == "__main__":
    run_script(main)
