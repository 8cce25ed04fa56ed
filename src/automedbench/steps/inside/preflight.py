"""Before any agent runs: does the scorer of a task have the checkpoints and word lists that it needs?

``main`` runs in the scorer role, in the same container as scoring, so that a package that is missing there is found
here too.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field

from automedbench.base.cards import load_card
from automedbench.base.errors import MissingDataError
from automedbench.base.files import read_record, write_json, write_record
from automedbench.base.records import Model, now
from automedbench.sandbox.container.roles import Backend, add_resource_option, output_folder, run_scorer_role
from automedbench.tracks import preflight

REPORT = "preflight.json"


class PreflightRecord(Model):
    """``results/preflight/<task>.json``: the scorer of the task had what it needs."""

    schema_: Literal["automedbench/preflight/1"] = Field("automedbench/preflight/1", alias="schema")
    task: str
    resources: dict[str, str] = Field(description="name → place that the configuration gives")
    problems: list[str] = Field(description="what is missing or unusable and how to get it")
    checked_at: datetime


def run_preflight(
    card: Path, resources: Mapping[str, Path], out: Path, *, backend: Backend, image: Path | None
) -> PreflightRecord:
    """Check one task's resources and write the record; raises MissingDataError that lists every problem.

    Only resources that exist are bound into the container; the others are reported by name.
    """
    task = load_card(card).id
    there = {name: path for name, path in resources.items() if path.exists()}
    with output_folder(out) as folder, tempfile.TemporaryDirectory(prefix="automedbench-preflight-") as name:
        empty = Path(name)
        write_json(empty / "nothing.json", {})
        run_scorer_role(
            __name__,
            [],
            backend,
            image,
            card=card,
            manifest=empty / "nothing.json",
            public=empty,
            private=empty,
            submission=empty,
            submission_record=empty / "nothing.json",
            output=folder,
            resources=there,
        )
        record = read_record(folder / REPORT, PreflightRecord)
    record = record.model_copy(update={"resources": {name: str(path) for name, path in resources.items()}})
    if record.problems:
        absent = [f"resources.{name}: nothing is at {path}" for name, path in resources.items() if name not in there]
        problems = "\n".join(f"- {problem}" for problem in [*record.problems, *absent])
        raise MissingDataError(f"{task}: no agent is started, because its runs could not be scored:\n{problems}")
    write_record(out, record)
    return record


def main(arguments: list[str]) -> None:
    """Check inside the scorer role."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("card", "manifest", "private", "submission", "submission-record", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    add_resource_option(parser)
    options = parser.parse_args(arguments)
    card = load_card(options.card, named=False)
    problems = preflight(card, dict(options.resource)) or []
    record = PreflightRecord(task=card.id, resources={}, problems=problems, checked_at=now())
    write_record(options.output / REPORT, record)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
