"""Data sets of the Hugging Face hub, file by file, all at one commit."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from automedbench.base.cards import Download, Source
from automedbench.base.errors import MissingDataError
from automedbench.datasets.download.access import HUB, commit_of, describe
from automedbench.datasets.download.collecting import Collector, Item
from automedbench.datasets.download.transfer import OtherContent
from automedbench.datasets.fetchers import Plan
from automedbench.datasets.fetchers._web import chosen, file_item, listing, numbered

MANY = 50_000
"""From so many files on, the hub's description of a data set need not list all."""


def plan(source: Source, collector: Collector) -> Plan:
    """One item per file whose path a download's pattern takes (``*`` crosses folders, as in the hub's own clients).

    Without downloads it is what the source's ``files`` take. The hub's own SHA-256 of large files is checked. Raises
    OtherContent when the hub answers with another commit than the card's.
    """
    commit, files = _described(source, collector)
    if commit_of(source) not in (None, commit) and not collector.access.stand_in:
        raise OtherContent(
            f"{describe(source)}: found commit {commit}, expected {source.revision}.\n"
            "The data set was changed at its source; nothing was installed."
        )
    told = chosen(source, files, numbered(source.downloads))
    return Plan([_item(source, collector, commit, each, files.get(each.name, {})) for each in told], commit)


def _item(source: Source, collector: Collector, commit: str, told: Download, facts: dict[str, Any]) -> Item:
    url = f"https://{HUB}/datasets/{source.where}/resolve/{commit}/{quote(told.name)}"
    digest = (facts.get("lfs") or {}).get("sha256")
    sized = told.model_copy(update={"bytes": told.bytes or facts.get("size")})
    published = f"sha256:{digest}" if digest else None
    name = f"{source.where}/{told.name}"
    return file_item(source, collector, url, told.name, sized, checksum=published, name=name)


def _described(source: Source, collector: Collector) -> tuple[str, dict[str, dict[str, Any]]]:
    """Commit of the revision, and path → what the hub tells of each file."""
    revision = f"/revision/{quote(source.revision, safe='')}" if source.revision else ""
    text = listing(source, collector, f"https://{HUB}/api/datasets/{source.where}{revision}?blobs=true")
    try:
        told = json.loads(text)
        commit, files = str(told["sha"]), {str(each["rfilename"]): dict(each) for each in told["siblings"]}
    except (ValueError, LookupError, TypeError) as error:
        raise MissingDataError(
            f"{describe(source)}: expected the hub's description of the data set, found something else"
        ) from error
    if len(files) >= MANY:
        raise MissingDataError(f"{describe(source)}: the hub lists only the first {MANY} files")
    return commit, files
