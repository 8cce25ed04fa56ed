"""Check, before any agent runs, that the scorer of a task has the checkpoints and word lists that it needs.

The check runs in the scorer role, in the same container as scoring, so that a package that is missing there is found
here too. In a rehearsal it makes up there what the configuration does not name, and nothing that is missing stops it:
components whose models cannot be had are then left out of the score, which says so.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from automedbench.base.errors import MissingDataError
from automedbench.base.files import read_record, write_record
from automedbench.campaign.record import CampaignRecord
from automedbench.sandbox.container.roles import output_folder, run_role
from automedbench.steps.inside import check_resources


def preflight(campaign: CampaignRecord, task: str) -> check_resources.PreflightRecord:
    """Check one task's resources and write the record; raises MissingDataError that lists every problem.

    Only resources that exist are bound into the container; the others are reported by name.
    """
    resources, out = campaign.resources, campaign.results / "preflight" / f"{task}.json"
    made_up = campaign.made_up_resources
    there = {name: path for name, path in resources.items() if path.exists()}
    with output_folder(out) as folder:
        run_role(
            check_resources.__name__,
            ["--make-up"] if made_up else [],
            campaign.settings.sandbox.backend,
            campaign.scorer_image,
            {"card": campaign.card_path(task)},
            folder,
            resources=there,
        )
        record = read_record(folder / check_resources.REPORT, check_resources.PreflightRecord)
        if made_up:
            _move(folder / check_resources.MADE_UP, made_up)
    record = record.model_copy(update={"resources": {name: str(path) for name, path in resources.items()}})
    if record.problems and not made_up:
        absent = [f"resources.{name}: nothing is at {path}" for name, path in resources.items() if name not in there]
        problems = "\n".join(f"- {problem}" for problem in [*record.problems, *absent])
        raise MissingDataError(f"{task}: no agent is started, because its runs could not be scored:\n{problems}")
    write_record(out, record)
    return record


def _move(made: Path, place: Path) -> None:
    """Move what was made up to where scoring finds it; what another task's preflight put there stays."""
    place.mkdir(parents=True, exist_ok=True)
    for path in made.iterdir():
        with contextlib.suppress(OSError):
            path.rename(place / path.name)
