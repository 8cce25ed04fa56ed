"""Weigh the evidence of broken rules in a run: clean, warned or disqualified."""

from __future__ import annotations

import argparse
from pathlib import Path

from automedbench.base.console import run_script
from automedbench.sandbox.evidence.audit import audit_files


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-record", type=Path, required=True, help="run.json")
    parser.add_argument(
        "--conversation", type=Path, help="conversation.json: searched for text that addresses the judge"
    )
    parser.add_argument("--log", type=Path, required=True, help="folder of the event log")
    parser.add_argument("--submission", type=Path, required=True, help="folder of the collected files")
    parser.add_argument("--submission-record", type=Path, required=True, help="submission.json")
    parser.add_argument("--max-warnings", type=int, default=1, help="warnings before the next one disqualifies")
    parser.add_argument("--decision", type=Path, help="decision.yaml of an operator, if the run has one")
    parser.add_argument("--out", type=Path, required=True, help="audit.json to write")
    options = parser.parse_args(arguments)
    record = audit_files(**vars(options))
    print(f"{record.run.path}: {record.verdict}, {len(record.findings)} findings")


if __name__ == "__main__":
    run_script(main)
