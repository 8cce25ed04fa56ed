"""Turn raw data into public cases, private answers and a manifest."""

from __future__ import annotations

import argparse
from pathlib import Path

from automedbench.base.console import run_script
from automedbench.steps.stage_task import refuse_made_up, stage_task


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--card", type=Path, required=True, help="task card")
    parser.add_argument("--raw", type=Path, required=True, help="folder of the data set, with its receipt")
    parser.add_argument("--public", type=Path, required=True, help="root of what agents see")
    parser.add_argument("--private", type=Path, required=True, help="root of held-out answers")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest to write")
    parser.add_argument(
        "--excerpt", action="store_true", help="the raw data is a part of the data set: stage all of it"
    )
    parser.add_argument("--fixtures", action="store_true", help="the raw data may be made up, as in a rehearsal")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="cases worked on at a time (1)")
    options = parser.parse_args(arguments)
    if options.workers < 1:
        parser.error("--workers: at least 1 is needed")
    if not options.fixtures:
        refuse_made_up(options.raw)
    manifest = stage_task(
        options.card,
        options.raw,
        options.public,
        options.private,
        options.manifest,
        excerpt=options.excerpt,
        workers=options.workers,
    )
    print(f"{manifest.task}: {len(manifest.cases)} cases staged")


if __name__ == "__main__":
    run_script(main)
