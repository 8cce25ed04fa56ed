"""Remove what takes room and proves nothing from scored runs: weights, caches, then workspaces, then pages.

Logs, conversations, outputs, plans and records are never touched, so every score can still be verified and made again.
Without --delete it only says what it would remove. Runs that are not scored or at work are left alone.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from automedbench.agent.durable.attempts import AttemptFolder, list_attempts
from automedbench.agent.durable.lease import hold_lease
from automedbench.agent.workspace import CACHES, STATE
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import write_text
from automedbench.base.plaintable import counted, table
from automedbench.base.records import now
from automedbench.base.yamlfile import suggestion
from automedbench.commands._campaign import add_campaign_options, find_results
from automedbench.commands._output import show
from automedbench.sandbox.airlock.archive import PRUNED, REST, drop_members, list_members
from automedbench.sandbox.container.scratch import remove_tree, walk
from automedbench.sandbox.evidence.models import WEIGHTS

Kind = Literal["weights", "caches", "workspaces", "pages"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: which runs, what of them, and whether to do it."""
    parser.add_argument("runs", nargs="*", metavar="RUN", help="<agent>/<task>/<tier>/r<k> or the start of it; all")
    parser.add_argument(
        "--what",
        choices=KINDS,
        default="caches",
        help="weights: files of models; caches: those and downloads, packages, settings (default); workspaces: all of "
        "them; pages: and the runs' pages, which the next leaderboard has again",
    )
    add_campaign_options(parser)
    parser.add_argument("--delete", action="store_true", help="remove it; without this it is only counted")


def main(options: argparse.Namespace) -> None:
    """Print files and bytes per kind, and the runs that are left alone; raises ConfigError for an unknown run."""
    runs, what = find_results(options) / "runs", KINDS[: KINDS.index(options.what) + 1]
    folders = sorted(path.parent for path in runs.glob("*/*/*/r*/attempts"))
    known = [path.relative_to(runs).as_posix() for path in folders]
    agents = sorted({run.split("/")[0] for run in known})
    unknown = [name for name in options.runs if not any(_is_chosen(run, [name]) for run in known)]
    if unknown or not known:
        named = [f" of that name: {name}{suggestion(name, [*agents, *known])}" for name in unknown]
        raise ConfigError([f"{runs}: contains no run{name}" for name in named or [""]])
    chosen = [path for path, run in zip(folders, known, strict=True) if _is_chosen(run, options.runs)]
    found = PrunableFiles()
    for folder in chosen:
        prune(folder, what, found, delete=options.delete)
    show(options, {"deleted": options.delete, **vars(found)}, found.lines(what, deleted=options.delete))


def _is_chosen(run: str, names: Sequence[str]) -> bool:
    return not names or any(f"{run}/".startswith(f"{name.rstrip('/')}/") for name in names)


@dataclass
class PrunableFiles:
    """Files that can be removed, by kind, and the reasons why runs are kept."""

    files: Counter[Kind] = field(default_factory=Counter)
    bytes: Counter[Kind] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)

    def lines(self, what: Sequence[Kind], *, deleted: bool) -> list[str]:
        """A table for a terminal, and what to do next."""
        rows = [(kind, f"{self.files[kind]:,}", f"{self.bytes[kind] / 1e6:,.1f}") for kind in what]
        total = ("all", f"{self.files.total():,}", f"{self.bytes.total() / 1e6:,.1f}")
        alone = [f"Left alone: {counted(number, 'run')} {why}." for why, number in sorted(self.left.items())]
        end = "Removed." if deleted else "Nothing was removed. To remove it, add --delete."
        return [*table([("", "files", "MB"), *rows, total], right=(1, 2)), *alone, end]


def prune(run: Path, what: Sequence[Kind], found: PrunableFiles, *, delete: bool) -> None:
    """Count what the workspaces of a run hold of these kinds, and remove it if ``delete``.

    Raises InfrastructureError when an archive is damaged.
    """
    if not (run / "score.json").is_file():
        found.left["not scored yet"] += 1
    elif (run / "lease.json").exists() and not delete:
        found.left["at work"] += 1
    elif not delete:
        _count_files(run, what, found)
    else:
        try:
            with hold_lease(run / "lease.json", 0, say=lambda _text: None):
                _count_files(run, what, found)
                _remove_files(run, what)
        except InfrastructureError as error:
            if "already being executed" not in str(error):
                raise
            found.left["at work"] += 1


def file_kind(path: str) -> Kind:
    """Kind of a file in a workspace."""
    if WEIGHTS.search(path):
        return "weights"
    parts = path.split("/")
    return "caches" if any(part in CACHES or STATE.fullmatch(part) for part in parts) else "workspaces"


def _list_archives(run: Path, what: Sequence[Kind]) -> Iterator[tuple[AttemptFolder, list[tuple[Kind, int]]]]:
    """Finished attempts with files of these kinds in what is kept of their workspace: kind and bytes of each file."""
    for attempt in list_attempts(run):
        archive = attempt.path / REST
        members = list_members(archive) if attempt.sealed and archive.is_file() else ()
        if held := [(kind, size) for path, size in members if (kind := file_kind(path)) in what]:
            yield attempt, held


def _count_files(run: Path, what: Sequence[Kind], found: PrunableFiles) -> None:
    for _, held in _list_archives(run, what):
        for kind, size in held:
            found.files[kind] += 1
            found.bytes[kind] += size
    for folder in _list_abandoned_workspaces(run) if "workspaces" in what else ():
        for _, _, status in walk(folder, strict=False):
            found.files["workspaces"] += 1
            found.bytes["workspaces"] += status.st_blocks * 512
    if "pages" in what and (page := _page(run)).is_file():
        found.files["pages"] += 1
        found.bytes["pages"] += page.stat().st_size


def _remove_files(run: Path, what: Sequence[Kind]) -> None:
    for attempt, _ in _list_archives(run, what):
        _write_note(attempt, what)  # first: what is gone must be explained
        drop_members(attempt.path / REST, lambda path: file_kind(path) in what)
    for folder in _list_abandoned_workspaces(run) if "workspaces" in what else ():
        remove_tree(folder)
    if "pages" in what:
        _page(run).unlink(missing_ok=True)


def _page(run: Path) -> Path:
    return run.parents[4] / "leaderboard/runs" / f"{run.relative_to(run.parents[3])}.html"


def _write_note(attempt: AttemptFolder, what: Sequence[Kind]) -> None:
    place = attempt.path / PRUNED
    before = place.read_text() if place.is_file() else ""
    write_text(place, f"{before}{now():%Y-%m-%d %H:%M} UTC: {', '.join(what)}\n")


def _list_abandoned_workspaces(run: Path) -> Iterator[Path]:
    """Workspaces of attempts that were never finished and that a later one has replaced."""
    attempts = list_attempts(run)
    last = max((attempt.number for attempt in attempts if attempt.sealed), default=0)
    for attempt in attempts:
        if attempt.number < last and not attempt.sealed and not attempt.workspace.is_symlink():
            yield from (attempt.workspace,) if attempt.workspace.is_dir() else ()
