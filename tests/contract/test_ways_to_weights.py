"""Ways to weights: every lite route and every named candidate is reached, and no home of a task's own data set.

Addresses of GitHub, Zenodo and the hub as their own documentation and clients have them (git-http-backend(1), GitHub's
REST API, Git LFS batch API, developers.zenodo.org, huggingface_hub).
"""

from __future__ import annotations

import functools
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from automedbench.base.cards import Source, TaskCard
from automedbench.campaign.config import EgressConfig
from automedbench.sandbox.egress.rules import EgressSettings

ROOT = Path(__file__).resolve().parents[2]
ROUTES = runpy.run_path(str(ROOT / "docs/make_routes.py"))
CARDS, CHECKPOINTS = ROUTES["load"](ROOT)
HUB = "https://huggingface.co"


@functools.cache
def settings_of(task: str, open_tls: bool = True) -> EgressSettings:
    """What a run of the task may reach by the defaults."""
    card = next(card for card in CARDS if card.id == task)
    settings: EgressSettings = ROUTES["settings_by"](card, CARDS, CHECKPOINTS, open_tls=open_tls)
    return settings


def github(repository: str) -> Iterator[str]:
    """A repository at every host that serves it; REPOSITORY_ID and buckets stand for what cannot be told by name."""
    yield from (f"https://github.com/{repository}{rest}" for rest in ("", ".git", "/", "/archive/refs/heads/main.zip"))
    yield from (
        f"https://github.com/{repository}/{rest}" for rest in ("zipball/main", "tarball/main", "raw/main/a.csv")
    )
    yield from (f"https://github.com/{repository}/{rest}" for rest in ("blob/main/a.csv?raw=true", "commit/1.patch"))
    yield f"https://github.com/{repository}/releases/download/v1/data.zip"
    yield from (f"https://github.com/{repository}{end}/info/refs?service=git-upload-pack" for end in ("", ".git"))
    yield from (f"https://github.com/{repository}{end}/git-upload-pack" for end in ("", ".git"))
    yield f"https://github.com/{repository}.git/info/lfs/objects/batch"
    yield from (f"https://codeload.github.com/{repository}/{kind}/refs/heads/main" for kind in ("zip", "tar.gz"))
    yield f"https://codeload.github.com/{repository}/legacy.zip/main"
    yield from (
        f"https://api.github.com/repos/{repository}{rest}" for rest in ("", "/zipball", "/contents/a", "/forks")
    )
    yield from (f"https://api.github.com/repos/{repository}/git/{kind}/1" for kind in ("blobs", "trees"))
    yield from ("https://api.github.com/repositories/123/zipball", "https://api.github.com/graphql")
    yield f"https://api.github.com/search/code?q=case+repo:{repository}"
    yield f"https://raw.githubusercontent.com/{repository}/main/a.csv"
    yield f"https://media.githubusercontent.com/media/{repository}/main/a.nii.gz"
    yield f"https://cdn.jsdelivr.net/gh/{repository}/a.csv"


def zenodo(record: str) -> Iterator[str]:
    """A record's pages, files and identifiers."""
    for place in (f"record/{record}", f"records/{record}", f"api/records/{record}", f"doi/10.5281/zenodo.{record}"):
        yield from (f"https://zenodo.org/{place}{rest}" for rest in ("", "/files/a.zip", "/files/a.zip/content"))
        yield f"https://www.zenodo.org/{place}"
    yield from (f"https://zenodo.org/api/records/{record}/{rest}" for rest in ("files-archive", "versions/latest"))
    yield f"https://zenodo.org/record/{record}/files/a.zip?download=1"
    yield "https://zenodo.org/api/files/0a1b2c3d-0000/a.zip"
    yield f"https://zenodo.org/oai2d?verb=GetRecord&identifier=oai:zenodo.org:{record}"
    yield f"https://zenodo.org/api/records?q=recid:{record}"
    yield f"https://doi.org/10.5281/zenodo.{record}"


def data_set_of_the_hub(name: str) -> Iterator[str]:
    """A data set's files, listings, repository and large-file stores."""
    yield from (f"{HUB}/datasets/{name}{rest}" for rest in ("", "/resolve/main/a", "/raw/main/a", "/tree/main", ".git"))
    yield from (f"{HUB}/api/datasets/{name}{rest}" for rest in ("", "/tree/main", "/revision/main", "/parquet/a/0"))
    yield from (f"{HUB}/api/datasets/{name}/xet-read-token/main", f"{HUB}/api/resolve-cache/datasets/{name}/1/a")
    yield from (
        f"{HUB}/datasets/{name}{rest}" for rest in ("/info/refs?service=git-upload-pack", ".git/git-upload-pack")
    )
    yield f"{HUB}/datasets/{name}.git/info/lfs/objects/batch"
    yield f"https://datasets-server.huggingface.co/rows?dataset={name}"
    yield from ("https://cdn-lfs.hf.co/repos/1", "https://cas-bridge.xethub.hf.co/xet-bridge-us/1")
    yield f"https://hf.co/datasets/{name}/resolve/main/a"


def homes(card: TaskCard, *, code: bool) -> Iterator[str]:
    """Every address under which the data set of a card, or a file of it, can be had; with its authors' code, or not."""
    parts: list[Source] = [part for source in card.dataset.sources for part in (source, *source.also)]
    pages = [page for page in card.dataset.homepages if code or "//github.com/" not in page]
    urls = [*pages, *(part.where for part in parts if "://" in part.where)]
    for part in parts:
        names = [told.name.replace("*", "x") for told in part.downloads]
        urls += [name if "://" in name else f"{part.where}/{name}" for name in names if "://" in part.where + name]
        if part.kind == "huggingface":
            yield from data_set_of_the_hub(part.where)
    for url in urls:
        yield url
        if found := re.match(r"https://github\.com/([^/]+/[^/]+)", url):
            yield from github(found[1])
        if found := re.search(r"zenodo\.org/records?/(\d+)", url):
            yield from zenodo(found[1])
        if found := re.match(r"https://huggingface\.co/datasets/(.+)", url):
            yield from data_set_of_the_hub(found[1])


def spellings(url: str) -> Iterator[str]:
    """An address as it stands and as others could write it."""
    parts = urlsplit(url)
    path, query = parts.path or "/", f"?{parts.query}" if parts.query else ""
    first = next((at for at, letter in enumerate(path) if letter.isalpha()), 0)
    twice = f"%25{ord(path[first]):02x}".join((path[:first], path[first + 1 :]))
    once = f"%{ord(path[first]):02X}".join((path[:first], path[first + 1 :]))
    for changed in (
        path,
        path.upper(),
        path.title(),
        once,
        twice,
        path.replace("/", "//"),
        f"/a/..{path}",
        f"/.{path}",
    ):
        yield f"https://{parts.netloc}{changed}{query}"
    yield f"https://{parts.netloc.upper()}{path}{query}"


def test_no_home_of_a_tasks_own_data_set_is_reached() -> None:
    reached = []
    for card in CARDS:
        for open_tls in (True, False):
            settings = settings_of(card.id, open_tls)
            urls = {spelt for url in homes(card, code=open_tls) if url.startswith("https") for spelt in spellings(url)}
            urls |= {f"https://{host.removeprefix('*.')}/" for host in settings.own_hosts}
            assert urls, card.id
            reached += [(card.id, url) for url in sorted(urls) if ROUTES["ruling_on"](settings, url).allowed]
    assert reached == []


def test_a_home_that_can_be_seen_is_evidence_and_a_page_of_code_is_none() -> None:
    """A clone of the data is a warning; the authors' code, whose model may be the one asked for, is refused only."""
    told = {
        ("kidney-seg-task", "https://codeload.github.com/neheller/kits19/zip/x"): ("own_home", "warning"),
        ("liver-seg-task", "https://codeload.github.com/neheller/kits19/zip/x"): ("dataset_home", "notice"),
        ("panther-t1-seg-task", "https://zenodo.org/api/records/15192302"): ("own_home", "warning"),
        ("slake-task", "https://huggingface.co/datasets/BoKelvin/SLAKE/resolve/main/x"): ("own_home", "warning"),
        ("pathvqa-task", "https://github.com/UCSD-AI4H/PathVQA"): ("dataset_home", "notice"),
        ("slake-task", "https://github.com/UCSD-AI4H/PathVQA"): ("listed", "notice"),
    }
    for (task, url), expected in told.items():
        ruling = ROUTES["ruling_on"](settings_of(task), url)
        assert (ruling.reason, ruling.severity) == expected, (task, url)


def test_every_lite_route_and_every_candidate_is_reached() -> None:
    refused, count = [], 0
    for card in CARDS:
        settings = settings_of(card.id)
        ways = dict.fromkeys(ROUTES["lite_ways"](card, CHECKPOINTS), "lite")
        assert bool(ways) == ("lite" in card.tiers), card.id
        ways |= {url: name for name, urls in ROUTES["candidate_ways"](card, ROOT) for url in urls}
        count += len(ways)
        refused += [
            (card.id, what, url) for url, what in ways.items() if not ROUTES["ruling_on"](settings, url).allowed
        ]
    assert refused == []
    assert count > 150


def test_what_the_hints_fetch_is_reached() -> None:
    refused = []
    for path in sorted((ROOT / "config/prompts/hints").rglob("*.md")):
        for url in re.findall(r"https://(?:github|zenodo|raw)[^\s\"'`)\\]+", path.read_text()):
            ways = [ROUTES["ruling_on"](settings_of(card.id), url) for card in CARDS]
            refused += [(path.name, url)] * (not all(ruling.allowed for ruling in ways))
    assert refused == []


def test_the_sites_file_has_the_defaults() -> None:
    """config/config.yaml shows what the schema has anyway, and turns the cache on."""
    shown = yaml.safe_load((ROOT / "config/config.yaml").read_text())["sandbox"]["egress"]
    assert EgressConfig.model_validate(shown) == EgressConfig(cache=shown["cache"])


def test_the_page_has_the_table() -> None:
    """After a change: ``python docs/make_routes.py docs/network.md``."""
    page = (ROOT / "docs/network.md").read_text()
    assert ROUTES["updated"](page, ROOT) == page
