"""Ask whether the data of every task, and every checkpoint of the lite tier, is still there as the cards know it.

Nothing is downloaded: headers, and the lists of hosts that have some, are compared with sizes, checksums and revisions
in the cards and in config/checkpoints.yaml. Each line says `there`, `moved`, `changed`, `login needed`, `gone` or
`unreachable`, and what to write into the card. Answers of the last day are kept: the same command continues where it
stopped, and asks those again that gave no answer. Exit code 0; 3 when something is changed or gone.

``python tools/check_sources.py``, for those who maintain the cards.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError
from source_checker import Checker, SourceFinding

from automedbench.base.cards import Source, TaskCard
from automedbench.base.checkpoints import FILE, load_checkpoints
from automedbench.base.console import run_script
from automedbench.base.errors import ConfigError
from automedbench.base.files import hash_json, set_sharing, write_record
from automedbench.base.plaintable import counted, table
from automedbench.base.records import Model, now
from automedbench.base.yamlfile import suggestion
from automedbench.commands._campaign import add_campaign_options, select_campaign
from automedbench.commands._output import show
from automedbench.datasets.download.access import Access
from automedbench.datasets.download.collecting import Collector

BAD = 3
WORKERS = 8
KEPT = timedelta(days=1)


class Checked(Model):
    """Findings on one place of a card's data set or of a checkpoint."""

    subject: str = Field(description="data set, or name of the checkpoint")
    tasks: list[str]
    file: str = Field(description="card, or the table of checkpoints")
    at: datetime
    findings: list[SourceFinding]


class CheckFile(Model):
    """``check-sources.json`` in the cache folder, and what ``--json`` prints."""

    schema_: Literal["automedbench/check-sources/1"] = Field("automedbench/check-sources/1", alias="schema")
    checked: dict[str, Checked] = Field(default_factory=dict, description="digest of what was asked for → answers")


@dataclass(frozen=True)
class _Part:
    """One place to ask."""

    subject: str
    tasks: list[str]
    file: str
    key: str
    source: Source

    @property
    def digest(self) -> str:
        """Another card, place or entry is another question."""
        return hash_json([self.file, self.key, self.source.model_dump(mode="json", exclude={"also"})])


def main(arguments: list[str]) -> None:
    """Ask and print; exit 0 or 3. Raises ConfigError for an unknown task, and where the campaign is offline."""
    options = _parser().parse_args(arguments)
    set_sharing("private")
    campaign = select_campaign(options)
    if campaign.config.fetch.offline:
        raise ConfigError(["fetch.offline: is true, so no source can be asked; `--config fetch='{offline: false}'`"])
    tasks = _select_tasks(list(campaign.cards), options.task)
    parts = list(_parts(campaign.cards, campaign.card_paths, tasks))
    checked = _check(parts, campaign.config.fetch.mirrors, options.state or _state_file(), options)
    show(options, CheckFile(checked=checked), _lines(checked))
    if any(each.state in ("changed", "gone") for part in checked.values() for each in part.findings):
        sys.exit(BAD)


def _parser() -> argparse.ArgumentParser:
    """Options: some tasks, form of the output, asking anew; which campaign's cards and mirrors."""
    text = (__doc__ or "").strip()
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", action="append", default=[], metavar="ID", help="only this task; may be repeated")
    parser.add_argument("--again", action="store_true", help="ask everything anew, also what was answered today")
    parser.add_argument("--workers", type=int, default=WORKERS, metavar="N", help=f"places at a time ({WORKERS})")
    parser.add_argument("--state", type=Path, metavar="FILE", help="where answers are kept (the user's cache folder)")
    add_campaign_options(parser)
    return parser


def _select_tasks(known: list[str], tasks: list[str]) -> set[str]:
    if unknown := [task for task in tasks if task not in known]:
        raise ConfigError([f"--task: no task '{task}'{suggestion(task, known)}" for task in unknown])
    return set(tasks or known)


def _state_file() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "automedbench", "check-sources.json")


def _parts(cards: Mapping[str, TaskCard], paths: Mapping[str, str], tasks: set[str]) -> Iterator[_Part]:
    """Every place of the tasks' data sets, each once, then of their checkpoints."""
    users: dict[str, list[str]] = {}
    for task, card in cards.items():
        users.setdefault(card.dataset.name, []).append(task)
    for name, of in users.items():
        if tasks & set(of):
            sources = cards[of[0]].dataset.sources
            for place, source in enumerate(sources):
                yield from _list_places(name, of, paths[of[0]], f"dataset.sources.{place}", source)
    if FILE.is_file():
        for name, each in load_checkpoints().items():
            if tasks & set(each.tasks):
                yield from _list_places(name, each.tasks, str(FILE), f"checkpoints.{name}.source", each.source)


def _list_places(subject: str, tasks: list[str], file: str, key: str, source: Source) -> Iterator[_Part]:
    yield _Part(subject, tasks, file, key, source)
    for place, other in enumerate(source.also):
        yield _Part(subject, tasks, file, f"{key}.also.{place}", other)


# --- asking ---------------------------------------------------------------------------------------------------


def _check(
    parts: list[_Part], mirrors: Mapping[str, str], state: Path, options: argparse.Namespace
) -> dict[str, Checked]:
    """Answers in the order of the parts; each is kept as it comes."""
    before = _read(state)
    kept = {} if options.again else {part.digest: before[part.digest] for part in parts if _is_fresh(before, part)}
    done, lock = before | kept, threading.Lock()
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(Collector(Path(folder), Access(mirrors)))

        def one(part: _Part) -> None:
            found = checker.check(part.source, part.key)
            answer = Checked(subject=part.subject, tasks=part.tasks, file=part.file, at=now(), findings=found)
            with lock:
                done[part.digest] = answer
                write_record(state, CheckFile(checked=done))

        pool = ThreadPoolExecutor(max(1, options.workers))
        try:
            for each in as_completed([pool.submit(one, part) for part in parts if part.digest not in kept]):
                each.result()
        except BaseException:
            checker.collector.watch.stop.set()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
    return {part.digest: done[part.digest] for part in parts}


def _read(state: Path) -> dict[str, Checked]:
    """Answers of earlier calls; none where there is no such file, or another version's."""
    try:
        return CheckFile.model_validate_json(state.read_bytes()).checked
    except (OSError, ValidationError):
        return {}


def _is_fresh(before: dict[str, Checked], part: _Part) -> bool:
    """Check whether a part was answered within the last day."""
    known = before.get(part.digest)
    if known is None or any(each.state == "unreachable" for each in known.findings):
        return False
    return now() - known.at < KEPT


# --- printing -------------------------------------------------------------------------------------------------


def _lines(checked: dict[str, Checked]) -> list[str]:
    """A line for each entry, what to write below it, and the sum."""
    rows, below = [["state", "data or checkpoint", "address"]], [""]
    for part in checked.values():
        for each in part.findings:
            rows.append([each.state, part.subject, f"{each.address}{f': {each.told}' if each.told else ''}"])
            below.append(f"    {part.file}: {each.key}: {each.write}" if each.write else "")
    lines = [line for row, more in zip(table(rows), below, strict=True) for line in (row, more) if line]
    states = [each.state for part in checked.values() for each in part.findings]
    told = [f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states))]
    return [*lines, "", f"{counted(len(states), 'answer')}: {', '.join(told) or 'nothing to ask'}."]


if __name__ == "__main__":
    run_script(main)
