"""Attacks on opened TLS, mirror, index and cache by a run that knows how they work; each was tried on the real process.

What an attack would gain is said beside it. The worlds behind are those of test_opened_tls and test_cache.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import os
import resource
import socket
import ssl
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509
from test_cache import COMMIT, DIGEST, FILES, HUGE, LARGE, MIB, WEIGHTS, get, ledger, served, world
from test_egress_rules import judged
from test_egress_server import Net, process_of, status, tunnel
from test_opened_tls import TOKEN, card, opened
from upstreams import FakeHub, Seen, WebServer
from waiting import wait_for

from automedbench.campaign.config import EgressConfig
from automedbench.sandbox.egress import authority, cache_delivery, server
from automedbench.sandbox.egress import cache as cache_module
from automedbench.sandbox.egress.authority import Authority
from automedbench.sandbox.egress.cache import Cache, Stored
from automedbench.sandbox.egress.exchange import MAX_CALL, EgressEntry, RequestLog
from automedbench.sandbox.egress.mirror import _find_token
from automedbench.sandbox.egress.rules import EgressSettings, Ruling, build_settings, check_opened, parse_index_url

__all__ = ["opened"]

OWN = card(("git", "https://github.com/neheller/kits19"), ("url", "https://zenodo.org/records/1214456/files"))
ALLOW = ["github.com", "codeload.github.com", "api.github.com", "*.githubusercontent.com", "zenodo.org"]
SETTINGS = build_settings(OWN, [], EgressConfig(allow=ALLOW))

# Address → why it is refused ("listed": it is let through, and must be).
ADDRESSES = {
    # Forks and former owners: their archives and packs have no hash that is known.
    "codeload.github.com/fork/kits19/zip/main": "own_name",
    "github.com/fork/KITS19.git/info/refs?service=git-upload-pack": "own_name",
    "api.github.com/repos/fork/kits19/zipball": "own_name",
    "raw.githubusercontent.com/fork/%6bits19/main/data/case_00000/segmentation.nii.gz": "own_name",
    "media.githubusercontent.com/media/fork/kits19/main/a": "own_name",
    "github.com/x/../fork/kits19/archive/main.zip": "own_name",
    "github.com/fork/kits19-solution": "listed",
    "github.com/MIC-DKFZ/nnUNet/blob/master/kits19/readme.md": "listed",
    # The home in other words.
    "github.com/fork/x/compare/main...neheller:kits19:master": "own_home",
    "github.com/neheller/%E2%84%AAit%C5%BF19": "own_home",  # Kelvin sign and long s
    "github.com/neheller%5Ckits19": "own_home",
    "github.com/neheller/kits19%2500": "own_home",
    "github.com/a/b/%2e%2e/%2e%2e/neheller/kits19": "own_home",
    "github.com/neheller;a=b/kits19": "own_name",
    "api.github.com/search/code?q=repo%3Aneheller%2Fkits19": "own_home",
    "zenodo.org/records/0001214456/files/a.zip": "own_home",
    "zenodo.org/records/%EF%BC%91214456/files/a.zip": "own_home",  # a wide 1
    "zenodo.org/records/99/files/..%2f..%2f1214456%2ffiles%2fa": "own_home",
    "zenodo.org/api/iiif/record:1214456:a.png/full": "own_home",
    "zenodo.org/records/11214456": "listed",
    # Addresses that do not say of what they are.
    "camo.githubusercontent.com/0a1b/68747470733a2f2f646174612e6578616d706c65": "opaque",
    "api.github.com/repositories/123/zipball": "opaque",
    "api.github.com/networks/neheller-x/kits/events": "opaque",
    "zenodo.org/api/files/0a1b2c3d/a.zip": "opaque",
    "zenodo.org/oai2d?verb=ListRecords": "opaque",
}


def test_no_other_spelling_and_no_fork_of_a_home_is_read() -> None:
    found = {}
    for url in ADDRESSES:
        host, _, path = url.partition("/")
        found[url], _ = judged(check_opened, SETTINGS, host, "GET", f"/{path}", [])
    assert found == ADDRESSES


def test_an_address_costs_little_however_it_is_made() -> None:
    """A hundred requests at a time that cost half a second each kept the proxy from its driver: a run void at will."""
    begun = time.process_time()
    for path in ("a/" * 8000 + "../" * 5000, "%2525" * 6400, "neheller/kits1" * 2200, "1" * 32_000):
        for host in ("github.com", "zenodo.org"):
            judged(check_opened, SETTINGS, host, "GET", f"/{path}"[:32_000], [])
    assert time.process_time() - begun < 0.25


# Bytes in a connection to github.com whose TLS is opened, and the status; a server must see none of those at 4xx.
GET = "GET {} HTTP/1.1\r\nHost: github.com\r\n{}\r\n"
POST = "POST /acme/tool.git/git-upload-pack HTTP/1.1\r\nHost: github.com\r\n{}\r\n{}"
REQUESTS = {
    "absolute form": (GET.format("https://github.com/acme/Labels", ""), 403),
    "another scheme": (GET.format("http://data.example/", ""), 403),
    "user information": (GET.format("https://a@github.com/acme/Labels", ""), 403),
    "two slashes": (GET.format("//github.com/acme/Labels", ""), 403),
    "fragment": (GET.format("/a#/../acme/Labels", ""), 403),
    "backslash": (GET.format("/a\\..\\acme\\Labels", ""), 403),
    "connect inside": ("CONNECT data.example:443 HTTP/1.1\r\nHost: github.com\r\n\r\n", 403),
    "asterisk": ("OPTIONS * HTTP/1.1\r\nHost: github.com\r\n\r\n", 403),
    "put": (GET.format("/a", "").replace("GET", "PUT"), 403),
    "small letters": (GET.format("/a", "").replace("GET", "get"), 403),
    "another host": (GET.format("/a", "").replace("github.com", "zenodo.org"), 403),
    "another port": (GET.format("/a", "").replace("github.com", "github.com:22"), 403),
    "two hosts": (GET.format("/a", "Host: zenodo.org\r\n"), 400),
    "folded host": ("GET /a HTTP/1.1\r\nHost:\r\n zenodo.org\r\n\r\n", 403),
    "no host": ("GET /a HTTP/1.1\r\n\r\n", 400),
    "http 2": ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 403),
    "clear http 2": (GET.format("/a", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"), 403),
    "long address": (GET.format("/" + "a" * 9000, ""), 414),
    "length and chunks": (POST.format("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 403),
    "issue": (POST.format("Content-Length: 1\r\n", "x").replace("tool.git/git-upload-pack", "tool/issues"), 403),
    "push": (POST.format("Content-Length: 1\r\n", "x").replace("upload", "receive"), 403),
    "push, said so": (GET.format("/acme/tool.git/info/refs?service=git%2Dreceive%2Dpack", ""), 403),
    "too large": (POST.format(f"Content-Length: {2 * MIB}\r\n", "x" * 2 * MIB), 403),
    "fork": (GET.format("/other/labels/archive/main.zip", ""), 403),
    "none of these": (GET.format("/a", ""), 200),
}


Opened = tuple[Net, WebServer, WebServer, WebServer]


def inside(net: Net, text: str, count: int = 1, host: str = "github.com") -> list[int]:
    """Status of so many answers in an opened tunnel, 0 for one that does not come."""
    trust = ssl.create_default_context(cafile=str(net.folder / "sockets/ca.pem"))
    client, _ = tunnel(net, f"{host}:443")
    with trust.wrap_socket(client, server_hostname=host) as stream, contextlib.suppress(OSError):
        stream.settimeout(20)
        with contextlib.suppress(OSError):
            stream.sendall(text.encode())
        answer = b""
        while answer.count(b"HTTP/1.1 ") < count and (block := stream.recv(65_536)):
            answer += block
            stream.settimeout(0.5)  # what was not answered at once is not going to be
    found = [int(piece[:3]) for piece in answer.split(b"HTTP/1.1 ")[1:]]
    return [*found, 0, 0][:count]


def test_requests_in_opened_tls_lead_nowhere_else(opened: Opened) -> None:
    net, web, *_ = opened
    found, reached = {}, []
    for name, (text, _) in REQUESTS.items():
        web.seen.clear()
        (found[name],) = inside(net, text)
        reached += [(name, seen.target) for seen in web.seen] if found[name] != 200 else []
    assert found == {name: expected for name, (_, expected) in REQUESTS.items()}
    assert reached == []


def test_what_follows_is_judged_and_what_other_servers_heed_is_not_passed_on(opened: Opened) -> None:
    """Pipelined requests, a request in a body, and headers that name another address or method."""
    net, web, *_ = opened
    web.seen.clear()
    assert inside(net, GET.format("/a", "") + GET.format("/acme/Labels", ""), 2) == [200, 403]
    hidden = GET.format("/acme/Labels", "")
    assert inside(net, GET.format("/b", f"Content-Length: {len(hidden)}\r\n") + hidden, 2) == [200, 0]
    chunks = f"{len(hidden):x};a=b\r\n{hidden}\r\n0\r\nX: y\r\n\r\n"
    assert inside(net, GET.format("/c", "Transfer-Encoding: chunked\r\n") + chunks, 2) == [200, 0]
    names = "X-HTTP-Method-Override X-Method X-Original-URL X-Rewrite-URI X-Forwarded-Host X-Forwarded-Prefix Forwarded"
    heads = "".join(f"{name}: /acme/Labels\r\n" for name in names.split())
    assert inside(net, GET.format("/d", f"{heads}Connection: keep-alive, X-Own\r\nX-Own: 1\r\nX-Kept: 1\r\n")) == [200]
    assert [seen.target for seen in web.seen] == ["/a", "/b", "/c", "/d"]
    sent = {"host", "x-kept", "accept-encoding", "connection", "content-length"}
    assert {name for seen in web.seen for name in seen.headers} == sent


def test_hosts_that_are_none_of_the_opened_ones(opened: Opened) -> None:
    net, web, *_ = opened
    web.seen.clear()
    targets = "1.2.3.4:443 [::1]:443 0x7f.1:443 2130706433:443 a@github.com:443 github.com:22 github.com:0 github.com"
    targets += " github.com%00:443 github.com.evil.example:443 evilgithub.com:443 www.huggingface.co:443 hf.co:443"
    targets += " cdn-lfs.huggingface.co:443 cas-bridge.xethub.hf.co:443 uploads.github.com:443 GITHUB.COM.:443"
    found = {}
    for target in targets.split():
        client, answer = tunnel(net, target)
        client.close()
        found[target] = status(answer)
    assert [target for target, code in found.items() if code == 200] == ["GITHUB.COM.:443"]


HUB_PATHS = """
/datasets/acme/x/resolve/main/a /DataSets/acme/x/resolve/main/a /api/datasets/acme/x /spaces/acme/x/raw/main/a
/acme/%2e%2e/datasets/acme/x /acme//tiny-model/resolve/main/model.bin /api/resolve-cache/datasets/acme/x/1/a
/api/models/acme/tiny-model/xet-read-token/main /api/whoami-v2 /api/models/acme/tiny-model/settings
/acme/tiny-model.git/info/refs /acme/tiny-model/resolve/main/..%2f..%2fx /api/models/%2e%2e/datasets/acme/x
/api/models/datasets/acme/x /resolve/main/a/b /acme/tiny-model/discussions
"""


def test_the_hubs_own_address_gives_models_and_takes_nothing(opened: Opened) -> None:
    net, _, front, _ = opened
    front.seen.clear()
    head = "{} {} HTTP/1.1\r\nHost: huggingface.co\r\nContent-Length: {}\r\n\r\n{}"
    found = {path: inside(net, head.format("GET", path, 0, ""), host="huggingface.co")[0] for path in HUB_PATHS.split()}
    assert {path for path, code in found.items() if code != 403} == set()
    for path in ("/api/models/acme/tiny-model/commits/paths-info", "/api/models/acme/tiny-model/tree/main/paths-info"):
        assert inside(net, head.format("POST", path, 2, "{}"), host="huggingface.co") == [403], path
    assert inside(net, head.format("GET", "/api/models/acme/tiny-model", 1, "x"), host="huggingface.co") == [403]
    assert front.seen == []


def test_a_token_is_for_the_repository_in_its_place_only() -> None:
    tokens = {"google/gated": "one", "acme/*": "all"}
    paths = {
        "/google/gated/resolve/main/a": "one",
        "/api/models/Google/Gated/tree/main": "one",
        "/api/resolve-cache/models/google/gated/1/a": "one",
        "/api/models/acme/x": "all",
        "/evil/repo/resolve/main/models/google/gated/a": "",
        "/evil/models/resolve/main/google/gated": "",
        "/evil/repo/resolve/main/api/models/google/gated": "",
        "/api/models": "",
        "/gpt2/resolve/main/a": "",
    }
    assert {path: _find_token(tokens, path) for path in paths} == paths


def test_a_request_to_the_index_is_judged_with_its_query(tmp_path: Path) -> None:
    with world(tmp_path) as net:
        settings = replace(SETTINGS, hub=None, cached=True, index=net.settings.index, sealed=True)
        targets = "zenodo.org/api/records?q=recid:1214456 github.com/search?q=neheller/kits19 github.com/fork/kits19/a"
        with served(settings, tmp_path / "log", Cache(tmp_path / "cache", HUGE)) as ports:
            found = [get(ports["index"], f"/files/-/https/{target}")[0] for target in targets.split()]
        assert found == [403] * 3
        assert [line["reason"] for line in ledger(tmp_path / "log")] == ["own_home", "own_home", "own_name"]


def test_the_index_neither_reads_nor_fills_what_came_from_the_hub(tmp_path: Path) -> None:
    """Its clients name the hash: any file as long as a gated model gave that, and a wrong one spoilt it for others."""
    twin = bytes(len(WEIGHTS))
    with world(tmp_path) as net, WebServer(lambda seen: (200, {}, twin)) as files:
        index = parse_index_url(f"{files.url}/simple")
        settings = replace(net.settings, index=index, allow=index.hosts)
        cache = Cache(tmp_path / "cache", HUGE)
        with served(settings, tmp_path / "log", cache, net.upstreams) as ports:
            assert get(ports["hub"], LARGE)[2] == WEIGHTS
            body = get(ports["index"], f"/files/{DIGEST}/http/{files.place}/x.whl")[2]
        assert WEIGHTS[:MIB] != body[:MIB]
        assert ledger(tmp_path / "log")[-1]["reason"] == "other_content"
        assert (net.blobs(), net.parts()) == ([DIGEST], [])
        wanted = f"/files/{DIGEST}/http/{files.place}/y.whl"
        with served(settings, tmp_path / "log", Cache(tmp_path / "other", HUGE), net.upstreams) as ports:
            with contextlib.suppress(OSError):
                get(ports["index"], wanted)
            assert not (tmp_path / "other/parts" / DIGEST).exists()


def test_listings_that_nothing_reads_are_not_held_in_memory(tmp_path: Path) -> None:
    """Sixty of 40 MiB made the proxy 2.4 GiB large: killed for it, the run is void, at will."""
    listing = b"[" + bytes(8 * MIB) + b"]"
    with WebServer(lambda seen: (200, {"Content-Type": "application/json"}, listing)) as hub:
        settings = EgressSettings(allow=(), hub=hub.url, cached=True, sealed=True)
        with (
            served(settings, tmp_path / "log", Cache(tmp_path / "cache", HUGE)) as ports,
            contextlib.ExitStack() as open_,
        ):
            tracemalloc.start()
            for number in range(16):
                client = open_.enter_context(socket.create_connection(("127.0.0.1", ports["hub"])))
                client.sendall(f"GET /api/models?search={number} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            notes = tmp_path / "cache/notes"
            wait_for(lambda: len(list(notes.glob("*/*"))) == 16)
            size, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    assert size < 3 * len(listing)
    assert peak < 4 * cache_module.MAX_WHOLE * len(listing)


def test_connections_beyond_the_limit_take_no_memory(opened: Opened) -> None:
    """Nine thousand with 200 kB each: 1.3 GiB, and the more the more."""
    pid, path = process_of(opened[0].egress), str(opened[0].folder / "sockets/proxy.sock")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        before = resident(pid)
        for _ in range(2500):
            client = held.enter_context(socket.socket(socket.AF_UNIX))
            with contextlib.suppress(OSError):
                client.connect(path)
                client.setblocking(False)
                client.send(b"GET http://github.com/ HTTP/1.1\r\nA: " + b"a" * 200_000)
        opened[0].egress.set_call(1, 2)
        assert resident(pid) - before < 250 * MIB


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


class Gated(FakeHub):
    """A hub that gives its model for a token only."""

    def answer(self, seen: Seen) -> tuple[int, dict[str, str], bytes]:
        if self.model in seen.target and seen.headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, {"X-Error-Code": "GatedRepo"}, b"{}"
        return super().answer(seen)


def test_what_came_for_a_token_is_kept_for_those_who_have_it(tmp_path: Path) -> None:
    """Two campaigns share a cache, one without the right: nothing for it, also under the model's former name."""
    old = LARGE.replace("tiny-model", "old-name")
    paths = [LARGE, old, "/api/models/acme/tiny-model", f"/acme/tiny-model/resolve/{COMMIT}/config.json"]
    with world(tmp_path, Gated(dict(FILES), large={"model.safetensors"})) as net:
        cache = Cache(tmp_path / "cache", HUGE)
        found, own = {}, {"acme/tiny-model": TOKEN}
        for name, tokens in {"first": own, "none": {}, "again": own}.items():
            with served(net.settings, tmp_path / name, cache, net.upstreams, tokens) as ports:
                found[name] = [get(ports["hub"], path)[0] for path in paths]
        assert found == {"first": [200] * 4, "none": [401] * 4, "again": [200] * 4}
        assert len(net.store.seen) == 1
        alone = Cache(tmp_path / "cache", HUGE, alone=True)
        with served(net.settings, tmp_path / "alone", alone, net.upstreams) as ports:
            assert [get(ports["hub"], path)[0] for path in paths] == [404] * 4


class Moody(FakeHub):
    """A hub that sometimes answers with what is not the file or listing: pages, halves, what the client's words ask."""

    def answer(self, seen: Seen) -> tuple[int, dict[str, str], bytes]:
        if "page.txt" in seen.target:
            return 200, {"Content-Type": "text/html"}, b"<h1>We are down for maintenance</h1>"
        if "revision/cut" in seen.target:
            return 200, {"Content-Type": "application/json", "Content-Length": "", "Connection": "close"}, b'{"a"'
        if "html" in seen.headers.get("accept", "") or "odd" in seen.headers.get("user-agent", ""):
            return 200, {"Content-Type": "application/json"}, b"for one client"
        return super().answer(seen)


def test_what_is_kept_depends_on_the_address_alone_and_is_what_was_published(tmp_path: Path) -> None:
    with world(tmp_path, Moody(dict(FILES), large={"model.safetensors"})) as net:
        cache = Cache(tmp_path / "cache", HUGE)
        with served(net.settings, tmp_path / "log", cache, net.upstreams) as ports:
            page = f"/acme/tiny-model/resolve/{COMMIT}/page.txt"
            assert b"maintenance" in get(ports["hub"], page)[2]
            listing = "/api/models/acme/tiny-model/revision/"
            get(ports["hub"], f"{listing}cut")
            assert net.blobs() == []
            assert b"siblings" in get(ports["hub"], f"{listing}main", Accept="text/html", User_Agent="odd")[2]
            assert b"siblings" in get(ports["hub"], f"{listing}main")[2]
            get(ports["hub"], f"{listing}main?x=/resolve/{COMMIT}/")
            stored = cache.find(f"{net.hub.url}{listing}main?x=/resolve/{COMMIT}/")
            assert stored is not None
            assert not stored.fixed
            code, _, body = get(ports["hub"], LARGE, Range=f"bytes=0-{'9' * 5000}")
            assert (code, len(body)) == (200, len(WEIGHTS))
            assert get(ports["hub"], LARGE, Range="bytes=-0")[0] == 200


def test_a_file_that_a_crash_cut_is_fetched_again(tmp_path: Path) -> None:
    with world(tmp_path) as net:
        cache = Cache(tmp_path / "cache", HUGE)
        with served(net.settings, tmp_path / "log", cache, net.upstreams) as ports:
            small = f"/acme/tiny-model/resolve/{COMMIT}/config.json"
            assert [get(ports["hub"], path)[2] for path in (LARGE, small)] == [WEIGHTS, FILES["config.json"]]
            for name in net.blobs():
                os.truncate(cache.blob(name), 0)
            assert [get(ports["hub"], path)[2] for path in (LARGE, small)] == [WEIGHTS, FILES["config.json"]]


def test_a_full_disk_costs_nothing_but_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = f"/acme/tiny-model/resolve/{COMMIT}/config.json"
    with world(tmp_path) as net:
        cache = Cache(tmp_path / "cache", HUGE)
        with served(net.settings, tmp_path / "log", cache, net.upstreams) as ports:
            # It fills up while the file comes: what came goes, and the next one passes.
            monkeypatch.setattr(cache_delivery, "KEPT_FREE", 2**62)
            assert len(get(ports["hub"], LARGE)[2]) < len(WEIGHTS)
            assert (net.blobs(), net.parts()) == ([], [])
            monkeypatch.setattr(cache_module, "KEPT_FREE", 2**62)
            assert get(ports["hub"], LARGE)[2] == WEIGHTS
            assert get(ports["hub"], small)[2] == FILES["config.json"]
            assert get(ports["index"], "/simple/beta/")[0] == 200
            assert get(ports["index"], "/simple/beta/", "HEAD")[::2] == (200, b"")
        assert ledger(tmp_path / "log")[-1]["reason"] == "listed"
        assert (net.blobs(), net.parts()) == ([], [])


def test_one_run_fetches_and_holds_few_files_at_a_time(tmp_path: Path) -> None:
    """A client that asks and leaves let its download go on: there was no end to how many."""
    files = {f"{number}.bin": os.urandom(MIB) for number in range(20)}
    hub, going, most = FakeHub(files, large=set(files)), [0], [0]

    def slowly(body: bytes) -> Iterator[bytes]:
        going[0] += 1
        most[0] = max(most[0], going[0])
        for begin in range(0, len(body), MIB // 8):
            time.sleep(0.05)
            going[0] -= begin + MIB // 8 == len(body)
            yield body[begin : begin + MIB // 8]

    with world(tmp_path, hub, slowly) as net:
        with served(net.settings, tmp_path / "log", Cache(tmp_path / "cache", HUGE), net.upstreams) as ports:
            for name in files:
                with socket.create_connection(("127.0.0.1", ports["hub"])) as client:
                    line = f"GET /acme/tiny-model/resolve/{COMMIT}/{name} HTTP/1.1"
                    client.sendall(f"{line}\r\nHost: a\r\n\r\n".encode())
            time.sleep(1.5)
        assert 0 < most[0] <= cache_module.MAX_FILLS


def test_the_cache_holds_no_more_entries_than_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches of the hub have any number of addresses, and small answers never filled it by their bytes."""
    monkeypatch.setattr(cache_module, "MAX_FILES", 50)
    monkeypatch.setattr(cache_module, "MAX_NOTES", 2 * 256)
    monkeypatch.setattr(cache_module.random, "random", lambda: 0.0)
    cache = Cache(tmp_path, 2000)
    for name in ("first", *(f"{number:064d}" for number in range(300))):
        cache.part(name).write_bytes(b"x")
        cache.keep(name)
        cache.note(name, Stored(name, 1, {}, False, 0.0))
        assert cache.find("first") is not None  # what is asked for stays
    assert len(list((tmp_path / "blobs").iterdir())) <= 50 + 20  # they are counted once in 1 % of the bytes
    assert max(len(list(folder.iterdir())) for folder in (tmp_path / "notes").iterdir()) == 2


def test_the_log_remembers_no_more_than_it_writes(tmp_path: Path) -> None:
    """A method may be 30 kB long, and each was another line to remember: 150 MB in five thousand requests."""
    log = RequestLog(tmp_path / "log")
    tracemalloc.start()
    for number in range(2 * MAX_CALL):
        log.record(
            EgressEntry("proxy", 1, 1, method=f"{number}{'A' * 20_000}", host=f"h{number}"),
            Ruling(False, "method", "no"),
        )
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    log.close()
    assert size < 4 * MIB


def test_the_authority_keeps_few_certificates_and_speaks_for_no_address() -> None:
    made = Authority(["*.github.com"])
    first = made.context("a.github.com")
    for number in range(2 * authority.MAX_CONTEXTS):
        made.context(f"h{number}.github.com")
    assert made.context.cache_info().currsize == authority.MAX_CONTEXTS
    assert made.context("a.github.com") is not first
    limits = x509.load_pem_x509_certificate(made.pem).extensions.get_extension_for_class(x509.NameConstraints).value
    assert [name.value for name in limits.permitted_subtrees or ()] == ["github.com"]
    everything = {ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")}
    assert {name.value for name in limits.excluded_subtrees or ()} == everything


def test_services_for_our_own_programs_answer_no_other_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While `prepare` runs, its mirror adds the operator's token: any user of the machine could ask it."""
    with world(tmp_path) as net, served(net.settings, tmp_path / "log", None, net.upstreams) as ports:
        assert get(ports["hub"], LARGE)[0] == 200
        monkeypatch.setattr(server, "os", SimpleNamespace(getuid=lambda: os.getuid() + 1))
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            get(ports["hub"], LARGE)
