"""Checking sources: whether what a card names is still there, as the card knows it; nothing is downloaded.

Addresses are the fetchers' own. Where a host lists its files with sizes and checksums (the Hugging Face hub, Zenodo,
releases on GitHub), the list is compared; everywhere else the headers of each file are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import Field
from source_requests import HttpAnswer, NoAnswer, ask

from automedbench.base.cards import Download, Source
from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.files import parse_json_object
from automedbench.base.records import Model
from automedbench.datasets.download.access import HUB, pinned_commit
from automedbench.datasets.download.collecting import Collector
from automedbench.datasets.download.transfer import Request, describe_status
from automedbench.datasets.fetchers import PLANNERS
from automedbench.datasets.fetchers.catalogues import (
    hub_address,
    parse_hub_listing,
    parse_series,
    physionet_address,
    series_address,
)
from automedbench.datasets.fetchers.web import choose_files, expand_numbers, make_request
from automedbench.datasets.patterns import is_pattern

State = Literal["there", "moved", "changed", "login needed", "gone", "unreachable"]
LARGE = 1_000_000
"""Bytes of a file that is worth naming where a card names none."""
MOST_NAMED = 8
_ZENODO = re.compile(r"https://zenodo\.org/records?/(\d+)(?:/files(?:/([^/]+))?)?/?")
_RELEASE = re.compile(r"https://github\.com/([^/]+/[^/]+)/releases/download/([^/]+)/([^/]+)")
_REPOSITORY = re.compile(r"https://github\.com/([^/]+/[^/]+?)(?:\.git)?/?")


class SourceFinding(Model):
    """Answer of a host about one entry of a card."""

    key: str = Field(description="place in the card, dotted")
    address: str = Field(description="what was asked for; no query, no credentials")
    state: State
    told: str = Field("", description="what the host said")
    write: str = Field("", description="what to write at that place, or to do")


@dataclass(frozen=True)
class _Entry:
    """One entry of a card."""

    key: str
    told: Download
    address: str

    def finding(self, state: State, told: str = "", write: str = "") -> SourceFinding:
        return SourceFinding(key=self.key, address=self.address, state=state, told=told, write=write)


Facts = Mapping[str, Any]
"""``size`` and ``checksum`` of a file as a list of its host tells them; empty where it does not."""


@dataclass
class Checker:
    """Asks hosts; a list is asked for once, and a host that gives no answer is not asked again."""

    collector: Collector
    _lists: dict[str, HttpAnswer] = field(default_factory=dict)
    _silent: dict[str, str] = field(default_factory=dict)

    def check(self, source: Source, key: str) -> list[SourceFinding]:
        """Verdicts on the downloads of a source at ``key`` of its card; one finding where it names none."""
        try:
            missing = _missing(source, self.collector)
            known = source.model_copy(update={"credentials": []}) if missing else source
            found = list(_CHECKS.get(source.kind, _files)(self, known, key))
        except (NoAnswer, MissingDataError, ConfigError) as error:
            return [_Entry(key, Download(name=""), source.where).finding("unreachable", " ".join(str(error).split()))]
        return [_with_login(each, source, missing) for each in found]

    def headers(self, source: Source, url: str) -> HttpAnswer:
        """Headers of a file; raises NoAnswer."""
        return self.ask(make_request(source, self.collector, url))

    def listing(self, source: Source, url: str) -> HttpAnswer:
        """All that an address gives; raises NoAnswer."""
        if url not in self._lists:
            self._lists[url] = self.ask(make_request(source, self.collector, url), listing=True)
        return self._lists[url]

    def ask(self, request: Request, *, listing: bool = False) -> HttpAnswer:
        """Headers or a listing; raises NoAnswer, at once for a host that has given none before."""
        host = urlsplit(request.url).netloc
        if host in self._silent:
            raise NoAnswer(self._silent[host])
        try:
            return ask(request, self.collector.watch, listing=listing)
        except NoAnswer as error:
            self._silent[host] = str(error)
            raise


def _missing(source: Source, collector: Collector) -> list[str]:
    """Variables of a source that are not set."""
    return [name for name in source.credentials if not collector.access.environment.get(name, "").strip()]


def _with_login(found: SourceFinding, source: Source, missing: list[str]) -> SourceFinding:
    """Finding with what a person can do about a refusal."""
    if found.state != "login needed" or found.write:
        return found
    if missing:
        write = f"set {' and '.join(missing)}; the card's how_to_get says how"
    elif source.credentials:
        write = f"look at the account behind {' and '.join(source.credentials)}: wrong, or its terms not accepted"
    else:
        write = "the card knows of no login: credentials, or another source"
    return found.model_copy(update={"write": write})


# --- verdicts -------------------------------------------------------------------------------------------------


def _refused(answer: HttpAnswer) -> State | None:
    """The state that a status alone decides; None where the file is there."""
    if answer.status in (200, 206, 416):
        return "login needed" if answer.page else None
    if answer.status in (401, 403):
        return "login needed"
    return "gone" if answer.status in (404, 410, 451) else "unreachable"


def _status(answer: HttpAnswer) -> str:
    if answer.status < 300:
        return "a web page: a login, or a licence to accept"
    return f"HTTP {answer.status} ({answer.code or describe_status(answer.status)})"


def _by_headers(entry: _Entry, answer: HttpAnswer, *, page: bool = False) -> SourceFinding:
    """The verdict on a file; ``page``: a web page is what was asked for."""
    state = _refused(answer)
    if state is not None and not (page and answer.status == 200):
        return entry.finding(state, _status(answer))
    facts = {} if answer.size is None or page else {"size": answer.size}
    return _by_facts(entry, facts, moved=answer.moved)


def _by_facts(entry: _Entry, facts: Facts, moved: str | None = None) -> SourceFinding:
    """The verdict on a file that is there: as the card knows it, or what else."""
    told, write = [], []
    for name, known, found in (
        ("bytes", entry.told.bytes, facts.get("size")),
        ("checksum", entry.told.checksum, facts.get("checksum")),
    ):
        if found is None:
            continue
        if known is None:
            write.append(f"{name}: {found}")
        elif found != known and _same_kind(found, known):
            told.append(f"{name} {found}, the card says {known}")
            write.append(f"{name}: {found}")
    if told:
        return entry.finding("changed", "; ".join(told), ", ".join(write))
    if moved is not None:
        return entry.finding("moved", f"to {moved}", ", ".join([moved, *write]))
    return entry.finding("there", "", ", ".join(write))


def _same_kind(one: Any, other: Any) -> bool:
    """Checksums by different algorithms say nothing of each other."""
    return str(one).partition(":")[0] == str(other).partition(":")[0] if isinstance(one, str) else True


# --- kinds ----------------------------------------------------------------------------------------------------


def _entries(source: Source, key: str) -> Iterator[tuple[str, Download]]:
    """Downloads with their places; of numbered ones the first and the last, of rows the table."""
    for place, told in enumerate(source.downloads):
        at = f"{key}.downloads.{place}"
        if told.rows is not None:
            yield at, Download(name=told.rows.table, unpack=False)
        elif told.numbers is None:
            yield at, told
        else:
            for number in dict.fromkeys(told.numbers):
                yield from (
                    (at, each) for each in expand_numbers([told.model_copy(update={"numbers": (number, number)})])
                )


def _files(checker: Checker, source: Source, key: str) -> Iterator[SourceFinding]:
    """Files with a URL each, as the fetcher of their kind makes them."""
    for at, told in list(_entries(source, key)) or [(f"{key}.where", Download(name=""))]:
        one = source.model_copy(update={"downloads": [told] if source.downloads else []})
        for item in PLANNERS[source.kind](one, checker.collector).items:
            assert item.request is not None
            yield _on_file(checker, source, _Entry(at, told, item.request.name), item.request)


def _on_file(checker: Checker, source: Source, entry: _Entry, request: Request) -> SourceFinding:
    """The verdict on one file; others of the source may lie on other hosts."""
    try:
        return _listed(checker, source, entry) or _by_headers(entry, checker.ask(request))
    except NoAnswer as error:
        return entry.finding("unreachable", str(error))


def _physionet(checker: Checker, source: Source, key: str) -> Iterator[SourceFinding]:
    """Files that the card names; for patterns the list of checksums."""
    for at, told in _entries(source, key):
        url = physionet_address(source, None if is_pattern(told.name) else told.name)
        entry = _Entry(at, Download(name=url) if is_pattern(told.name) else told, url)
        yield _on_file(checker, source, entry, make_request(source, checker.collector, url))


def _tcia(checker: Checker, source: Source, key: str) -> Iterator[SourceFinding]:
    """The archive's list of series for each download."""
    for at, told in list(_entries(source, key)) or [(f"{key}.where", Download(name=""))]:
        url = series_address(source, told.name)
        entry, answer = _Entry(at, told, f"tcia {source.where} {told.name}".strip()), checker.listing(source, url)
        state = _refused(answer)
        if state is not None:
            yield entry.finding(state, _status(answer))
            continue
        found = parse_series(source, told.name, answer.body)
        yield entry.finding("there" if found else "gone", f"{len(found)} series")


def _page(checker: Checker, source: Source, key: str) -> Iterator[SourceFinding]:
    """The page where a person gets the data."""
    entry = _Entry(f"{key}.where", Download(name=""), source.where)
    if "://" in source.where:
        yield _by_headers(entry, checker.headers(source, source.where), page=True)


def _box(checker: Checker, source: Source, key: str) -> Iterator[SourceFinding]:
    yield from (_files if source.downloads else _page)(checker, source, key)


def _git(checker: Checker, source: Source, key: str) -> Iterator[SourceFinding]:
    """The commit that the card names, of GitHub's interface; of other hosts the repository's page."""
    repository = _REPOSITORY.fullmatch(source.where)
    if repository is None:
        yield from _page(checker, source, key)
        return
    entry = _Entry(f"{key}.revision", Download(name=""), source.where)
    url = f"https://api.github.com/repos/{repository[1]}/commits/{source.revision or 'HEAD'}"
    answer = checker.listing(source, url)
    if answer.status == 422:
        yield entry.finding("changed", f"commit {source.revision} is not there any more", "revision: another commit")
    elif answer.status in (403, 429):
        yield entry.finding("unreachable", "GitHub was asked too often from this address; try again in an hour")
    elif (state := _refused(answer)) is not None:
        yield entry.finding(state, _status(answer))
    else:
        yield _by_commit(entry, source, repository[1], parse_json_object(answer.body) or {})


def _by_commit(entry: _Entry, source: Source, repository: str, told: Any) -> SourceFinding:
    commit, page = str(told.get("sha", "")), str(told.get("html_url", ""))
    owner = "/".join(urlsplit(page).path.split("/")[1:3])
    if owner and owner.lower() != repository.lower():
        return entry.finding("moved", f"to {owner}", f"where: https://github.com/{owner}")
    return entry.finding("there", "", "" if pinned_commit(source) else f"revision: {commit}")


# --- lists of hosts -------------------------------------------------------------------------------------------


def _listed(checker: Checker, source: Source, entry: _Entry) -> SourceFinding | None:
    """The verdict by the list of Zenodo or of a release on GitHub; None where there is no such list to be had."""
    record, release = _ZENODO.fullmatch(entry.address), _RELEASE.fullmatch(entry.address)
    if record is not None:
        answer, name = checker.listing(source, f"https://zenodo.org/api/records/{record[1]}"), unquote(record[2] or "")
        read: Callable[[Any], dict[str, Facts]] = _zenodo_files
    elif release is not None:
        url = f"https://api.github.com/repos/{release[1]}/releases/tags/{release[2]}"
        answer, name, read = checker.listing(source, url), unquote(release[3]), _release_files
    else:
        return None
    if answer.status != 200:
        return entry.finding("gone", _status(answer)) if answer.status in (404, 410) else None
    files = read(parse_json_object(answer.body) or {})
    if not name:
        return entry.finding("there", f"{len(files)} files", _naming(files))
    if not files and record is not None:
        return entry.finding("login needed", "the record shows its files to those who are let in")
    if name not in files:
        return entry.finding("gone", "the list of the host does not have it", _naming(files))
    return _by_facts(entry, files[name])


def _zenodo_files(told: Any) -> dict[str, Facts]:
    return {str(each["key"]): each for each in told.get("files") or [] if isinstance(each, dict) and "key" in each}


def _release_files(told: Any) -> dict[str, Facts]:
    assets = [each for each in told.get("assets") or [] if isinstance(each, dict) and "name" in each]
    return {str(each["name"]): {"size": each.get("size"), "checksum": each.get("digest")} for each in assets}


def _hub(checker: Checker, source: Source, key: str) -> Iterator[SourceFinding]:
    """The hub's description: its name, its commit, each file that the card names."""
    entry = _Entry(f"{key}.revision", Download(name=""), f"https://{HUB}/{source.where}")
    answer = checker.listing(source, hub_address(source))
    if answer.status == 404 and answer.code == "RevisionNotFound":
        now = checker.listing(source, hub_address(source.model_copy(update={"revision": None})))
        commit = (parse_json_object(now.body) or {}).get("sha", "")
        told = f"revision {source.revision} is not there any more"
        yield entry.finding("changed", told, f"revision: {commit}" if commit else "")
    elif answer.code == "RepoNotFound" and not source.credentials:  # said with 401 to those without an account
        yield entry.finding("gone", _status(answer))
    elif (state := _refused(answer)) is not None:
        yield entry.finding(state, _status(answer))
    else:
        yield from _by_description(checker, source, key, entry, answer.body)


def _by_description(checker: Checker, source: Source, key: str, entry: _Entry, body: bytes) -> Iterator[SourceFinding]:
    (commit, files), told = parse_hub_listing(source, body), parse_json_object(body) or {}
    if str(told.get("id", source.where)).lower() != source.where.lower():
        yield entry.finding("moved", f"to {told['id']}", f"where: {told['id']}")
    elif pinned_commit(source) not in (None, commit):
        yield entry.finding("changed", f"commit {commit}, the card says {source.revision}", f"revision: {commit}")
    else:
        wanted = "" if pinned_commit(source) else f"revision: {commit}"
        yield entry.finding("there", f"at {commit[:12]}", wanted)
    facts = {name: _hub_facts(each) for name, each in files.items()}
    if told.get("gated") and files:
        address = f"{'datasets/' if source.kind == 'huggingface' else ''}{source.where}"
        answer = checker.headers(source, f"https://{HUB}/{address}/resolve/{commit}/{min(files)}")
        if (state := _refused(answer)) is not None:
            yield entry.finding(state, "gated: the terms must be accepted, and HF_TOKEN be of that account")
            return
    if not source.downloads:
        named = {name: each for name, each in facts.items() if (each["size"] or 0) >= LARGE}
        yield _Entry(f"{key}.downloads", Download(name=""), entry.address).finding("there", "", _naming(named))
    for at, each in _entries(source, key):
        yield _in_description(source, _Entry(at, each, f"{entry.address}/{each.name}"), facts)


def _in_description(source: Source, entry: _Entry, facts: dict[str, Facts]) -> SourceFinding:
    if entry.told.name in facts:
        return _by_facts(entry, facts[entry.told.name])
    one = source.model_copy(update={"downloads": [entry.told]})
    try:
        found = [each.name for each in choose_files(one, facts, [entry.told]) if each.name in facts]
    except MissingDataError:
        found = []
    return (
        entry.finding("there", f"{len(found)} files") if found else entry.finding("gone", "the hub lists no such file")
    )


def _hub_facts(told: Facts) -> Facts:
    digest = (told.get("lfs") or {}).get("sha256")
    return {"size": told.get("size"), "checksum": f"sha256:{digest}" if digest else None}


def _naming(files: Mapping[str, Facts]) -> str:
    """Files as entries of a card, the largest first."""
    largest = sorted(files, key=lambda name: -(files[name].get("size") or 0))[:MOST_NAMED]
    entries = []
    for name in largest:
        facts = {"bytes": files[name].get("size"), "checksum": files[name].get("checksum")}
        entries.append(", ".join([f"name: {name}", *(f"{key}: {value}" for key, value in facts.items() if value)]))
    return "downloads: " + "; ".join(f"{{{entry}}}" for entry in entries) if entries else ""


_CHECKS: dict[str, Callable[[Checker, Source, str], Iterator[SourceFinding]]] = {
    "box": _box,
    "git": _git,
    "huggingface": _hub,
    "huggingface_model": _hub,
    "manual": _page,
    "physionet": _physionet,
    "tcia": _tcia,
}
"""Kinds whose files are not found at a URL each."""
