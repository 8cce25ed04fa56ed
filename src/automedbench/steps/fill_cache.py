"""Cache of models and packages, filled before any run: lite checkpoints, configured models, a wheelhouse.

Everything comes through the same mirror and index as in a run, on this host's loopback, and is asked for as the hub's
library and pip ask: what they need later is there, listings included. Files at other addresses lie under these.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from pydantic import Field

from automedbench.base.cards import Source
from automedbench.base.checkpoints import load_checkpoints
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.files import write_record
from automedbench.base.keys import read_keys
from automedbench.base.records import Model, now
from automedbench.campaign.record import CampaignRecord
from automedbench.datasets.download.transfer import DownloadProgress, Request, digests, download
from automedbench.datasets.patterns import is_pattern, path_matcher
from automedbench.sandbox.container.image import platform_tags
from automedbench.sandbox.egress.cache import Cache, Stored
from automedbench.sandbox.egress.dial import Upstreams
from automedbench.sandbox.egress.rules import EgressSettings, read_index
from automedbench.sandbox.egress.server import serve_on_loopback

BLOCK = 1 << 20
DEBIAN_12_PYTHON = "3.11"
DEBIAN_12_GLIBC = 36
"""Target of package resolution: the default base of ``containers.agent``."""
READ_S = 900.0
"""A follower waits while another process fetches the rest of a file."""


class _Unnamed(MissingDataError):
    """The table of checkpoints does not name what to fetch."""


class CacheRecord(Model):
    """``results/cache.json``: what was put into the cache before the runs."""

    schema_: Literal["automedbench/cache/1"] = Field("automedbench/cache/1", alias="schema")
    folder: str
    there: list[str] = Field(description="checkpoints, models and requirements that the cache holds now")
    problems: list[str] = Field(description="checkpoints whose files are not known; runs look for them")
    filled_at: datetime


def fill_cache(
    campaign: CampaignRecord, tasks: list[str] | None = None, *, upstreams: Upstreams | None = None
) -> CacheRecord:
    """Fetch the lite checkpoints of ``tasks`` and all that ``sandbox.egress`` names; write the record.

    Raises InfrastructureError when the cache cannot be used, MissingDataError after the last one when something could
    not be had; with ``offline`` also for checkpoints whose files are not known. ``upstreams`` replaces the world in
    tests.
    """
    config = campaign.settings.sandbox.egress
    if config.cache_place is None:
        raise MissingDataError("There is no cache to fill; set sandbox.egress.cache to a folder.")
    cache = Cache(*config.cache_place)
    index = read_index(ask=bool(config.packages))
    settings = EgressSettings(
        allow=index.hosts,
        hub=config.hub,
        index=index,
        gated=tuple(name.lower() for token in config.tokens for name in token.models),
        cached=True,
        sealed=True,
        upload_total_bytes=2**40,
    )
    tokens = {name.lower(): read_keys(token)[0] for token in config.tokens for name in token.models}
    wanted: dict[str, Callable[[dict[Any, int]], None]] = {}
    for source in _sources(tasks or []):
        wanted[f"{source.where}{f' @ {source.revision}' if source.revision else ''}"] = _getter(cache, source)
    for name in config.models:
        where, _, revision = name.partition("@")
        wanted[name] = _getter(cache, Source(kind="huggingface_model", where=where, revision=revision or None))
    for line in config.packages:
        wanted[line] = lambda ports, line=line: _packages(ports, line)  # type: ignore[misc]
    with tempfile.TemporaryDirectory(prefix="automedbench-cache-") as folder:
        problems = asyncio.run(
            _fill(serve_on_loopback(settings, Path(folder, "requests.jsonl"), cache, upstreams, tokens), wanted)
        )
    there = [name for name in wanted if name not in problems]
    notes = [f"{name}: {str(error).splitlines()[0]}" for name, error in problems.items()]
    if notes and (config.offline or not all(isinstance(error, _Unnamed) for error in problems.values())):
        lines = "\n".join(f"- {line}" for line in notes)
        use = "Runs depend on it alone" if config.offline else "Runs would ask for it themselves"
        raise MissingDataError(f"The cache {cache.folder} has {len(there)} of {len(wanted)}. {use}. Missing:\n{lines}")
    record = CacheRecord(folder=str(cache.folder), there=there, problems=notes, filled_at=now())
    write_record(campaign.results / "cache.json", record)
    return record


def _sources(tasks: list[str]) -> Iterator[Source]:
    """Places of the lite checkpoints of these tasks."""
    for checkpoint in load_checkpoints().values():
        if set(checkpoint.tasks) & set(tasks):
            yield from checkpoint.parts


async def _fill(
    serving: AbstractAsyncContextManager[dict[Any, int]], wanted: dict[str, Callable[[dict[Any, int]], None]]
) -> dict[str, Exception]:
    """Get one after the other; what could not be had, and why."""
    problems: dict[str, Exception] = {}
    async with serving as ports:
        for name, get in wanted.items():
            begun = time.monotonic()
            try:
                await asyncio.to_thread(get, ports)
            except (OSError, ValueError, KeyError, InfrastructureError, MissingDataError) as error:
                problems[name] = error
            print(
                f"{name}: {str(problems.get(name, 'there')).splitlines()[0]} ({time.monotonic() - begun:.0f} s)",
                flush=True,
            )
    return problems


def _getter(cache: Cache, source: Source) -> Callable[[dict[Any, int]], None]:
    if source.kind == "huggingface_model":
        return lambda ports: _model(ports, source)
    return lambda _: _files(cache, source)


def _model(ports: dict[Any, int], source: Source) -> None:
    """Listings and files of a model, under its revision and under the commit that this is now."""
    if "hub" not in ports:
        raise MissingDataError("no hub is configured (sandbox.egress.hub)")
    where, revision = source.where, source.revision or "main"
    listed = json.loads(_get(ports["hub"], f"/api/models/{where}/revision/{quote(revision, safe='')}"))
    takes = path_matcher([each.name for each in source.downloads])
    names = [file["rfilename"] for file in listed["siblings"] if takes(file["rfilename"])]
    if not names:
        raise MissingDataError("the repository contains none of the named files")
    if revision == "main":
        _get(ports["hub"], f"/api/models/{where}")
    for version in dict.fromkeys([revision, listed["sha"]]):
        shown = quote(version, safe="")
        _get(ports["hub"], f"/api/models/{where}/revision/{shown}")
        _get(ports["hub"], f"/api/models/{where}/tree/{shown}?recursive=True&expand=False")
        for name in names:
            _get(ports["hub"], f"/{where}/resolve/{shown}/{quote(name)}", keep=False)


def _get(port: int, path: str, *, keep: bool = True) -> bytes:
    """An answer of the mirror; with ``keep`` its body. Raises OSError with the mirror's own words."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"http://127.0.0.1:{port}{path}", timeout=READ_S) as answer:
            if keep:
                return bytes(answer.read())
            left = int(answer.headers["Content-Length"])
            while block := answer.read(BLOCK):
                left -= len(block)
    except urllib.error.HTTPError as error:
        raise OSError(f"{path}: {error.read(300).decode('utf-8', 'replace').strip() or error.reason}") from None
    if left:
        raise OSError(f"{path}: the connection broke, or the content is not what was published")
    return b""


def _files(cache: Cache, source: Source) -> None:
    """Files at plain addresses."""
    if not source.downloads:
        raise _Unnamed("the names of its files are not known (config/checkpoints.yaml)")
    for notes in source.downloads:
        url = notes.name if "://" in notes.name else f"{source.where}/{notes.name}"
        if source.kind != "url" or is_pattern(notes.name):
            raise _Unnamed(f"{source.kind} {notes.name} cannot be downloaded by URL")
        if cache.find(url) is None:
            _file(cache, url, notes.bytes, notes.checksum)


def _file(cache: Cache, url: str, size: int | None, checksum: str | None) -> None:
    name = hashlib.sha256(url.encode()).hexdigest()
    while (claimed := cache.claim(f"url-{name}")) is None:
        time.sleep(1)  # another campaign fetches it
    try:
        if cache.find(url) is not None:
            return
        target = cache.folder / "downloads" / name
        target.parent.mkdir(exist_ok=True)
        download(Request(url, url, size=size), target, DownloadProgress())
        kind, _, published = (checksum or "").partition(":")
        found = digests(target, "sha256", *([kind] if kind else []))
        if kind and found[kind] != published:
            target.unlink()
            raise MissingDataError(f"{url}: expected {checksum}, found {kind}:{found[kind]}; the file was discarded")
        length = target.stat().st_size
        os.replace(target, cache.part(found["sha256"]))
        cache.keep(found["sha256"])
        headers = {"content-type": "application/octet-stream", "etag": f'"{found["sha256"]}"'}
        cache.note(url, Stored(found["sha256"], length, headers, True, time.time()))
    finally:
        cache.part(f"url-{name}").unlink(missing_ok=True)
        os.close(claimed)


def _packages(ports: dict[Any, int], line: str) -> None:
    """Resolve a line of requirements for the image's Python; all that pip asks for is in the cache then."""
    if "index" not in ports:
        raise MissingDataError("pip on this machine has no package index")
    platforms = [word for tag in platform_tags(platform.machine(), DEBIAN_12_GLIBC) for word in ("--platform", tag)]
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("PIP_")}
    with tempfile.TemporaryDirectory(prefix="automedbench-wheels-") as folder:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--isolated", "--no-cache-dir", "--quiet", "--dest", folder),
                *("--disable-pip-version-check", "--index-url", f"http://127.0.0.1:{ports['index']}/simple"),
                *("--only-binary=:all:", "--implementation", "cp", "--python-version", DEBIAN_12_PYTHON, *platforms),
                *shlex.split(line),
            ],
            env={**kept, "PIP_CONFIG_FILE": os.devnull, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"},
            capture_output=True,
            text=True,
        )
    if done.returncode != 0:
        raise MissingDataError((done.stderr.strip().splitlines() or ["pip failed"])[-1][:300])
