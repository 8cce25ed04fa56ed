"""Every task of the benchmark: its data, how one gets access, what is ready; `tasks show ID`: the card of one of them.

`tasks new ID --like TASK --data FOLDER` writes a card for data of your own that have the form of TASK's.

`tasks show ID --brief` prints the brief of an agent, byte for byte as a run of this campaign does (its `brief.md`).

`ready` is the furthest that the data has come: staged, fetched, an own copy (datasets.<name>.path), to be downloaded
without being asked, variables with credentials that are to be set, or steps to be taken by hand (`tasks show ID`).
`made up`: a fixture lies where the data should; delete its folder below data.raw. `open`: number of unpublished facts
(`provenance` of the card) and `open_questions`. In a terminal tracks are headings, and in a narrow one `access` is left
out; a file or pipe gets one whole line per task.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

import yaml

from automedbench.base.cards import DataSet, Source, TaskCard, load_card
from automedbench.base.errors import ConfigError
from automedbench.base.files import known_record, write_text
from automedbench.base.plaintable import GAP, counted, table
from automedbench.base.records import TIERS, Manifest, RunId, Tier
from automedbench.base.yamlfile import load_yaml, suggestion, validate
from automedbench.campaign.load import Campaign, build_campaign_record, describe_missing_tier
from automedbench.commands._campaign import add_campaign_options, select_campaign
from automedbench.commands._output import show
from automedbench.steps.stage_task import expected_manifest, is_made_up

HEAD = ("track", "task", "access", "ready", "cases", "GB", "open")
RIGHT = ("cases", "GB", "open")
WIDE = 100
"""Columns of a terminal from which on ``access`` is shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: one card, or a slice of the list; which campaign's folders are looked at."""
    below = parser.add_subparsers(metavar="show|new")
    card = below.add_parser("show", help="one card, or its brief", description="One card, or the brief of a tier.")
    card.add_argument("task", metavar="ID", help="the task's id")
    card.add_argument(
        "--brief", action="store_true", help="the brief instead, as a run of the campaign gives it to its agent"
    )
    card.add_argument("--tier", choices=TIERS, default="lite", help="of the brief (lite)")
    card.add_argument("--agent", metavar="NAME", help="that the brief is for (the campaign's first)")
    add_campaign_options(card)
    new = below.add_parser("new", help="write a card for data of your own", description="A card for data of your own.")
    new.add_argument("new", metavar="ID", help="id of the new task")
    new.add_argument("--like", metavar="ID", required=True, help="task of the same track, with data in the same form")
    new.add_argument("--data", metavar="FOLDER", required=True, help="folder of the data, laid out as that task's")
    new.add_argument("--out", type=Path, default=Path("my-campaign/tasks"), help="folder of cards (my-campaign/tasks)")
    add_campaign_options(new)
    parser.add_argument("--track", help="only tasks of this track")
    parser.set_defaults(task=None, new=None)
    add_campaign_options(parser)


def main(options: argparse.Namespace) -> None:
    """Print list or card; raises ConfigError for an unknown task or track, or a wrong campaign."""
    campaign = select_campaign(options)
    if options.new is not None:
        like = Path(campaign.card_paths[_find_card(campaign, options.like).id])
        if options.new in campaign.cards:
            raise ConfigError([f"'{options.new}' is the id of {campaign.card_paths[options.new]}; choose another id"])
        if not Path(options.data).is_dir():
            raise ConfigError([f"--data: there is no folder {options.data}"])
        file = write_card(load_yaml(like), options.new, options.data, options.out)
        says = f"{file}: edit title, description, targets and number of cases; add {file.parent} to `cards`"
        other = f"{options.data} is laid out otherwise than {options.like}: edit `staging` as well."
        show(options, {"file": str(file)}, [says, *[other] * (not load_card(file).dataset.sources[0].files)])
        return
    if options.task is not None:
        card = _find_card(campaign, options.task)
        if options.brief:
            text = brief_text(campaign, card, options.tier, options.agent)
            show(options, {"brief": text}, [text.removesuffix("\n")])
        else:
            show(options, card, [Path(campaign.card_paths[card.id]).read_text().removesuffix("\n")])
        return
    cards = _filter_track(campaign.cards, options.track)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    rows = [_make_row(campaign, card) for card in sorted(cards.values(), key=lambda card: (card.track, card.id))]
    show(options, rows, _list_lines(rows, list(cards.values()), width))


def _filter_track(cards: dict[str, TaskCard], track: str | None) -> dict[str, TaskCard]:
    tracks = sorted({card.track for card in cards.values()})
    if track is not None and track not in tracks:
        near = suggestion(track, tracks) or f"; tracks: {', '.join(tracks)}"
        raise ConfigError([f"--track: no task is of '{track}'{near}"])
    return {name: card for name, card in cards.items() if track in (None, card.track)}


def _list_lines(found: list[dict[str, Any]], cards: list[TaskCard], width: int | None) -> list[str]:
    """Tasks and their sum for a terminal of ``width`` columns; None: nothing is wrapped or left out."""
    rows = [_table_row(row) for row in found]
    staged = sum(row["ready"] == "staged" for row in rows)
    total = sum({card.dataset.name: card.dataset.download_gb or 0.0 for card in cards}.values())
    note = (
        f"{counted(len(rows), 'task')}, {staged} staged; downloads of {total:,.0f} GB where sizes are known. "
        "`automedbench tasks show ID` tells how to get one."
    )
    if width is None:
        return [*table([HEAD, *(list(row.values()) for row in rows)], right=[*map(HEAD.index, RIGHT)]), "", note]
    return [*_group_by_track(rows, width), "", *textwrap.wrap(note, width)]


def _group_by_track(rows: list[dict[str, str]], width: int) -> list[str]:
    """A line for each task below its track, and more where ``ready`` is wrapped; ``access`` where there is room."""
    from rich import console
    from rich.table import Table

    columns = HEAD[1:] if width >= WIDE else ("task", *HEAD[3:])
    shown = Table(box=None, padding=(0, len(GAP), 0, 0), pad_edge=False, header_style="")
    for name in columns:
        shown.add_column(name, justify="right" if name in RIGHT else "left", no_wrap=name != "ready")
    for place, row in enumerate(rows):
        if place == 0 or row["track"] != rows[place - 1]["track"]:
            shown.add_row(row["track"])
        shown.add_row(*(f"{GAP * (name == 'task')}{row[name]}" for name in columns))
    terminal = console.Console(width=width, markup=False, highlight=False)
    with terminal.capture() as text:
        terminal.print(shown)
    return [line.rstrip() for line in text.get().splitlines()]


def write_card(like: dict[str, Any], name: str, data: str, out: Path) -> Path:
    """Write a card for the data in the folder ``data``, else as the card ``like``; its file.

    All files are taken where one of its patterns finds none. Raises ConfigError for a wrong name, and where the file
    exists.
    """
    file, words = out / f"{name}.yaml", name.removesuffix("-task").replace("-", " ")
    if file.exists():
        raise ConfigError([f"{file} exists: nothing was written. Delete it, or choose another id"])
    patterns = like["dataset"]["sources"][0].get("files", []) if like["dataset"]["sources"] else []
    fits = all(any(Path(data).glob(pattern)) for pattern in patterns)
    source = {"kind": "path", "where": data, "files": patterns if fits else []}
    dataset = {
        "name": words.replace(" ", "_"),
        "title": f"Own data: {words}",
        "access": "registration",
        "licence": "own data",
        "attribution": "own data",
        "redistribution": "own data; not passed on",
        "sources": [source],
        "how_to_get": f"The data lie in {data}.",
        "download_gb": 0,
        "layout": like["dataset"].get("layout", "") if fits else "",
    }
    kept = {key: value for key, value in like.items() if key not in _OF_THE_TASK}
    briefs = {key: value for key, value in like["briefs"].items() if key != "route"}
    card = kept | {"id": name, "version": 1, "title": words.capitalize(), "dataset": dataset, "briefs": briefs}
    validate(card, TaskCard, f"tasks new {name}")
    write_text(file, yaml.safe_dump(card, sort_keys=False, allow_unicode=True, width=110))
    return file


def _find_card(campaign: Campaign, task: str) -> TaskCard:
    if task not in campaign.cards:
        raise ConfigError([f"no task '{task}'{suggestion(task, list(campaign.cards))}"])
    return campaign.cards[task]


def brief_text(campaign: Campaign, card: TaskCard, tier: Tier, agent: str | None = None) -> str:
    """The brief of a run, as it stands in ``brief.md``; raises ConfigError for a tier or agent that is not there.

    Before staging the cases are named as staging will name them.
    """
    from automedbench.agent.plan import compose_brief
    from automedbench.steps.run_agent import plan_with_manifest

    if tier not in card.tiers:
        raise ConfigError([describe_missing_tier(card, tier)])
    record, run = (
        build_campaign_record(campaign),
        RunId(agent=agent or campaign.takes_part[0], task=card.id, tier=tier, repeat=1),
    )
    manifest = staged_manifest(campaign, card) or expected_manifest(card)
    return compose_brief(plan_with_manifest(record, run, record.results / "runs" / run.path, manifest)).markdown


_OF_THE_TASK = ("aliases", "references", "provenance", "open_questions", "demo")
"""What a card says of its own task alone."""
OPEN = ("proposal", "unknown")
"""Origins of values that are not published."""


def _table_row(row: dict[str, Any]) -> dict[str, str]:
    """A row as text."""
    unknown = {"cases": "all", "GB": ""}
    return {
        name: unknown[name] if value is None else f"{value:g}" if name == "GB" else str(value)
        for name, value in row.items()
    }


def _make_row(campaign: Campaign, card: TaskCard) -> dict[str, Any]:
    """A task by the names of columns; ``cases`` None: all that there are, ``GB`` None: not known."""
    staged = staged_manifest(campaign, card)
    return {
        "track": card.track,
        "task": card.id,
        "access": card.dataset.access,
        "ready": "staged" if staged else way_to_data(campaign, card),
        "cases": len(staged.cases) if staged else card.staging.sampling.count,
        "GB": card.dataset.download_gb,
        "open": len(open_facts(card)) + len(card.open_questions),
    }


def staged_manifest(campaign: Campaign, card: TaskCard) -> Manifest | None:
    """Manifest of the card's version; None when it is not staged."""
    manifest = known_record(Path(campaign.config.data.manifests, f"{card.id}.json"), Manifest)
    return manifest if manifest and manifest.task_version == card.version else None


def way_to_data(campaign: Campaign, card: TaskCard) -> str:
    """Way to the raw data: the copy that is there, else a download, where its credentials are set."""
    name = card.dataset.name
    receipt = Path(campaign.config.data.raw) / name / "receipt.json"
    if receipt.is_file():
        return "made up" if not campaign.config.fixtures and is_made_up(receipt) else "fetched"
    folders = [Path(source.where) for source in card.dataset.sources if source.kind == "path"]
    if name in campaign.config.datasets or any(map(Path.is_dir, folders)):
        return "own copy"
    if list_downloads(card.dataset):
        return "download"
    missing = [_missing_variables(source) for source in card.dataset.sources if not _is_manual(source)]
    return f"set {', '.join(missing[0])}" if missing else "by hand"


def list_downloads(dataset: DataSet) -> list[Source]:
    """Sources of a data set that can be downloaded with the credentials that are set."""
    return [source for source in dataset.sources if not _is_manual(source) and not _missing_variables(source)]


def _is_manual(source: Source) -> bool:
    return source.kind in ("manual", "path") or any(map(_is_manual, source.also))


def _missing_variables(source: Source) -> list[str]:
    """Variables of a source and of what comes with it that are not set."""
    own = (name for name in source.credentials if not os.environ.get(name))
    return list(dict.fromkeys([*own, *(name for other in source.also for name in _missing_variables(other))]))


def open_facts(card: TaskCard) -> dict[str, str]:
    """Dotted key → ``proposal`` or ``unknown``."""
    return {key: origin for key, origin in sorted(card.provenance.items()) if origin in OPEN}
