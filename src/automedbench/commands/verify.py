"""Check that everything that led to the score of a run is unchanged, back to its raw data.

Digests of records, collected files, brief, image, staged and raw data are compared, and the score is made again from
its records. What is not there is said, and is no difference. Exit code 0: all the same; 3: something differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from automedbench.base.errors import ConfigError
from automedbench.base.files import read_record
from automedbench.base.plaintable import table
from automedbench.base.records import RunRecord
from automedbench.base.yamlfile import suggestion
from automedbench.campaign.load import Campaign
from automedbench.commands._verification import Check, Surroundings, verify_run
from automedbench.judge.fencing import neutralise
from automedbench.planning.command_line import add_campaign_options, campaign_of

DIFFERS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``automedbench verify``."""
    parser.add_argument("runs", nargs="*", metavar="RUN", help="<agent>/<task>/<tier>/r<k>, or the folder of a run")
    parser.add_argument("--all", action="store_true", help="every scored run of the campaign")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--strict", action="store_true", help="what is not there counts as a difference")
    add_campaign_options(parser)


def main(options: argparse.Namespace) -> None:
    """Print one line per link and run; exit 0 or 3."""
    campaign = campaign_of(options)
    folders = _folders(options, Path(campaign.config.results) / "runs")
    found = {str(folder): verify_run(folder, surroundings(campaign, folder)) for folder in folders}
    if options.json:
        print(json.dumps({name: [vars(check) for check in checks] for name, checks in found.items()}, indent=2))
    else:
        _show(found)
    bad = {"differs", "absent"} if options.strict else {"differs"}
    if any(check.verdict in bad for checks in found.values() for check in checks):
        sys.exit(DIFFERS)


def surroundings(campaign: Campaign, folder: Path) -> Surroundings:
    """Where the campaign keeps what a run was made from."""
    task, data = read_record(folder / "run.json", RunRecord).run.task, campaign.config.data
    image = campaign.config.image("agent")
    return Surroundings(
        card=campaign.cards.get(task),
        manifests=Path(data.manifests),
        public=Path(data.public),
        private=Path(data.private),
        raw=Path(data.raw),
        image=Path(image) if image else None,
    )


def _folders(options: argparse.Namespace, runs: Path) -> list[Path]:
    """Folders of the runs that were asked for; raises ConfigError naming the nearest run of an unknown one."""
    scored = sorted(path.parent for path in runs.glob("*/*/*/r*/score.json"))
    if options.all:
        if not scored:
            raise ConfigError([f"{runs}: holds no scored run; name the campaign with --configfile"])
        return scored
    if not options.runs:
        raise ConfigError(["name a RUN (<agent>/<task>/<tier>/r<k>), or --all"])
    known = [path.relative_to(runs).as_posix() for path in scored]
    folders = [runs / name if (runs / name / "score.json").is_file() else Path(name) for name in options.runs]
    problems = [
        f"{name}: no scored run of that name below {runs}{suggestion(name, known)}"
        for name, folder in zip(options.runs, folders, strict=True)
        if not (folder / "score.json").is_file()
    ]
    if problems:
        raise ConfigError(problems)
    return folders


def _show(found: dict[str, list[Check]]) -> None:
    for name, checks in found.items():
        counts = {verdict: sum(check.verdict == verdict for check in checks) for verdict in ("differs", "absent")}
        if len(found) > 1 and not counts["differs"]:
            print(f"{name}: same" + (f", {counts['absent']} not there to compare" if counts["absent"] else ""))
            continue
        print(f"{name}:")
        for line in table([(f"  {check.what}", check.verdict, neutralise(check.detail)) for check in checks]):
            print(line)
