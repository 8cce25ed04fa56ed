"""Data sets of the Hugging Face hub, file by file through ``huggingface_hub``, all at one commit."""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from automedbench.base.cards import Download, Source
from automedbench.base.errors import MissingDataError, is_machine_fault
from automedbench.base.files import write_json
from automedbench.datasets.download.access import HUB, commit_of, describe
from automedbench.datasets.download.archives import is_archive_name
from automedbench.datasets.download.collecting import Collector, Item
from automedbench.datasets.download.transfer import (
    AGAIN,
    TRIES,
    AskedAs,
    OtherContent,
    Unreachable,
    Watch,
    meaning,
    refused,
)
from automedbench.datasets.fetchers import Plan
from automedbench.datasets.fetchers._web import numbered, placed
from automedbench.datasets.patterns import is_pattern, taker

ResultT = TypeVar("ResultT")
MANY = 50_000
"""From so many files on, the hub's short description of a data set need not list all."""


def plan(source: Source, collector: Collector) -> Plan:
    """One item per file whose path a download's pattern takes (``*`` crosses folders, as in the hub's own clients).

    Without downloads it is what the source's ``files`` take. The hub's own SHA-256 of large files is checked. Raises
    OtherContent when the hub answers with another commit than the card's.
    """
    listing = _listing(source, collector)
    commit, files = listing["sha"], listing["files"]
    if commit_of(source) not in (None, commit) and not collector.access.stand_in:
        raise OtherContent(
            f"{describe(source)}: found commit {commit}, expected {source.revision}.\n"
            "The data set was changed at its source; nothing was installed."
        )
    chosen: dict[str, Download] = {}
    for told in numbered(source.downloads):
        names = [name for name in files if name == told.name or fnmatch.fnmatchcase(name, told.name)]
        if not names:
            raise MissingDataError(f"{describe(source)}: at {commit[:12]} no file matches '{told.name}'")
        for name in names:
            chosen.setdefault(name, told)
    if not source.downloads:
        wanted = taker(source.files)
        chosen = {name: Download(name=name) for name in files if wanted(name)}
    return Plan([_item(source, collector, commit, name, files[name], chosen[name]) for name in sorted(chosen)], commit)


def _item(source: Source, collector: Collector, commit: str, name: str, facts: list[Any], told: Download) -> Item:
    import huggingface_hub

    size, digest = facts
    stand_in = collector.access.stand_in
    settings = _settings(source, collector)

    def get(target: Path, watch: Watch) -> bool:
        local = target.with_name("hub")
        continued = local.is_dir()
        watch.followed.add(local)
        try:
            path = _call(
                lambda: huggingface_hub.hf_hub_download(
                    source.where, name, repo_type="dataset", revision=commit, local_dir=local, **settings
                ),
                f"{describe(source)}: {name}",
                watch,
                _asked_as(settings),
                lambda: sum(path.stat().st_size for path in local.rglob("*.incomplete")),
            )
        finally:
            watch.followed.discard(local)
        os.replace(path, target)
        shutil.rmtree(local)
        watch.advance(target.stat().st_size)
        return continued

    to = f"{told.to}/{name}" if told.to and is_pattern(told.name) else told.to
    published = f"sha256:{digest}" if digest else None
    item = Item(
        name=f"{source.where}/{name}",
        identity=[source.kind, source.where, commit, name, stand_in],
        get=get,
        client=f"huggingface_hub {huggingface_hub.__version__}",
        checksum=(None if stand_in else told.checksum) or published,
        bytes=size if stand_in else told.bytes or size,
    )
    archive = is_archive_name(name)
    place = told if (told.unpack if told.unpack is not None else archive) else told.model_copy(update={"to": to})
    return placed(source, place, name, archive, item)


def _listing(source: Source, collector: Collector) -> dict[str, Any]:
    """Commit and files (path → size and SHA-256, None where the hub does not tell) of the revision."""
    import huggingface_hub

    settings = _settings(source, collector)
    name, grounds = describe(source), _asked_as(settings)

    def get(target: Path, watch: Watch) -> bool:
        api = huggingface_hub.HfApi(**settings)
        info = _call(
            lambda: api.dataset_info(source.where, revision=source.revision, files_metadata=True), name, watch, grounds
        )
        listed: list[Any] = list(info.siblings or [])
        if len(listed) >= MANY:
            tree = _call(
                lambda: list(api.list_repo_tree(source.where, recursive=True, revision=info.sha, repo_type="dataset")),
                name,
                watch,
                grounds,
            )
            listed = [entry for entry in tree if isinstance(entry, huggingface_hub.hf_api.RepoFile)]
        files = {getattr(entry, "rfilename", None) or entry.path: _facts(entry) for entry in listed}
        write_json(target, {"sha": info.sha, "files": files})
        return False

    identity = ["huggingface", source.where, source.revision, collector.access.stand_in]
    listing: dict[str, Any] = json.loads(collector.remembered(name, identity, get, "huggingface_hub"))
    return listing


def _facts(entry: Any) -> list[Any]:
    lfs = entry.lfs
    return [entry.size, lfs.sha256 if lfs is not None else None]


def _settings(source: Source, collector: Collector) -> dict[str, Any]:
    """Endpoint and token; a token goes to the hub alone, and no other place is looked for one."""
    from huggingface_hub import constants
    from huggingface_hub.utils import reset_sessions  # type: ignore[attr-defined]  # it is, without saying so
    from huggingface_hub.utils.tqdm import disable_progress_bars

    # What the library counts for its makers, and a transport that goes round mirrors and cannot be continued.
    constants.HF_HUB_DISABLE_TELEMETRY = True
    constants.HF_HUB_DISABLE_XET = True
    disable_progress_bars()
    mirror = collector.access.mirror(HUB)
    if constants.HF_HUB_OFFLINE:
        if mirror is None and collector.access.environment.get("HF_HUB_OFFLINE"):
            raise MissingDataError(f"{describe(source)}: HF_HUB_OFFLINE is set in the environment; unset it")
        # Another part of this process keeps the library from asking for models; its sessions remember that.
        constants.HF_HUB_OFFLINE = False
        reset_sessions()
    if mirror is not None:
        return {"endpoint": mirror, "token": False}
    if source.credentials:
        collector.access.credentials(source)
    token = collector.access.environment.get("HF_TOKEN", "").strip()
    return {"endpoint": f"https://{HUB}", "token": token or False}


def _asked_as(settings: dict[str, Any]) -> AskedAs:
    """On what grounds the hub, or what stands in for it, could give anything."""
    if settings["endpoint"] != f"https://{HUB}":
        return "mirror"
    return "login" if settings["token"] else "anonymous"


def _call(
    what: Callable[[], ResultT], name: str, watch: Watch, asked_as: AskedAs, there: Callable[[], int] = lambda: 0
) -> ResultT:
    """Ask the hub, again after a pause where that may help; its errors become ours, without URLs.

    ``there`` tells the bytes of a download: attempts that added some do not count.
    """
    failures, best = 0, there()
    while True:
        watch.advance(0)
        try:
            return what()
        except Exception as error:
            reason = _passing(error, name, asked_as)
        failures = 1 if there() > best else failures + 1
        best = max(best, there())
        if failures >= TRIES:
            raise Unreachable(f"{name}: {reason}, {TRIES} times in a row")
        watch.pause(watch.patience_s * 2 ** (failures - 1))


def _passing(error: Exception, name: str, asked_as: AskedAs) -> str:
    """What failed, if another attempt may work; raises what to tell the user otherwise."""
    import requests
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        do = " and HF_TOKEN be set" if asked_as == "anonymous" else " with the token's account"
        raise Unreachable(f"{name}: HTTP 403 (gated: the terms must be accepted{do})") from error
    if isinstance(error, errors.RepositoryNotFoundError):
        raise Unreachable(f"{name}: HTTP 404 (not there, or only for those who are let in)") from error
    if isinstance(error, errors.RevisionNotFoundError):
        raise MissingDataError(f"{name}: the revision of the card is not there any more") from error
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code if error.response is not None else 0
        if status not in AGAIN:
            raise refused(name, status, asked_as) from error
        return f"HTTP {status} ({meaning(status)})"
    if isinstance(error, (KeyError, TypeError, AttributeError, json.JSONDecodeError)):
        raise MissingDataError(
            f"{name}: expected the hub's description of the data set, found something else"
        ) from error
    broken = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    if isinstance(error, (errors.LocalEntryNotFoundError, *broken)):
        return "the connection failed"
    if isinstance(error, requests.RequestException):
        raise MissingDataError(f"{name}: {type(error).__name__}") from error
    if isinstance(error, OSError) and not is_machine_fault(error):
        return "fewer bytes than the hub said"
    raise error
