"""Catalogues: hosts that list what they have (Hugging Face hub, PhysioNet, The Cancer Imaging Archive)."""

from __future__ import annotations

import fnmatch
import json
import re
from typing import Any
from urllib.parse import quote, urlencode

from automedbench.base.cards import Download, Source
from automedbench.base.errors import MissingDataError
from automedbench.datasets.download.access import HUB, PHYSIONET, describe, pinned_commit
from automedbench.datasets.download.collecting import Collector, DownloadItem
from automedbench.datasets.download.transfer import ContentMismatch
from automedbench.datasets.fetchers.web import (
    FetchPlan,
    choose_files,
    expand_numbers,
    fetch_listing,
    file_item,
    fill_rows,
)

MANY = 50_000
"""From so many files on, the hub's description of a data set need not list all."""


def plan_huggingface(source: Source, collector: Collector) -> FetchPlan:
    """One item per file whose path a download's pattern takes (``*`` crosses folders, as in the hub's own clients).

    Without downloads it is what the source's ``files`` take. The hub's own SHA-256 of large files is checked. Raises
    ContentMismatch when the hub answers with another commit than the card's.
    """
    commit, files = parse_hub_listing(source, fetch_listing(source, collector, hub_address(source)))
    if pinned_commit(source) not in (None, commit) and not collector.access.stand_in:
        raise ContentMismatch(
            f"{describe(source)}: found commit {commit}, expected {source.revision}.\n"
            "It was changed at its source; nothing was installed."
        )
    spec = choose_files(source, files, expand_numbers(source.downloads))
    return FetchPlan([_hub_item(source, collector, commit, each, files.get(each.name, {})) for each in spec], commit)


def _hub_item(source: Source, collector: Collector, commit: str, spec: Download, facts: dict[str, Any]) -> DownloadItem:
    below = "datasets/" if source.kind == "huggingface" else ""
    url = f"https://{HUB}/{below}{source.where}/resolve/{commit}/{quote(spec.name)}"
    digest = (facts.get("lfs") or {}).get("sha256")
    sized = spec.model_copy(update={"bytes": spec.bytes or facts.get("size")})
    published = f"sha256:{digest}" if digest else None
    name = f"{source.where}/{spec.name}"
    told = "" if collector.access.stand_in else spec.checksum or ""
    if published and told.startswith("sha256:") and told != published:
        raise ContentMismatch(f"{name}: expected {told} as the card says, found {published}.\nNothing was installed.")
    return file_item(source, collector, url, spec.name, sized, checksum=published, name=name)


def hub_address(source: Source) -> str:
    """URL of the hub's description of a data set or a model, with all its files."""
    what = "datasets" if source.kind == "huggingface" else "models"
    revision = f"/revision/{quote(source.revision, safe='')}" if source.revision else ""
    return f"https://{HUB}/api/{what}/{source.where}{revision}?blobs=true"


def parse_hub_listing(source: Source, text: bytes) -> tuple[str, dict[str, dict[str, Any]]]:
    """Commit of the revision, and path → what the hub tells of each file; raises MissingDataError for other texts."""
    try:
        listing_json = json.loads(text)
        commit, files = (
            str(listing_json["sha"]),
            {str(each["rfilename"]): dict(each) for each in listing_json["siblings"]},
        )
    except (ValueError, LookupError, TypeError) as error:
        raise MissingDataError(
            f"{describe(source)}: expected the hub's description of its files, found something else"
        ) from error
    if len(files) >= MANY:
        raise MissingDataError(f"{describe(source)}: the hub lists only the first {MANY} files")
    return commit, files


_SUMS = "SHA256SUMS.txt"


def plan_physionet(source: Source, collector: Collector) -> FetchPlan:
    """Files below ``where`` (project/version): those that a download names or whose path its pattern takes.

    Without downloads it is what the source's ``files`` take. Raises MissingDataError when a pattern takes nothing;
    ``fill_rows`` tells what rows of a table may raise.
    """
    sums = _sums(source, collector, physionet_address(source))

    def item(spec: Download) -> DownloadItem:
        checksum = f"sha256:{sums[spec.name]}" if spec.name in sums else None
        return file_item(source, collector, physionet_address(source, spec.name), spec.name, spec, checksum=checksum)

    downloads = fill_rows(source, collector, source.downloads, item)
    items = [item(spec) for spec in choose_files(source, sums, downloads)]
    return FetchPlan(items, source.revision or source.where.strip("/").rpartition("/")[2])


def physionet_address(source: Source, name: str | None = None) -> str:
    """URL of a file of the project; without a name that of its list of checksums."""
    return f"https://{PHYSIONET}/files/{source.where.strip('/')}/{quote(_SUMS if name is None else name)}"


def _sums(source: Source, collector: Collector, url: str) -> dict[str, str]:
    """Path → SHA-256 of everything in the project."""
    text = fetch_listing(source, collector, url).decode("utf-8", "replace")
    lines = re.findall(r"^([0-9a-f]{64}) +\*?(?:\./)?(.+?)\r?$", text, re.MULTILINE)
    if not lines:
        raise MissingDataError(f"{url}: expected a list of checksums, found none")
    return {name: digest for digest, name in lines}


_NBIA = "https://services.cancerimagingarchive.net/nbia-api/services/v1"
_ID = re.compile(r"[0-9.]{1,64}")


def plan_tcia(source: Source, collector: Collector) -> FetchPlan:
    """One archive per series, unpacked to <patient>/<study>/<series>/; ``where`` is the collection.

    A download's name is a modality ("CT"), or a modality and a pattern of patients ("CT LIDC-IDRI-00??"); without
    downloads it is every series.
    """
    items: list[DownloadItem] = []
    for spec in expand_numbers(source.downloads or [Download(name="")]):
        found = parse_series(source, spec.name, fetch_listing(source, collector, series_address(source, spec.name)))
        if not found:
            raise MissingDataError(f"{describe(source)}: the archive lists no series for '{spec.name}'")
        for series in sorted(found, key=lambda entry: entry["SeriesInstanceUID"]):
            items.append(_series_item(source, collector, spec, series))
    return FetchPlan(items, source.revision)


def _series_item(source: Source, collector: Collector, spec: Download, series: dict[str, Any]) -> DownloadItem:
    uid = series["SeriesInstanceUID"]
    parts = (series["PatientID"], series["StudyInstanceUID"], uid)
    place = "/".join(re.sub(r"[^\w.-]", "_", str(part)).strip(".") or "_" for part in parts)
    to = f"{spec.to}/{place}" if spec.to else place
    archive = spec.model_copy(update={"to": to, "unpack": True, "checksum": None, "bytes": None})
    address = f"{_NBIA}/getImage?{urlencode({'SeriesInstanceUID': uid})}"
    return file_item(source, collector, address, f"{uid}.zip", archive, name=f"tcia series {uid}")


def series_address(source: Source, name: str) -> str:
    """URL of the archive's list of the series that a download's name may mean."""
    modality = name.partition(" ")[0]
    query = {"Collection": source.where, **({"Modality": modality} if modality else {}), "format": "json"}
    return f"{_NBIA}/getSeries?{urlencode(query)}"


def parse_series(source: Source, name: str, text: bytes) -> list[dict[str, Any]]:
    """Series of such a list that the name means; raises MissingDataError for other texts."""
    try:
        listed = json.loads(text or b"[]")
    except ValueError:
        listed = None
    needed = {"SeriesInstanceUID", "PatientID", "StudyInstanceUID"}
    if not isinstance(listed, list) or not all(isinstance(entry, dict) and needed <= entry.keys() for entry in listed):
        raise MissingDataError(f"{describe(source)}: expected a list of series, found something else")
    patients = name.partition(" ")[2] or "*"
    return [
        entry
        for entry in listed
        if _ID.fullmatch(str(entry["SeriesInstanceUID"])) and fnmatch.fnmatchcase(str(entry["PatientID"]), patients)
    ]
