"""Copy the expected files out of a workspace, and nothing else, and check their form."""

from __future__ import annotations

import argparse
from pathlib import Path

from automedbench.base.console import run_script
from automedbench.steps.inside.collect_submission import collect_submission


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--card", type=Path, required=True, help="task card")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest of the staged task")
    parser.add_argument("--run-record", type=Path, required=True, help="run.json")
    parser.add_argument("--workspace", type=Path, required=True, help="what the agent left behind")
    parser.add_argument("--submission", type=Path, required=True, help="folder for the copies")
    parser.add_argument("--sandbox", choices=["apptainer", "local"], default="apptainer")
    parser.add_argument("--image", type=Path, help="container image of the import role")
    parser.add_argument("--out", type=Path, required=True, help="submission.json to write")
    options = parser.parse_args(arguments)
    record = collect_submission(
        options.card,
        options.manifest,
        options.run_record,
        options.workspace,
        options.submission,
        options.out,
        backend=options.sandbox,
        image=options.image,
    )
    print(f"{record.run.path}: completed {record.completion_rate:.1%}, valid {record.valid_rate:.1%}")


if __name__ == "__main__":
    run_script(main)
