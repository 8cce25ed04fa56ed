"""Collections of The Cancer Imaging Archive, series by series, through NBIA's public REST interface."""

from __future__ import annotations

import fnmatch
import json
import re
from typing import Any
from urllib.parse import urlencode

from automedbench.base.cards import Download, Source
from automedbench.base.errors import MissingDataError
from automedbench.datasets.download.access import describe
from automedbench.datasets.download.collecting import Collector, Item
from automedbench.datasets.fetchers import Plan, url
from automedbench.datasets.fetchers._web import file_item, listing, numbered

_API = "https://services.cancerimagingarchive.net/nbia-api/services/v1"
_ID = re.compile(r"[0-9.]{1,64}")


def plan(source: Source, collector: Collector) -> Plan:
    """One archive per series, unpacked to <patient>/<study>/<series>/; ``where`` is the collection.

    A download's name is a modality ("CT"), a modality and a pattern of patients ("CT LIDC-IDRI-00??"), a series' UID,
    or the URL of a file that belongs to the collection; without downloads it is every series.
    """
    items: list[Item] = []
    for told in numbered(source.downloads or [Download(name="")]):
        if "://" in told.name:
            items += url.plan(source.model_copy(update={"kind": "url", "downloads": [told]}), collector).items
            continue
        found = [series for series in _series(source, collector, told.name) if _takes(told.name, series)]
        if not found:
            raise MissingDataError(f"{describe(source)}: the archive lists no series for '{told.name}'")
        for series in sorted(found, key=lambda entry: entry["SeriesInstanceUID"]):
            items.append(_item(source, collector, told, series))
    return Plan(items, source.revision)


def _item(source: Source, collector: Collector, told: Download, series: dict[str, Any]) -> Item:
    uid = series["SeriesInstanceUID"]
    parts = (series["PatientID"], series["StudyInstanceUID"], uid)
    place = "/".join(re.sub(r"[^\w.-]", "_", str(part)).strip(".") or "_" for part in parts)
    to = f"{told.to}/{place}" if told.to else place
    archive = told.model_copy(update={"to": to, "unpack": True, "checksum": None, "bytes": None})
    address = f"{_API}/getImage?{urlencode({'SeriesInstanceUID': uid})}"
    return file_item(source, collector, address, f"{uid}.zip", archive, name=f"tcia series {uid}")


def _series(source: Source, collector: Collector, name: str) -> list[dict[str, Any]]:
    modality = "" if _is_uid(name) else name.partition(" ")[0]
    query = {"Collection": source.where, **({"Modality": modality} if modality else {}), "format": "json"}
    address = f"{_API}/getSeries?{urlencode(query)}"
    try:
        listed = json.loads(listing(source, collector, address) or b"[]")
    except ValueError:
        listed = None
    needed = {"SeriesInstanceUID", "PatientID", "StudyInstanceUID"}
    if not isinstance(listed, list) or not all(isinstance(entry, dict) and needed <= entry.keys() for entry in listed):
        raise MissingDataError(f"{describe(source)}: expected a list of series, found something else")
    return [entry for entry in listed if _ID.fullmatch(str(entry["SeriesInstanceUID"]))]


def _takes(name: str, series: dict[str, Any]) -> bool:
    if _is_uid(name):
        return bool(series["SeriesInstanceUID"] == name)
    patients = name.partition(" ")[2]
    return not patients or fnmatch.fnmatchcase(str(series["PatientID"]), patients)


def _is_uid(name: str) -> bool:
    return name != "" and _ID.fullmatch(name) is not None
