"""What the public release's own scorers say of the same outputs: a second opinion on every scored run of a preset.

They run in the scorer's container: no network, the copy of the release read-only, an agent's files as they were
collected. Exit code 0: no task differs by more than rounding; 3: one does, or could not be scored.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import read_record
from automedbench.base.plaintable import table
from automedbench.base.records import DetailReport
from automedbench.campaign.load import build_campaign_record
from automedbench.campaign.record import CampaignRecord
from automedbench.commands._campaign import add_campaign_options, select_campaign
from automedbench.commands._check import DIFFERS
from automedbench.commands._output import show
from automedbench.sandbox.airlock.archive import unpack_submission
from automedbench.sandbox.container.roles import output_folder, run_role
from automedbench.steps.inside import second_opinion

ROUNDING = 2e-4
"""The release rounds some of its means to four places, one after the other."""


@dataclass(frozen=True)
class SecondOpinion:
    """Task scores of one run, ours and the release's; ``problem`` says why there is none of the release."""

    run: str
    task: str
    ours: float
    release: float | None
    problem: str = ""

    @property
    def agrees(self) -> bool:
        """Both are there, and as far apart as rounding explains."""
        return self.release is not None and abs(self.ours - self.release) <= ROUNDING


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``automedbench second-opinion``."""
    add_campaign_options(parser)


def main(options: argparse.Namespace) -> None:
    """Print a row per task and what went wrong; exit 0 or 3."""
    campaign = build_campaign_record(select_campaign(options))
    if campaign.settings.release is None:
        raise ConfigError(["config: release: is not set; only runs under a preset have a release's scorer"])
    folders = sorted(path.parent for path in (campaign.results / "runs").glob("*/*/*/r*/detail_report.json"))
    found = [compare_run(campaign, folder, Path(campaign.settings.release)) for folder in folders]
    show(options, found, comparison_lines(found))
    if not all(one.agrees for one in found):
        sys.exit(DIFFERS)


def compare_run(campaign: CampaignRecord, folder: Path, release: Path) -> SecondOpinion:
    """Score the collected outputs of a run again, by the release; a scorer that fails becomes the problem."""
    files = campaign.run_files(folder)
    ours = read_record(folder / "detail_report.json", DetailReport).task_score
    try:
        with unpack_submission(files) as submission, output_folder(folder / second_opinion.OPINION) as output:
            run_role(
                second_opinion.__name__,
                ["--task", files.run.task],
                campaign.settings.sandbox.backend,
                campaign.scorer_image,
                {"submission": submission},
                output,
                resources={"release": release, "conversation": files.file("conversation.json")},
            )
            score = read_record(output / second_opinion.OPINION, second_opinion.Opinion).score
    except InfrastructureError as error:
        return SecondOpinion(files.run.path, files.run.task, ours, None, str(error).partition("\n")[0])
    return SecondOpinion(files.run.path, files.run.task, ours, score)


def comparison_lines(found: Iterable[SecondOpinion]) -> Iterator[str]:
    """Table of the tasks with means over the runs that both scored, then the runs that the release did not score."""
    runs = list(found)
    rows = [("task", "runs", "ours", "release", "largest difference")]
    for task in sorted({one.task for one in runs}):
        both = [(one.ours, one.release) for one in runs if one.task == task and one.release is not None]
        if both:
            ours, theirs = (sum(values) / len(both) for values in zip(*both, strict=True))
            largest = max((mine - other for mine, other in both), key=abs)
            rows.append((task, str(len(both)), f"{ours:.4f}", f"{theirs:.4f}", f"{largest:+.1e}"))
    yield from table(rows, right={1, 2, 3, 4})
    yield from (f"{one.run}: {one.problem}" for one in runs if one.problem)
