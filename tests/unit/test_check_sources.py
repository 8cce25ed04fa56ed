"""``tools/check_sources.py``: every answer of a host, from servers on loopback; nothing is downloaded."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import check_sources
import pytest
import source_requests
import yaml
from check_sources import main
from source_checker import Checker, SourceFinding
from upstreams import Seen, WebServer

from automedbench.base.cards import Download, Source
from automedbench.base.errors import ConfigError
from automedbench.datasets.download import transfer
from automedbench.datasets.download.access import Access
from automedbench.datasets.download.collecting import Collector

ROOT = Path(__file__).resolve().parents[2]
COMMIT, OTHER = "a" * 40, "b" * 40
SHA, MD5 = "sha256:" + "1" * 64, "md5:" + "2" * 32
Reply = tuple[int, dict[str, str], bytes]


class Host:
    """Answers by path; a list of answers is given one after the other, the last one again and again."""

    def __init__(self, **paths: Reply | list[Reply] | Callable[[Seen], Reply]):
        self.paths = {f"/{name}": each for name, each in paths.items()}

    def __call__(self, seen: Seen) -> Reply:
        found = self.paths.get(seen.target, (404, {}, b"no"))
        if callable(found):
            return found(seen)
        if isinstance(found, list):
            return found.pop(0) if len(found) > 1 else found[0]
        return found


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "ZENODO_TOKEN", "PHYSIONET_USERNAME", "PHYSIONET_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def check(tmp_path: Path, source: Source, mirrors: dict[str, str] | None = None) -> list[SourceFinding]:
    return Checker(Collector(tmp_path, Access(mirrors or {}, patience_s=0.001))).check(source, "s")


def file_of(size: int = 10, **more: str) -> Reply:
    return 200, {"Content-Length": str(size), **more}, b"x" * size


def served(tmp_path: Path, host: Host, *told: Download) -> tuple[list[SourceFinding], WebServer]:
    with WebServer(host) as server:
        return check(tmp_path, Source(kind="url", where=server.url, downloads=list(told))), server


def only_get(seen: Seen) -> Reply:
    if seen.method == "HEAD":
        return 405, {}, b""
    return 206, {"Content-Range": "bytes 0-0/10", "Content-Length": "1"}, b"x"


def answers() -> dict[str, tuple[Any, Download, str, str, str]]:
    """Path → what the host does, what the card says, state, what is told, what is to be written."""
    plain = Download(name="")
    return {
        "plain": (file_of(), Download(name="", bytes=10), "there", "", ""),
        "unknown": (file_of(), plain, "there", "", "bytes: 10"),
        "range": (only_get, Download(name="", bytes=10), "there", "", ""),
        "larger": (file_of(12), Download(name="", bytes=10), "changed", "bytes 12, the card says 10", "bytes: 12"),
        "moved": (
            (301, {"Location": "/plain"}, b""),
            Download(name="", bytes=10),
            "moved",
            "to {url}/plain",
            "{url}/plain",
        ),
        "stored": ((302, {"Location": "/plain"}, b""), Download(name="", bytes=10), "there", "", ""),
        "login": ((401, {}, b""), plain, "login needed", "HTTP 401", "the card knows of no login"),
        "refused": ((403, {}, b""), plain, "login needed", "HTTP 403", "the card knows of no login"),
        "page": (file_of(**{"Content-Type": "text/html"}), plain, "login needed", "a web page", "the card knows"),
        "nothing": ((404, {}, b""), plain, "gone", "HTTP 404", ""),
        "withdrawn": ((410, {}, b""), plain, "gone", "HTTP 410", ""),
        "busy": ([(429, {"Retry-After": "0"}, b""), file_of()], Download(name="", bytes=10), "there", "", ""),
        "ill": ([(503, {}, b""), (500, {}, b""), file_of()], Download(name="", bytes=10), "there", "", ""),
    }


def test_every_answer(tmp_path: Path) -> None:
    """As RFC 9110 means them; a temporary redirect is where a file is stored, a permanent one a move."""
    known = answers()
    with WebServer(Host(**{name: each[0] for name, each in known.items()})) as server:
        wrong = []
        for name, (_, told, *expected) in known.items():
            source = Source(kind="url", where=server.url, downloads=[told.model_copy(update={"name": name})])
            (found,) = check(tmp_path, source)
            state, said, write = (text.replace("{url}", server.url) for text in expected)
            if found.state != state or not found.told.startswith(said) or not found.write.startswith(write):
                wrong.append(found)
    assert wrong == []
    asked = [seen for seen in server.seen if seen.method == "GET"]
    assert {seen.headers.get("range") for seen in asked} == {"bytes=0-0"}


def test_hosts_without_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, slow, always ill, always busy: unreachable with the reason, and not asked again for the next file."""
    monkeypatch.setattr(transfer, "READ_S", 0.2)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]

    def slowly(seen: Seen) -> Reply:
        time.sleep(0.5)
        return file_of()

    (found,) = check(tmp_path, Source(kind="url", where=f"http://127.0.0.1:{port}/x"))
    assert (found.state, found.told) == ("unreachable", "the connection was refused")
    for reply, told in (
        (slowly, "no answer in time"),
        ((500, {}, b""), "HTTP 500 (Internal Server Error)"),
        ((429, {"Retry-After": "0"}, b""), "HTTP 429 (rate limit exceeded)"),
    ):
        found_all, server = served(tmp_path, Host(a=reply, b=reply), Download(name="a"), Download(name="b"))
        assert [(each.state, each.told) for each in found_all] == [("unreachable", told)] * 2
        assert [seen.target for seen in server.seen] == ["/a"] * source_requests.TRIES


def hub(sha: str = COMMIT, name: str = "o/m", **more: Any) -> Reply:
    files = [
        {"rfilename": "w.bin", "size": 2_000_000, "lfs": {"sha256": "1" * 64}},
        {"rfilename": "config.json", "size": 7},
    ]
    return 200, {}, json.dumps({"id": name, "sha": sha, "siblings": files, **more}).encode()


def of_hub(
    tmp_path: Path, replies: dict[str, Reply], *told: Download, revision: str | None = COMMIT
) -> list[SourceFinding]:
    with WebServer(Host(**replies)) as server:
        source = Source(kind="huggingface_model", where="o/m", revision=revision, downloads=list(told))
        return check(tmp_path, source, {"huggingface.co": server.url})


def at(revision: str | None = COMMIT) -> str:
    return f"api/models/o/m{f'/revision/{revision}' if revision else ''}?blobs=true"


def test_hub(tmp_path: Path) -> None:
    """The hub's list is compared with the card's sizes, checksums and commit."""
    right = Download(name="w.bin", bytes=2_000_000, checksum=SHA)
    assert [each.state for each in of_hub(tmp_path, {at(): hub()}, right)] == ["there", "there"]
    wrong = [
        right.model_copy(update={"bytes": 5}),
        right.model_copy(update={"checksum": "sha256:" + "3" * 64}),
        Download(name="absent.bin"),
        Download(name="*.json"),
        Download(name="*.txt"),
        Download(name="w.bin", checksum=MD5),
        Download(name="config.json"),
    ]
    found = of_hub(tmp_path, {at(): hub()}, *wrong)[1:]
    assert [(each.key, each.state, each.write) for each in found] == [
        ("s.downloads.0", "changed", "bytes: 2000000"),
        ("s.downloads.1", "changed", f"checksum: {SHA}"),
        ("s.downloads.2", "gone", ""),
        ("s.downloads.3", "there", ""),
        ("s.downloads.4", "gone", ""),
        ("s.downloads.5", "there", "bytes: 2000000"),  # an md5 says nothing of a sha256
        ("s.downloads.6", "there", "bytes: 7"),
    ]
    branch, files = of_hub(tmp_path, {at(None): hub()}, revision=None)
    assert (branch.write, files.write) == (
        f"revision: {COMMIT}",
        f"downloads: {{name: w.bin, bytes: 2000000, checksum: {SHA}}}",
    )
    whole = [(each.state, each.write) for each in of_hub(tmp_path, {at(): hub(name="new/m")}, right)]
    assert whole[0] == ("moved", "where: new/m")
    assert of_hub(tmp_path, {at(): hub(OTHER)}, right)[0].write == f"revision: {OTHER}"


def test_hub_refuses(tmp_path: Path) -> None:
    """Gone with its revision, gone as a whole, gated."""
    lost = {at(): (404, {"X-Error-Code": "RevisionNotFound"}, b"{}"), at(None): hub(OTHER)}
    (found,) = of_hub(tmp_path, lost)
    assert (found.state, found.write) == ("changed", f"revision: {OTHER}")
    (found,) = of_hub(tmp_path, {at(): (401, {"X-Error-Code": "RepoNotFound"}, b"{}")})
    assert found.state == "gone"
    gated = {at(): hub(gated="manual"), f"o/m/resolve/{COMMIT}/config.json": (401, {}, b"")}
    assert [each.state for each in of_hub(tmp_path, gated)] == ["there", "login needed"]
    (found,) = of_hub(tmp_path, {at(): (200, {}, b"<html>")})
    assert found.state == "unreachable"


def test_zenodo(tmp_path: Path) -> None:
    """The record's list, asked for once; a withdrawn record, and one whose files are not shown."""
    record = {"files": [{"key": "a b.zip", "size": 9, "checksum": MD5}]}
    zenodo = Host(**{"api/records/7": (200, {}, json.dumps(record).encode()), "api/records/9": (200, {}, b"{}")})

    def of(number: int, *told: Download) -> list[SourceFinding]:
        source = Source(kind="url", where=f"https://zenodo.org/records/{number}/files", downloads=list(told))
        return check(tmp_path, source, {"zenodo.org": server.url})

    with WebServer(zenodo) as server:
        right, wrong = (
            Download(name="a%20b.zip", bytes=9, checksum=MD5),
            Download(name="a%20b.zip", checksum="md5:" + "3" * 32),
        )
        found = of(7, right, wrong, Download(name="c.zip"))
        assert [each.state for each in found] == ["there", "changed", "gone"]
        assert found[1].write == f"bytes: 9, checksum: {MD5}"
        assert [seen.target for seen in server.seen] == ["/api/records/7"]
        assert [each.state for each in of(8, right)] == ["gone"]
        assert [each.state for each in of(9, right)] == ["login needed"]


def test_github(tmp_path: Path) -> None:
    """Commits and releases by GitHub's interface; without it, the file itself."""
    asset = {"name": "w.zip", "size": 4, "digest": SHA}
    api = Host(
        **{
            f"repos/o/r/commits/{COMMIT}": (
                200,
                {},
                json.dumps({"sha": COMMIT, "html_url": "https://github.com/o/r/x"}).encode(),
            ),
            f"repos/o/r/commits/{OTHER}": (422, {}, b"{}"),
            "repos/o/old/commits/HEAD": (
                200,
                {},
                json.dumps({"sha": COMMIT, "html_url": "https://github.com/o/new/x"}).encode(),
            ),
            "repos/o/busy/commits/HEAD": (403, {}, b"{}"),
            "repos/o/r/releases/tags/v1": (200, {}, json.dumps({"assets": [asset]}).encode()),
            "repos/o/r/releases/tags/v2": (403, {}, b"{}"),
        }
    )
    with WebServer(api) as server, WebServer(Host(**{"o/r/releases/download/v2/w.zip": file_of(4)})) as front:
        mirrors = {"api.github.com": server.url, "github.com": front.url}

        def git(name: str, revision: str | None = None) -> SourceFinding:
            (found,) = check(
                tmp_path, Source(kind="git", where=f"https://github.com/{name}", revision=revision), mirrors
            )
            return found

        def release(tag: str) -> SourceFinding:
            where = f"https://github.com/o/r/releases/download/{tag}"
            (found,) = check(tmp_path, Source(kind="url", where=where, downloads=[Download(name="w.zip")]), mirrors)
            return found

        assert (git("o/r", COMMIT).state, git("o/r", OTHER).state) == ("there", "changed")
        assert (git("o/old").state, git("o/old").write) == ("moved", "where: https://github.com/o/new")
        assert (git("o/busy").state, git("o/none").state) == ("unreachable", "gone")
        assert release("v1").write == f"bytes: 4, checksum: {SHA}"
        assert (release("v2").state, release("v2").write) == ("there", "bytes: 4")
        assert release("v3").state == "gone"


def test_other_kinds(tmp_path: Path) -> None:
    """PhysioNet with and without a login, series of TCIA, numbered files, rows of a table, a person's page."""
    series = [{"SeriesInstanceUID": "1.2", "PatientID": "P-1", "StudyInstanceUID": "1"}]
    listed = "nbia-api/services/v1/getSeries?Collection=C&Modality=CT&format=json"
    host = Host(
        **{
            "files/p/1/a.csv": lambda seen: file_of(3) if "authorization" in seen.headers else (401, {}, b""),
            "files/p/1/SHA256SUMS.txt": file_of(3),
            listed: (200, {}, json.dumps(series).encode()),
            "n1": file_of(1),
            "n9": file_of(9),
            "table.csv": file_of(5),
            "page": file_of(**{"Content-Type": "text/html"}),
        }
    )
    with WebServer(host) as server:
        mirrors = {"physionet.org": server.url, "services.cancerimagingarchive.net": server.url}
        names = ["PHYSIONET_USERNAME", "PHYSIONET_PASSWORD"]
        told = [Download(name="a.csv"), Download(name="*.dcm")]
        found = check(tmp_path, Source(kind="physionet", where="p/1", downloads=told, credentials=names), mirrors)
        assert [(each.state, each.write) for each in found] == [
            ("login needed", "set PHYSIONET_USERNAME and PHYSIONET_PASSWORD; the card's how_to_get says how"),
            ("there", "bytes: 3"),
        ]
        tcia = Source(kind="tcia", where="C", downloads=[Download(name="CT P-?"), Download(name="CT Q-?")])
        assert [(each.state, each.told) for each in check(tmp_path, tcia, mirrors)] == [
            ("there", "1 series"),
            ("gone", "0 series"),
        ]
        rows = Download.model_validate({"name": "{id}.png", "rows": {"table": "table.csv"}})
        plain = Source(kind="url", where=server.url, downloads=[Download(name="n{n}", numbers=(1, 9)), rows])
        assert [each.write for each in check(tmp_path, plain)] == ["bytes: 1", "bytes: 9", "bytes: 5"]
        manual = Source(kind="manual", where=f"{server.url}/page")
        assert [each.state for each in check(tmp_path, manual)] == ["there"]


# --- the command ----------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, WebServer, Host]]:
    """A campaign of one card whose two files a server has, and a table with one checkpoint."""
    host = Host(a=file_of(), b=file_of(), w=file_of(3))
    card = yaml.safe_load((ROOT / "config/tasks/detection/bccd-det-task.yaml").read_text())
    with WebServer(host) as server:
        also = {"kind": "url", "where": f"{server.url}/b", "downloads": []}
        card["dataset"]["sources"] = [{"kind": "url", "where": f"{server.url}/a", "also": [also]}]
        (tmp_path / "cards").mkdir()
        (tmp_path / "config").mkdir()
        (tmp_path / "cards/bccd-det-task.yaml").write_text(yaml.safe_dump(card))
        checkpoint = {
            "name": "n",
            "tasks": ["bccd-det-task"],
            "source": {"kind": "url", "where": f"{server.url}/w"},
            "licence": "x",
            "provenance": ["x"],
        }
        (tmp_path / "config/checkpoints.yaml").write_text(yaml.safe_dump({"checkpoints": {"m": checkpoint}}))
        (tmp_path / "script.yaml").write_text("- content: x\n")
        agents = {"agents": {"one": {"provider": "scripted", "script": "script.yaml", "trusted": True}}}
        (tmp_path / "agents.yaml").write_text(yaml.safe_dump(agents))
        data = {name: f"data/{name}" for name in ("raw", "public", "private", "manifests")}
        config = {
            "agents_file": "agents.yaml",
            "cards": ["cards"],
            "matrix": {"agents": ["one"], "tasks": ["bccd-det-task"]},
            "data": data,
            "results": "results",
            "sandbox": {"backend": "local"},
        }
        (tmp_path / "config/config.yaml").write_text(yaml.safe_dump(config))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield tmp_path, server, host


def test_command(place: tuple[Path, WebServer, Host], capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each, what to write below it; answers of the day are kept."""
    _, server, host = place
    main([])
    first = capsys.readouterr().out
    assert (
        f"there  bccd                {server.url}/a\n    cards/bccd-det-task.yaml: dataset.sources.0.where: bytes: 10"
        in first
    )
    assert "config/checkpoints.yaml: checkpoints.m.source.where: bytes: 3\n\n3 answers: 3 there.\n" in first
    asked = len(server.seen)
    main(["--task", "bccd-det-task"])
    assert (capsys.readouterr().out, len(server.seen)) == (first, asked)
    host.paths |= {"/w": (404, {}, b"")}
    with pytest.raises(SystemExit) as ended:
        main(["--again", "--json"])
    assert ended.value.code == 3
    found = [each for part in json.loads(capsys.readouterr().out)["checked"].values() for each in part["findings"]]
    assert sorted(each["state"] for each in found) == ["gone", "there", "there"]


def test_interrupted(place: tuple[Path, WebServer, Host], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was answered before a kill is not asked again; what gave no answer is."""
    _, server, _ = place
    real, n = check_sources.Checker.check, []

    def check_some(checker: Checker, source: Source, key: str) -> list[SourceFinding]:
        n.append(key)
        if len(n) == 2:
            raise KeyboardInterrupt
        return real(checker, source, key)

    monkeypatch.setattr(check_sources.Checker, "check", check_some)
    with pytest.raises(KeyboardInterrupt):
        main(["--workers", "1"])
    monkeypatch.setattr(check_sources.Checker, "check", real)
    before = [seen.target for seen in server.seen]
    main([])
    assert sorted({seen.target for seen in server.seen[len(before) :]} & set(before)) == []


def test_wrong_calls(place: tuple[Path, WebServer, Host]) -> None:
    for arguments, told in (
        (["--task", "bccd-det-tsk"], "no task 'bccd-det-tsk' (did you mean 'bccd-det-task'?)"),
        (["--config", "fetch={offline: true}"], "fetch.offline: is true"),
    ):
        with pytest.raises(ConfigError, match=re.escape(told)):
            main(arguments)


def test_through_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's proxy is asked for hosts that are not on this machine."""
    with WebServer(lambda seen: file_of(8)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        (found,) = check(tmp_path, Source(kind="url", where="http://files.example/x.bin"))
    assert (found.state, found.write, proxy.seen[0].target) == ("there", "bytes: 8", "http://files.example/x.bin")
