"""Ask whether the data of every task, and every checkpoint of the lite tier, is still there as the cards know it.

Each place is asked as the fetcher of its kind asks it, for the first byte of each file that the card names (of numbered
files the first and the last, of a pattern one). Sizes, commits, and checksums that a hub publishes are compared with
config/checkpoints.yaml and the cards. Exit code 0; 3 when something is changed or gone.

``python tools/check_sources.py``, for those who maintain the cards.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from automedbench.base.cards import Download, Source, TaskCard
from automedbench.base.checkpoints import FILE, load_checkpoints
from automedbench.base.console import run_script
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import hash_json, set_sharing
from automedbench.base.yamlfile import suggestion
from automedbench.commands._campaign import add_campaign_options, select_campaign
from automedbench.commands._machine.examine import ProbeResult, report_lines
from automedbench.commands._machine.first.servers import find_remedy, list_entries, look_at
from automedbench.commands._output import show
from automedbench.datasets.download.access import Access
from automedbench.datasets.download.collecting import Collector
from automedbench.datasets.download.transfer import ContentMismatch

BAD = 3
WORKERS = 8
_GONE = re.compile("HTTP (404|410|451)|no file matches|lists no series|could not find|not our ref", re.IGNORECASE)


class Part(NamedTuple):
    """One place to ask: data set or checkpoint, file and key that it stands in."""

    subject: str
    file: str
    key: str
    source: Source
    page: str


def main(arguments: list[str]) -> None:
    """Ask and print; exit 0 or 3. Raises ConfigError for an unknown task, and where the campaign is offline."""
    text = (__doc__ or "").strip()
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", action="append", default=[], metavar="ID", help="only this task; may be repeated")
    add_campaign_options(parser)
    options = parser.parse_args(arguments)
    set_sharing("private")
    campaign = select_campaign(options)
    if campaign.config.fetch.offline:
        raise ConfigError(["fetch.offline: is true, so no source can be asked; `--config fetch='{offline: false}'`"])
    if unknown := [task for task in options.task if task not in campaign.cards]:
        raise ConfigError([f"--task: no task '{task}'{suggestion(task, list(campaign.cards))}" for task in unknown])
    parts = list(list_parts(campaign.cards, campaign.card_paths, set(options.task or campaign.cards)))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(WORKERS) as pool:
        access = Access(campaign.config.fetch.mirrors)
        asked = pool.map(lambda part: list(check(part, Path(folder), access)), parts)
        found = [result for results in asked for result in results]
    show(options, found, report_lines(found))
    if any(result.status == "FAIL" for result in found):
        sys.exit(BAD)


def list_parts(cards: Mapping[str, TaskCard], paths: Mapping[str, str], tasks: set[str]) -> Iterator[Part]:
    """Every place of the tasks' data sets, each once, then of their checkpoints."""
    asked = {cards[task].dataset.name: (task, cards[task].dataset) for task in cards if task in tasks}
    for name, (task, dataset) in asked.items():
        page = next(iter(dataset.homepages), "")
        for place, source in enumerate(dataset.sources):
            yield from _list_places(Part(name, paths[task], f"dataset.sources.{place}", source, page))
    for name, each in load_checkpoints().items() if FILE.is_file() else ():
        if tasks & set(each.tasks):
            yield from _list_places(Part(name, str(FILE), f"checkpoints.{name}.source", each.source, each.source.where))


def _list_places(part: Part) -> Iterator[Part]:
    yield part
    for place, other in enumerate(part.source.also):
        yield part._replace(key=f"{part.key}.also.{place}", source=other)


def check(part: Part, folder: Path, access: Access) -> Iterator[ProbeResult]:
    """A line for each entry of a place: as the card says, not to be had from here, or (FAIL) changed or gone."""
    collector = Collector(folder / hash_json(part.source.model_dump(mode="json")), access)
    entries: list[Download | None] = [*list_entries(part.source)]
    for entry in entries or [None]:
        where = f"{part.file}: {part.key}"
        try:
            text, _ = look_at(part.source, entry, collector, whole_bytes=0)
            yield ProbeResult(probe=part.subject, status="ok", message=f"{where}: {text}")
        except (InfrastructureError, ConfigError) as error:
            lost = isinstance(error, ContentMismatch) or _GONE.search(str(error))
            text = f"{where}: {' '.join(str(error).partition(chr(10))[0].split())}"
            fix = find_remedy(error, part.page or part.source.where, part.source)
            yield ProbeResult(probe=part.subject, status="FAIL" if lost else "warn", message=text, fix=fix)


if __name__ == "__main__":
    run_script(main)
