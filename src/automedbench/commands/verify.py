"""Check that everything that led to the score of a run is unchanged, back to its raw data.

Digests of records, collected files, brief, image, staged and raw data are compared, and the score is made again from
its records. What is missing is reported, and is no difference. Exit code 0: all the same; 3: something differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.base.files import read_record, sha256_file
from automedbench.base.records import FileEntry, Manifest, Receipt, RunRecord, ScoreRecord, SubmissionRecord
from automedbench.base.yamlfile import suggestion
from automedbench.campaign.config import DataPaths
from automedbench.campaign.load import Campaign
from automedbench.campaign.record import RunFiles
from automedbench.commands._campaign import add_campaign_options, select_campaign
from automedbench.commands._check import DIFFERS, Check, check_lines, check_score, same_unless
from automedbench.commands._output import show
from automedbench.sandbox.airlock.archive import collected_files, unpack_submission
from automedbench.sandbox.container.layer import layer_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``automedbench verify``."""
    parser.add_argument("runs", nargs="*", metavar="RUN", help="<agent>/<task>/<tier>/r<k>, or the folder of a run")
    parser.add_argument("--all", action="store_true", help="every scored run of the campaign")
    parser.add_argument("--strict", action="store_true", help="what is not there counts as a difference")
    add_campaign_options(parser)


def main(options: argparse.Namespace) -> None:
    """Print one line per link and run; exit 0 or 3."""
    campaign = select_campaign(options)
    folders = _select_folders(options, Path(campaign.config.results) / "runs")
    found = {str(folder): verify_run(folder, campaign) for folder in folders}
    show(options, found, check_lines(found))
    bad = {"differs", "absent"} if options.strict else {"differs"}
    if any(check.verdict in bad for checks in found.values() for check in checks):
        sys.exit(DIFFERS)


def _select_folders(options: argparse.Namespace, runs: Path) -> list[Path]:
    """Folders of the runs that were asked for; raises ConfigError naming the nearest run of an unknown one."""
    scored = sorted(path.parent for path in runs.glob("*/*/*/r*/score.json"))
    if options.all:
        if not scored:
            raise ConfigError([f"{runs}: contains no scored run; name the campaign with --results or --configfile"])
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


# A chain from the score backwards: ``score.json`` names the records it was made of, ``submission.json`` the collected
# files, ``run.json`` brief, staged cases and image, the manifest the staged files, the receipt the raw ones.


def verify_run(folder: Path, campaign: Campaign) -> list[Check]:
    """Check every link from the score of the run in ``folder`` back to its data, image and layer.

    Raises MissingDataError when the run has no score, InfrastructureError when score or run record cannot be read.
    """
    score = read_record(folder / "score.json", ScoreRecord)
    run, config = read_record(folder / "run.json", RunRecord), campaign.config
    agent = campaign.agents.get(run.run.agent)
    image = config.image(config.flavour(agent.image if agent else None))
    layer = layer_path(Path(config.containers.folder), agent.layer) if agent and agent.layer else None
    return [
        check_records(folder, score),
        check_score(folder, campaign.cards.get(run.run.task)),
        *check_submission(folder),
        check_digest("brief", folder / "brief.md", run.brief_sha256),
        check_digest("agent image", Path(image) if image else None, run.enforced.image_sha256),
        *([check_digest("agent layer", layer, run.enforced.layer_sha256)] if layer else []),
        *check_cases(score, run, config.data),
    ]


def check_records(folder: Path, score: ScoreRecord) -> Check:
    """The run's records against the digests that the score names."""
    files = {folder / name: FileEntry(sha256=digest, bytes=0) for name, digest in score.sources.items()}
    return _compare_files("records of the run", files, sizes=False)


def check_submission(folder: Path) -> Iterator[Check]:
    """The collected files against ``submission.json``."""
    try:
        record = read_record(folder / "submission.json", SubmissionRecord)
    except MissingDataError:
        yield Check("collected files", "absent", "there is no submission.json")
        return
    what, files = "collected files", RunFiles(record.run, folder, folder, "")
    try:
        with unpack_submission(files) as submission:
            check = _compare_files(what, {submission / path: entry for path, entry in collected_files(record).items()})
        yield replace(check, detail=check.detail.replace(f"{submission}/", ""))
    except InfrastructureError as error:
        yield Check(what, "differs", str(error).partition("\n")[0])


def check_cases(score: ScoreRecord, run: RunRecord, data: DataPaths) -> Iterator[Check]:
    """The staged cases that the run was given, their files on both sides, and the raw data."""
    path = Path(data.manifests, f"{run.run.task}.json")
    try:
        manifest = read_record(path, Manifest)
    except MissingDataError:
        yield Check("staged cases", "absent", f"{path} does not exist")
        return
    digests = {"now staged": manifest.cases_sha256, "scored": score.recipe.cases_sha256}
    other = [f"{name}: {value[:12]}" for name, value in digests.items() if value != run.cases_sha256]
    yield same_unless("staged cases", "; ".join(other))
    sides: tuple[tuple[Literal["inputs", "private"], str], ...] = (("inputs", data.public), ("private", data.private))
    for side, root in sides:
        folder = Path(root, manifest.task)
        if not folder.is_dir():
            yield Check(f"staged {side}", "absent", f"{folder} does not exist")
            continue
        yield _compare_files(f"staged {side}", manifest.files(side, folder))
    raw = Path(data.raw, manifest.dataset)
    try:
        receipt = read_record(raw / "receipt.json", Receipt)
        yield _compare_files("raw data", {raw / path: entry for path, entry in receipt.files.items()})
    except MissingDataError:
        yield Check("raw data", "absent", f"no receipt of {manifest.dataset}")


def check_digest(what: str, path: Path | None, expected: str | None) -> Check:
    """One file against its digest; nothing is expected without one."""
    if expected is None:
        return Check(what, "absent", "the run had none")
    if path is None or not path.is_file():
        return Check(what, "absent", f"{path or 'it'} does not exist")
    found = sha256_file(path)
    return same_unless(what, "" if found == expected else f"{path}: {found[:12]}")


def _compare_files(what: str, files: Mapping[Path, FileEntry], *, sizes: bool = True) -> Check:
    """All files against their entries; the first that is not the same is named."""
    bad = [problem for path, entry in files.items() if (problem := _describe_difference(path, entry, sizes))]
    if not bad:
        return Check(what, "same", f"{len(files)} files")
    return Check(what, "differs", f"{bad[0]}; {len(bad)} of {len(files)} files")


def _describe_difference(path: Path, entry: FileEntry, sizes: bool) -> str | None:
    if not path.is_file():
        return f"{path} does not exist"
    if sizes and path.stat().st_size != entry.bytes:
        return f"{path} has {path.stat().st_size} bytes, not {entry.bytes}"
    return None if sha256_file(path) == entry.sha256 else f"{path} has another content"
