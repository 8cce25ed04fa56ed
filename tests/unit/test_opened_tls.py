"""TLS that the proxy opens, with real programs: own servers on loopback stand for GitHub, Zenodo and the hub."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import textwrap
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from test_egress_server import Net, content, read_all, status, tunnel
from upstreams import FakeHub, Seen, WebServer, hub_with_store
from waiting import free_port

from automedbench.base.cards import DataSet, Source, TaskCard
from automedbench.base.files import sha256_bytes
from automedbench.campaign.config import EgressConfig
from automedbench.sandbox.container.launcher import FORWARDER
from automedbench.sandbox.egress import Egress
from automedbench.sandbox.egress.authority import Authority
from automedbench.sandbox.egress.cache import Cache, Stored
from automedbench.sandbox.egress.dial import Upstreams
from automedbench.sandbox.egress.rules import build_settings

HOSTS = ("github.com", "codeload.github.com", "raw.githubusercontent.com", "release-assets.githubusercontent.com")
HOSTS += ("zenodo.org", "huggingface.co")
LABELS, WEIGHTS = b"labels " * 10_000, b"weights" * 100_000
STORED, RELEASE = b"stored" * 100_000, "github.com/acme/tool/releases/download/v1/stored.zip"
TOKEN = "hf_tokenofthedriver123"


def tiny_wheel() -> bytes:
    stream, info = BytesIO(), "tinypkg-1.0.dist-info"
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("tinypkg.py", "VALUE = 41\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tinypkg\nVersion: 1.0\n")
        wheel = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", wheel)
        archive.writestr(f"{info}/RECORD", f"tinypkg.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return stream.getvalue()


class World:
    """GitHub, its file hosts and Zenodo."""

    def __init__(self, repositories: Path) -> None:
        self.repositories = repositories

    def answer(self, seen: Seen) -> tuple[int, dict[str, str], bytes]:
        host, path = seen.headers.get("host", ""), urlsplit(seen.target).path
        if "/info/refs" in path or path.endswith("/git-upload-pack"):
            return self._git(seen)
        if "/releases/download/" in path:
            name = path.rpartition("/")[2]
            return 302, {"Location": f"https://release-assets.githubusercontent.com/signed/{name}?sig=1"}, b""
        if path.endswith(".whl"):
            return 200, {}, tiny_wheel()
        if path == "/acme/tool/main/innocent.bin":
            return 200, {}, LABELS
        if path.endswith("weights.zip"):
            begin = int(seen.headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
            size = {"Content-Range": f"bytes {begin}-{len(WEIGHTS) - 1}/{len(WEIGHTS)}"} if begin else {}
            return 206 if begin else 200, size, WEIGHTS[begin:]
        return 200, {}, f"{host} {seen.method} {len(seen.body)}".encode()

    def _git(self, seen: Seen) -> tuple[int, dict[str, str], bytes]:
        """As a web server runs git's own CGI program (git-http-backend(1))."""
        parts = urlsplit(seen.target)
        told = {"GIT_PROJECT_ROOT": str(self.repositories), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": parts.path}
        told |= {"REQUEST_METHOD": seen.method, "QUERY_STRING": parts.query, "PATH": os.environ["PATH"]}
        told |= {"CONTENT_TYPE": seen.headers.get("content-type", ""), "CONTENT_LENGTH": str(len(seen.body))}
        told |= {"HTTP_CONTENT_ENCODING": seen.headers.get("content-encoding", "")}
        told |= {"GIT_PROTOCOL": seen.headers.get("git-protocol", ""), "REMOTE_ADDR": "127.0.0.1"}
        done = subprocess.run(["git", "http-backend"], input=seen.body, env=told, capture_output=True, timeout=60)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        return int(lines.pop("Status", "200").split()[0]), lines, body


class GatedHub(FakeHub):
    """A hub whose model asks for a token."""

    def answer(self, seen: Seen) -> tuple[int, dict[str, str], bytes]:
        if self.model in seen.target and seen.headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"}, b"{}"
        return super().answer(seen)


def card(*sources: tuple[str, str]) -> TaskCard:
    made = [Source.model_construct(kind=kind, where=where) for kind, where in sources]
    return TaskCard.model_construct(dataset=DataSet.model_construct(homepages=[], sources=made))


OWN = card(("git", "https://github.com/Acme/Labels"), ("url", "https://zenodo.org/records/1214456/files"))


def repository(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "model.py").write_text("VALUE = 7\n" * 1000)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def opened() -> Iterator[tuple[Net, WebServer, WebServer, WebServer]]:
    """An egress that opens TLS; the servers behind it: the sites, the hub, its store."""
    folder = Path(tempfile.mkdtemp(prefix="amb-tls-"))
    roots = Authority(HOSTS)
    context = roots.context("github.com")
    context.sni_callback = lambda tls, name, _: setattr(tls, "context", roots.context(name or ""))
    hub = GatedHub(
        {"config.json": b"{}", "labels.bin": LABELS, "model.bin": WEIGHTS}, large={"labels.bin", "model.bin"}
    )
    try:
        (folder / "sockets").mkdir()
        (folder / "roots.pem").write_bytes(roots.pem)
        for name in ("tool.git", "Labels.git"):
            repository(folder / "git/acme" / name)
        with (
            pytest.MonkeyPatch.context() as patch,
            WebServer(World(folder / "git").answer, context) as web,
            hub_with_store(hub) as (front, store),
        ):
            patch.setenv("SSL_CERT_FILE", str(folder / "roots.pem"))
            allow = ["github.com", "codeload.github.com", "*.githubusercontent.com", "zenodo.org"]
            settings = build_settings(OWN, [], EgressConfig(allow=allow))
            settings = replace(settings, hashes=(sha256_bytes(LABELS),), gated=("acme/tiny-model",))
            places = {f"{host}:443": web.place for host in HOSTS[:-1]}
            # The hub of the tests speaks plain HTTP: it has no certificate of its own.
            places |= {"huggingface.co:80": front.place, "store.example:80": store.place}
            settings = replace(settings, hub="http://huggingface.co", cached=True)
            cache = Cache(folder / "cache", 10**12)
            cache.add(sha256_bytes(STORED), STORED)
            cache.note(f"https://{RELEASE}", Stored(sha256_bytes(STORED), len(STORED), {}, True, 0.0))
            made = Egress(
                settings,
                folder / "log/egress.jsonl",
                folder / "sockets",
                tokens={"acme/tiny-model": TOKEN},
                cache=(folder / "cache", 10**12),
                upstreams=Upstreams({}, places),
            )
            with made as egress:
                egress.set_call(1, 1)
                yield Net(folder, web, egress), web, front, store
    finally:
        shutil.rmtree(folder)


def run(net: Net, program: list[str], home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """A program as it runs inside, behind the forwarder, with the variables of a run."""
    sockets = net.folder / "sockets"
    ports = {"3128": "proxy.sock", "8090": "hub.sock"}
    free = {port: str(free_port()) for port in ports}
    told = dict(net.egress.services.environment)
    for name, value in told.items():
        for port, own in free.items():
            value = value.replace(f":{port}", f":{own}")
        told[name] = value.replace("/run/services", str(sockets))
    places = [f"{free[port]}={sockets / name}" for port, name in ports.items()]
    return subprocess.run(
        [sys.executable, "-I", "-S", str(FORWARDER), *places, "--", *program],
        env={"PATH": os.environ["PATH"], "HOME": str(home), **told, **more},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_ordinary_programs_read_what_is_open_and_no_home(
    opened: tuple[Net, WebServer, WebServer, WebServer], tmp_path: Path
) -> None:
    if missing := [name for name in ("git", "curl") if shutil.which(name) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    net, web, *_ = opened
    script = """
        cd "$HOME"
        ok() { "$@" > out 2> err && echo "$NAME ok" || { echo "$NAME failed"; tail -1 err; }; }
        NAME=clone ok git clone -q https://github.com/acme/tool.git
        NAME=fetch ok git -C tool fetch -q --depth 1 origin main
        NAME=home ok git clone -q https://github.com/ACME/labels.git
        NAME=push ok git -C tool push -q origin main:other
        NAME=curl ok curl -sSf --http2 https://github.com/a https://github.com/b -o one -o two -w '%{num_connects} '
        echo "connections $(cat out)"
        NAME=release ok curl -sSfL https://github.com/acme/tool/releases/download/v1/weights.zip -o weights.zip
        head -c 5000 weights.zip > part; NAME=range ok curl -sSfL -C - -o part https://zenodo.org/records/9/files/weights.zip
        cmp part weights.zip && echo same
        NAME=stored ok curl -sSfL "https://github.com/acme/tool/releases/download/v1/stored.zip?a=b" -o stored.zip
        NAME=head ok curl -sSfI https://zenodo.org/records/9
        NAME=post ok curl -sSf -d x https://zenodo.org/api/records
        NAME=record ok curl -sSf 'https://zenodo.org/records/1214456/files/a.zip?download=1'
        NAME=upgrade ok curl -sSf -H 'Connection: Upgrade' -H 'Upgrade: websocket' https://github.com/a
        NAME=pip ok pip install -q --no-deps --disable-pip-version-check --target here \\
          https://github.com/acme/tool/releases/download/v1/tinypkg-1.0-py3-none-any.whl
        PYTHONPATH=here python -c 'import tinypkg; print("value", tinypkg.VALUE)'
    """
    places = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = run(net, ["bash", "-c", textwrap.dedent(script)], tmp_path, PATH=places)
    said = done.stdout.splitlines()
    expected = "clone ok|fetch ok|home failed|push failed|curl ok|connections 1 0 |release ok|range ok|same|stored ok"
    expected += "|head ok|post failed|record failed|upgrade failed|pip ok|value 41"
    words = expected.split("|")
    assert [line for line in said if line in words or line.endswith((" ok", " failed"))] == words, done.stdout
    assert (tmp_path / "weights.zip").read_bytes() == WEIGHTS
    assert (tmp_path / "stored.zip").read_bytes() == STORED
    assert not [seen.target for seen in web.seen if "stored.zip" in seen.target]
    told = [seen.target.lower() for seen in web.seen]
    assert not [target for target in told if "labels" in target or "1214456" in target or "receive" in target]
    assert {seen.headers.get("accept-encoding") for seen in web.seen} == {"identity"}
    found = {(finding.rule, finding.severity) for finding in net.drain()}
    assert found == {("net.labels", "warning"), ("net.refused", "notice")}
    lines = [line for line in net.log() if line["method"] != "CONNECT"]
    own = {line["path"] for line in lines if line["reason"] == "own_home"}
    assert own == {"/ACME/labels.git/info/refs", "/records/1214456/files/a.zip"}
    assert {line["reason"] for line in lines if line["verdict"] == "refused"} == {"own_home", "method", "upgrade"}
    (weights,) = [line for line in lines if line["path"] == "/signed/weights.zip"]
    assert (weights["host"], weights["down"]) == ("release-assets.githubusercontent.com", len(WEIGHTS))


def test_python_reads_the_hub_at_its_own_address_with_a_token_that_it_never_sees(
    opened: tuple[Net, WebServer, WebServer, WebServer], tmp_path: Path
) -> None:
    net, _, front, store = opened
    front.seen.clear()
    code = """
        import hashlib, json, os, urllib.request, requests
        from huggingface_hub import HfApi, hf_hub_download
        url = "https://huggingface.co/acme/tiny-model/resolve/main/model.bin"
        said = {"urllib": hashlib.sha256(urllib.request.urlopen(url).read()).hexdigest()}
        answer = requests.get(url, headers={"Range": "bytes=7-20", "Authorization": "Bearer hf_agent"})
        said["requests"] = [answer.status_code, answer.text, dict(answer.headers)]
        said["missing"] = requests.get("https://huggingface.co/datasets/acme/x/resolve/main/a.csv").text
        labels = requests.get("https://raw.githubusercontent.com/acme/tool/main/innocent.bin", stream=True)
        try:
            said["labels"] = len(labels.content)
        except Exception as error:
            said["labels"] = type(error).__name__
        for name, place in (("mirror", os.environ["HF_ENDPOINT"]), ("hub", "https://huggingface.co")):
            path = hf_hub_download("acme/tiny-model", "model.bin", endpoint=place, cache_dir=os.environ["HOME"] + name)
            said[name] = hashlib.sha256(open(path, "rb").read()).hexdigest()
            said[name + "_files"] = HfApi(endpoint=place).list_repo_files("acme/tiny-model")
            paths = HfApi(endpoint=place).get_paths_info("acme/tiny-model", ["config.json"])
            said[name + "_paths"] = [each.path for each in paths]
        said["environment"] = dict(os.environ)
        print(json.dumps(said))
    """
    done = run(net, [sys.executable, "-c", textwrap.dedent(code)], tmp_path, HF_HOME=str(tmp_path / "hf"))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    assert [said[name] for name in ("urllib", "mirror", "hub")] == [digest] * 3
    assert said["requests"][:2] == [206, WEIGHTS[7:21].decode()]
    assert said["mirror_files"] == said["hub_files"] == ["config.json", "labels.bin", "model.bin"]
    assert said["mirror_paths"] == said["hub_paths"] == ["config.json"]
    assert "Data sets and Spaces are refused" in said["missing"]
    assert said["labels"] in (0, "ChunkedEncodingError"), said["labels"]
    assert {seen.headers.get("authorization") for seen in front.seen if "tiny-model" in seen.target} == {
        f"Bearer {TOKEN}"
    }
    assert {seen.headers.get("authorization") for seen in store.seen} == {None}
    log = (net.folder / "log/egress.jsonl").read_text()
    assert TOKEN not in done.stdout + done.stderr + log
    assert "net.labels" in {finding.rule for finding in net.drain()}


def test_only_those_inside_who_name_the_host_are_spoken_to(
    opened: tuple[Net, WebServer, WebServer, WebServer],
) -> None:
    """Another server name, no TLS, hidden pieces of a request: nothing reaches a server."""
    net, web, *_ = opened
    net.log()
    web.seen.clear()
    trust = ssl.create_default_context(cafile=str(net.folder / "sockets/ca.pem"))
    for name, reason in (("zenodo.org", "tls"), ("github.com", "malformed")):
        client, answer = tunnel(net, "github.com:443")
        assert status(answer) == 200
        with contextlib.suppress(ssl.SSLError), trust.wrap_socket(client, server_hostname=name) as inside:
            inside.sendall(b"GET / HTTP/1.1\r\nHost: github.com\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd")
            assert status(read_all(inside)) == 400
        client.close()
        assert reason in {line["reason"] for line in net.log()}, name
    client, _ = tunnel(net, "github.com:443")
    with client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: github.com\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        assert read_all(client)[:1] in (b"", b"\x15")  # nothing, or an alert
    client, _ = tunnel(net, "github.com:443")
    with trust.wrap_socket(client, server_hostname="github.com") as inside:
        assert inside.version() == "TLSv1.3"
        inside.sendall(b"GET /a HTTP/1.1\r\nHost: zenodo.org\r\n\r\n")
        assert b"Host header differs" in content(read_all(inside))
    assert web.seen == []


def test_the_key_of_the_authority_is_in_no_file(opened: tuple[Net, WebServer, WebServer, WebServer]) -> None:
    net = opened[0]
    texts = {path: path.read_bytes() for path in net.folder.rglob("*") if path.is_file()}
    assert not [path for path, text in texts.items() if b"PRIVATE KEY" in text]
    bundle = texts[net.folder / "sockets/ca.pem"]
    assert bundle.startswith((net.folder / "roots.pem").read_bytes())
    assert bundle.count(b"BEGIN CERTIFICATE") == 2
