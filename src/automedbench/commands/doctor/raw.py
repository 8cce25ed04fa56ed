"""Probe of what `snakemake prepare` still has to fetch: own copies, credentials, room on the disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from automedbench.base.cards import DataSet
from automedbench.commands.doctor.examine import Findings, Host, fail, ok, warn
from automedbench.planning.task_list import is_made_up

PROBE = "raw data"
UNPACKED = 2.0
"""Room per byte of a download, for archives and what becomes of them."""


def raw(host: Host) -> Findings:
    """Data sets are there and no fixtures, or can be fetched: own folders exist, variables are set, disks are large."""
    if host.campaign is None or host.campaign.config.fixtures:
        return
    settings = host.campaign.config
    sets = {card.dataset.name: card.dataset for card in host.campaign.cards.values()}
    receipts = {name: Path(settings.data.raw, name, "receipt.json") for name in sets}
    absent = {name: each for name, each in sets.items() if not receipts[name].is_file()}
    made_up = [name for name, receipt in receipts.items() if receipt.is_file() and is_made_up(receipt)]
    for name in made_up:
        told = f"{receipts[name].parent} holds made-up data, as its receipt says: a rehearsal's, not {name}"
        yield fail(PROBE, told, "Delete this folder; `snakemake prepare` then fetches the data.")
    if not absent and not made_up:
        yield ok(PROBE, f"{len(sets)} of {len(sets)} data sets are there")
        return
    own = {name: Path(settings.datasets[name].path) for name in absent if name in settings.datasets}
    for name, path in own.items():
        if not path.is_dir():
            yield fail(PROBE, f"{path} is not a folder", f"Change datasets.{name}.path, or remove it.")
    rest = [each for name, each in absent.items() if name not in own]
    if settings.fetch.offline and rest:
        yield warn(PROBE, f"{_names(rest)} not there, and fetch.offline is true", "Copy data.raw from elsewhere.")
        return
    if by_hand := [each for each in rest if all(source.kind in ("manual", "path") for source in each.sources)]:
        fix = "See `automedbench tasks show <task>`, then set datasets.<name>.path."
        yield warn(PROBE, f"{_names(by_hand)} must be got by hand", fix)
    for each in rest:
        if each not in by_hand and (names := _unset(each)):
            yield warn(PROBE, f"{each.name}: {' and '.join(names)} not set", "See docs/data.md, then export them.")
    yield from _room(Path(settings.data.raw), [each for each in rest if each not in by_hand])


def _room(folder: Path, sets: list[DataSet]) -> Findings:
    needed = UNPACKED * sum(each.download_gb or 0.0 for each in sets)
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.is_dir())
    free = shutil.disk_usage(there).free / 1e9
    count = f"{len(sets)} data set{'s are' if len(sets) > 1 else ' is'} still to be fetched"
    text = f"{count} and may need {needed:.0f} GB; {there} has {free:.0f} GB free"
    if needed > free:
        yield warn(PROBE, text, "Set data.raw to a larger disk, or fetch fewer tasks at a time.")
    elif sets:
        yield ok(PROBE, text)


def _unset(dataset: DataSet) -> list[str]:
    """Variables that the first source needs and that are not set; none where another source needs none."""
    fetched = [source for source in dataset.sources if source.kind not in ("manual", "path")]
    wanted = [
        sorted({name for part in (source, *source.also) for name in part.credentials if not os.environ.get(name)})
        for source in fetched
    ]
    return wanted[0] if all(wanted) else []


def _names(sets: list[DataSet]) -> str:
    names = [each.name for each in sets]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
