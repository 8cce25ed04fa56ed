"""Cache behind hub mirror and package index: fetched once for all, verified, and judged as if it were fetched."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from upstreams import COMMIT, FakeHub, FakeIndex, FileHost, Seen, WebServer, hub_with_store, wheel

from automedbench.base.cards import Source
from automedbench.base.errors import MissingDataError
from automedbench.base.files import read_record
from automedbench.campaign.record import CampaignRecord
from automedbench.sandbox.egress.cache import Cache, Stored
from automedbench.sandbox.egress.dial import Upstreams
from automedbench.sandbox.egress.rules import EgressSettings, parse_index_url
from automedbench.sandbox.egress.server import serve_on_loopback
from automedbench.steps import fill_cache as step

MIB = 1024 * 1024
WEIGHTS = os.urandom(MIB - 1) * 24 + bytes(24)
FILES = {"config.json": b'{"a": 1}', "model.safetensors": WEIGHTS}
LARGE = f"/acme/tiny-model/resolve/{COMMIT}/model.safetensors"
DIGEST = hashlib.sha256(WEIGHTS).hexdigest()
HUGE = 10**12


@dataclass
class World:
    """A hub, its store and an index on loopback, and a cache."""

    folder: Path
    hub: WebServer
    store: WebServer
    index: WebServer

    @property
    def settings(self) -> EgressSettings:
        """Of a run without a proxy, so that nothing but mirror and index is there."""
        index = parse_index_url(f"{self.index.url}/simple")
        return EgressSettings(allow=index.hosts, hub=self.hub.url, index=index, cached=True, sealed=True)

    @property
    def upstreams(self) -> Upstreams:
        return Upstreams({}, {"store.example:80": self.store.place})

    def blobs(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "cache/blobs").iterdir())

    def parts(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "cache/parts").iterdir())

    def clients(self, count: int, path: str = LARGE) -> subprocess.Popen[str]:
        """So many processes that each ask for a file at once; they print the SHA-256 of what they got."""
        (self.folder / "logs").mkdir(exist_ok=True)
        told = {
            "cache": str(self.folder / "cache"),
            "settings": asdict(self.settings),
            "upstreams": {"places": dict(self.upstreams.places)},
            "path": path,
            "clients": count,
            "logs": str(self.folder / "logs"),
        }
        program = [sys.executable, str(Path(__file__).with_name("cache_clients.py")), json.dumps(told)]
        return subprocess.Popen(program, stdout=subprocess.PIPE, text=True, start_new_session=True)


@contextlib.contextmanager
def world(
    folder: Path, hub: FakeHub | None = None, pace: Callable[[bytes], Iterable[bytes]] | None = None
) -> Iterator[World]:
    hub = hub or FakeHub(dict(FILES), large={"model.safetensors"})

    def slowly(seen: Seen) -> tuple[int, dict[str, str], bytes | Iterable[bytes]]:
        status, headers, body = hub.serve_store(seen)
        return status, headers, pace(body) if pace else body

    packages = FakeIndex({"alpha": ["beta"], "beta": []})
    with hub_with_store(hub) as (front, _), WebServer(slowly) as store, WebServer(packages.answer) as index:
        yield World(folder, front, store, index)


@contextlib.contextmanager
def served(
    settings: EgressSettings,
    log: Path,
    cache: Cache | None,
    upstreams: Upstreams | None = None,
    tokens: dict[str, str] | None = None,
) -> Iterator[dict[Any, int]]:
    """Mirror and index on ports of loopback, in a thread."""
    ready: list[dict[Any, int]] = []
    started, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with serve_on_loopback(settings, log, cache, upstreams, tokens) as ports:
            ready.append(ports)
            started.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert started.wait(30)
        yield ready[0]
    finally:
        over.set()
        thread.join()


def get(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body; what came of a body that was cut."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    told = {name.lower(): value for name, value in answer.getheaders()}
    try:
        body = answer.read()
    except http.client.IncompleteRead as error:
        body = error.partial
    connection.close()
    return answer.status, told, body


def ledger(log: Path) -> list[dict[str, Any]]:
    """Lines without what no two requests have in common."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in ("time", "seconds")} for line in lines]


def in_pieces(body: bytes) -> Iterator[bytes]:
    for begin in range(0, len(body), MIB):
        yield body[begin : begin + MIB]
        time.sleep(0.03)


def test_eight_processes_fetch_a_model_once(tmp_path: Path) -> None:
    with world(tmp_path, pace=in_pieces) as net:
        out, _ = net.clients(8).communicate(timeout=60)
        assert out.split() == [DIGEST] * 8
        (asked,) = [seen for seen in net.store.seen if seen.method == "GET"]
        assert "range" not in asked.headers
        assert (net.blobs(), net.parts()) == ([DIGEST], [])
        first, *others = [ledger(path) for path in sorted((tmp_path / "logs").iterdir())]
        assert others == [first] * 7


def test_a_killed_downloader_leaves_a_part_that_the_next_goes_on_with(tmp_path: Path) -> None:
    with world(tmp_path, pace=in_pieces) as net:
        first = net.clients(1)
        part = tmp_path / "cache/parts" / DIGEST
        while not (part.is_file() and part.stat().st_size > 4 * MIB):
            assert first.poll() is None
            time.sleep(0.01)
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
        assert net.blobs() == []
        begun = part.stat().st_size
        out, _ = net.clients(2).communicate(timeout=60)
        assert out.split() == [DIGEST] * 2
        ranges = [seen.headers.get("range") for seen in net.store.seen]
        assert ranges == [None, f"bytes={begun}-"]
        assert (net.blobs(), net.parts()) == ([DIGEST], [])


class Liar(FakeHub):
    """A hub whose store gives other content than it announces."""

    def serve_store(self, seen: Seen) -> tuple[int, dict[str, str], bytes]:
        return 200, {}, WEIGHTS[:-1] + b"!"


def test_other_content_than_published_is_cut_noted_and_not_kept(tmp_path: Path) -> None:
    wrong = hashlib.sha256(WEIGHTS[:-1] + b"!").hexdigest()
    with world(tmp_path, Liar(dict(FILES), large={"model.safetensors"})) as net:
        cache = Cache(tmp_path / "cache", HUGE)
        for hashes, reason in (((), "other_content"), ((wrong,), "labels")):
            log = tmp_path / f"{reason}.jsonl"
            with served(replace(net.settings, hashes=hashes), log, cache, net.upstreams) as ports:
                status, _, body = get(ports["hub"], LARGE)
            assert status == 200
            assert len(body) < len(WEIGHTS)
            (line,) = ledger(log)
            assert (line["verdict"], line["reason"], line["sha256"]) == ("refused", reason, wrong)
            assert (net.blobs(), net.parts()) == ([], [])
    small = FakeHub({"config.json": b"{}"})
    small._content = lambda name, seen: (200, {"ETag": f'"{"0" * 40}"'}, b"{}")  # type: ignore[method-assign]
    with world(tmp_path, small) as net:
        with served(net.settings, tmp_path / "small.jsonl", Cache(tmp_path / "cache", HUGE)) as ports:
            assert get(ports["hub"], f"/acme/tiny-model/resolve/{COMMIT}/config.json")[0] == 403
        assert (net.blobs(), ledger(tmp_path / "small.jsonl")[0]["reason"]) == ([], "other_content")


def test_a_part_that_another_run_fills_wrongly_is_not_continued_with_the_right_one(tmp_path: Path) -> None:
    """Such as by a hub that answers another run with other content."""
    with world(tmp_path) as net:
        cache = Cache(tmp_path / "cache", HUGE)
        theirs = cache.claim(DIGEST)
        assert theirs is not None
        os.write(theirs, bytes(8 * MIB))
        with served(net.settings, tmp_path / "log", cache, net.upstreams) as ports:
            connection = http.client.HTTPConnection("127.0.0.1", ports["hub"], timeout=30)
            connection.request("GET", LARGE)
            answer = connection.getresponse()
            assert answer.read(MIB) == bytes(MIB)
            cache.part(DIGEST).unlink()
            os.close(theirs)
            with pytest.raises(http.client.IncompleteRead):
                answer.read()
            connection.close()
            assert get(ports["hub"], LARGE)[2] == WEIGHTS


def test_what_lies_in_the_cache_is_ledgered_ruled_and_served_as_if_fetched(tmp_path: Path) -> None:
    paths = [LARGE, "/acme/old-name/resolve/main/model.safetensors", "/acme/tiny-model/resolve/main/config.json"]
    with world(tmp_path) as net:
        logs, answers = [], []
        for name, cache in (
            ("none", None),
            ("fetched", Cache(tmp_path / "cache", HUGE)),
            ("there", Cache(tmp_path / "cache", HUGE)),
        ):
            before = len(net.store.seen)
            with served(net.settings, tmp_path / name, cache, net.upstreams) as ports:
                found = [get(ports["hub"], path) for path in paths]
                part = get(ports["hub"], LARGE, Range="bytes=5-104")
                head = get(ports["hub"], LARGE, "HEAD")
            answers.append([(status, told.get("x-repo-commit"), body) for status, told, body in found])
            assert (part[0], part[1]["content-range"], part[2]) == (206, f"bytes 5-104/{len(WEIGHTS)}", WEIGHTS[5:105])
            assert (head[0], head[1]["x-linked-etag"], head[1]["content-length"]) == (
                200,
                f'"{DIGEST}"',
                str(len(WEIGHTS)),
            )
            logs.append(ledger(tmp_path / name))
            asked = len(net.store.seen) - before
            assert (name, asked) in {("none", 3), ("fetched", 1), ("there", 0)}
        assert logs[0] == logs[1] == logs[2]
        assert answers[0] == answers[1] == answers[2]
        with served(net.settings, tmp_path / "end", cache) as ports:
            assert get(ports["hub"], LARGE, Range="bytes=-7")[::2] == (206, WEIGHTS[-7:])
        with served(replace(net.settings, hashes=(DIGEST,)), tmp_path / "held", cache) as ports:
            status, _, body = get(ports["hub"], LARGE)
        assert (status, WEIGHTS[:20] in body, ledger(tmp_path / "held")[0]["reason"]) == (403, False, "labels")


def test_files_of_the_index_have_the_hash_in_their_address_or_are_refused(tmp_path: Path) -> None:
    good = hashlib.sha256(wheel("beta")).hexdigest()
    path = "127.0.0.1:PORT/files/beta-1.0-py3-none-any.whl"
    cases = {
        f"/files/{good}/http/{path}": (200, "listed"),
        f"/files/{'0' * 64}/http/{path}": (403, "other_content"),
        f"/files/-/http/{path}": (200, "listed"),
        f"/files/{good}/http/other.example/x.whl": (403, "not_listed"),
        f"/files/-/http/{path.replace('files', '..')}": (403, "malformed"),
        "/simple/../x": (403, "index_path"),
        "/simple/Be_ta/": (404, "listed"),
        "/simple/beta/": (200, "listed"),
    }
    with world(tmp_path) as net:
        log = tmp_path / "log"
        with served(net.settings, log, Cache(tmp_path / "cache", HUGE), net.upstreams) as ports:
            answers = [get(ports["index"], target.replace("PORT", str(net.index.port))) for target in cases]
        found = zip([status for status, _, _ in answers], [line["reason"] for line in ledger(log)], strict=False)
        assert dict(zip(cases, found, strict=True)) == cases
        place = f"/files/{good}/http/127.0.0.1:{net.index.port}/files/beta-1.0-py3-none-any.whl"
        assert f'href="{place}#sha256={good}"'.encode() in answers[-1][2]


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 300)
    for number, name in enumerate(("old", "used", "new")):
        cache.part(name).write_bytes(b"x" * 100)
        cache.keep(name)
        os.utime(cache.blob(name), (number, number))
    cache.note("address", Stored("used", 100, {}, True, 0.0))
    assert cache.find("address") is not None  # which makes it the newest
    coming = cache.claim("coming")
    assert coming is not None
    os.write(coming, b"x" * 100)
    os.utime(cache.part("coming"), (0, 0))
    cache.part("left").write_bytes(b"x" * 100)
    os.utime(cache.part("left"), (0, 0))
    cache.part("last").write_bytes(b"x" * 100)
    cache.keep("last")
    there = {path.name for kind in ("blobs", "parts") for path in (tmp_path / kind).iterdir()}
    assert there == {"used", "last", "coming"}
    assert not cache.has_room(301)
    os.close(coming)


def campaign(folder: Path, **egress: Any) -> CampaignRecord:
    """Settings of a campaign with a cache."""
    settings = {
        "matrix": {"agents": ["a"], "tasks": ["t"]},
        "data": {name: str(folder / name) for name in ("raw", "public", "private", "manifests")},
        "results": str(folder / "results"),
        "sandbox": {"network": "sealed", "egress": {"cache": str(folder / "cache"), **egress}},
    }
    return CampaignRecord.model_validate(
        {"schema": "automedbench/campaign/1", "settings": settings, "cards": {}, "datasets": {}}
    )


def test_a_filled_cache_serves_the_hubs_library_and_pip_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub")
    with world(tmp_path) as net:
        monkeypatch.setattr(step, "read_index", lambda **_: net.settings.index)
        wanted = {"hub": net.hub.url, "models": ["acme/tiny-model", "acme/none"], "packages": ["alpha"]}
        with pytest.raises(MissingDataError, match=r"has 2 of 3\. Runs would ask for it .*\n- acme/none: [^\n]*\Z"):
            step.fill_cache(campaign(tmp_path, **wanted), upstreams=net.upstreams)
        wanted["models"] = ["acme/tiny-model"]
        record = step.fill_cache(campaign(tmp_path, **wanted), upstreams=net.upstreams)
        assert (record.there, record.problems) == (["acme/tiny-model", "alpha"], [])
        assert record == read_record(tmp_path / "results/cache.json", step.CacheRecord)
        settings = replace(net.settings, offline=True)
    code = """
        import hashlib, json
        from huggingface_hub import HfApi, hf_hub_download, snapshot_download
        path = hf_hub_download("acme/tiny-model", "model.safetensors")
        said = [hashlib.sha256(open(path, "rb").read()).hexdigest(), sorted(HfApi().list_repo_files("acme/tiny-model"))]
        said.append(sorted(__import__("os").listdir(snapshot_download("acme/tiny-model"))))
        try:
            hf_hub_download("acme/tiny-model", "absent.json")
        except Exception as error:
            said.append(type(error).__name__)
        print(json.dumps(said))
    """
    cache = Cache(tmp_path / "cache", HUGE, alone=True)
    with served(settings, tmp_path / "log", cache) as ports:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "HF_ENDPOINT": f"http://127.0.0.1:{ports['hub']}",
            "HF_HUB_DISABLE_XET": "1",
            "PIP_INDEX_URL": f"http://127.0.0.1:{ports['index']}/simple",
            "PIP_CONFIG_FILE": os.devnull,
        }
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        names = ["config.json", "model.safetensors"]
        assert json.loads(done.stdout) == [DIGEST, names, names, "EntryNotFoundError"]
        pip = [sys.executable, "-m", "pip", "install", "--no-cache-dir", "-q", "--target", str(tmp_path / "site")]
        done = subprocess.run([*pip, "alpha"], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert {"alpha.py", "beta.py"} <= {path.name for path in (tmp_path / "site").iterdir()}
        assert get(ports["index"], "/simple/gamma/")[0] == 404
    assert {line["reason"] for line in ledger(tmp_path / "log")} == {"model", "listed", "not_cached"}


def test_checkpoints_at_plain_addresses_lie_under_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = FileHost({"/release/a.zip": b"weights", "/release/b.zip": b"other"})
    told = [{"name": "a.zip", "checksum": f"sha256:{hashlib.sha256(b'weights').hexdigest()}"}]
    with WebServer(host.answer) as web:
        monkeypatch.setattr(step, "read_index", lambda **_: parse_index_url(web.url))
        sources = [
            Source.model_validate({"kind": "url", "where": f"{web.url}/release", "revision": name, "downloads": files})
            for name, files in (("right", told), ("unknown", []), ("wrong", [told[0] | {"name": "b.zip"}]))
        ]
        monkeypatch.setattr(step, "_sources", lambda tasks: iter(sources))
        with pytest.raises(MissingDataError, match=r"has 1 of 3\. .*\n.* not known .*\n.*expected sha256:"):
            step.fill_cache(campaign(tmp_path), ["t"])
        del sources[2]
        record = step.fill_cache(campaign(tmp_path), ["t"])
        with pytest.raises(MissingDataError, match=r"Runs depend on it alone.*\n.* not known"):
            step.fill_cache(campaign(tmp_path, offline=True), ["t"])
    assert [name.rpartition(" ")[2] for name in record.there] == ["right"]
    assert "not known" in record.problems[0]
    cache = Cache(tmp_path / "cache", HUGE)
    stored = cache.find(f"{web.url}/release/a.zip")
    assert stored is not None
    assert (stored.fixed, cache.blob(stored.sha256).read_bytes()) == (True, b"weights")
    assert cache.find(f"{web.url}/release/b.zip") is None


def test_without_its_hub_the_mirror_answers_with_what_it_has(tmp_path: Path) -> None:
    """A branch and a listing of yesterday, as the node has no way out today."""
    path = "/acme/tiny-model/resolve/main/config.json"
    cache = Cache(tmp_path / "cache", HUGE)
    with world(tmp_path) as net, served(net.settings, tmp_path / "log", cache) as ports:
        assert get(ports["hub"], path)[2] == FILES["config.json"]
        settings = net.settings
        stored = cache.find(f"{settings.hub}{path}")
    assert stored is not None
    cache.note(f"{settings.hub}{path}", replace(stored, at=0.0))
    with served(settings, tmp_path / "log", cache) as ports:
        assert get(ports["hub"], path)[2] == FILES["config.json"]
        assert get(ports["hub"], path.replace("config", "other"))[0] == 502
