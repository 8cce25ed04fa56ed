"""The network classes in the real container: what sealed and proxied code can reach (docs/specification.md, 5).

A host full of things to reach (TCP, UDP, UNIX sockets, the homes of data sets behind the proxy) says CONNECTED to
whoever comes. The attacker knows every address of it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from unprivileged import IMAGES, as_user, user_folder, why_not
from upstreams import FakeHub, Seen, WebServer, hub_with_store

from automedbench.base.records import Finding
from automedbench.sandbox.boxes import ApptainerSandbox
from automedbench.sandbox.container.process import CodeResult
from automedbench.sandbox.egress import Egress, site_certificates
from automedbench.sandbox.egress.authority import Authority
from automedbench.sandbox.egress.dial import Upstreams
from automedbench.sandbox.egress.rules import EgressSettings, PackageIndex

pytestmark = pytest.mark.apptainer

TABLE = yaml.safe_load(Path(__file__).with_name("network.yaml").read_text())
ATTEMPTS: dict[str, dict[str, Any]] = TABLE["attempts"]
CONNECTED = "network-reached"
BAD = (CONNECTED, "network-changed", "network-resolved")
LABELS = hashlib.sha256(b"labels").digest() * 1000


@dataclass
class Host:
    """A host with services that nobody inside may reach, an egress process, and a workspace."""

    folder: Path
    facts: dict[str, object]
    egress: Egress
    web: WebServer
    hub: WebServer

    def run(self, code: str, network: Any, *, language: Any = "python", timeout_s: float = 60) -> CodeResult:
        """One call of agent code in a fresh container."""
        for name, value in self.facts.items():
            code = code.replace(f"@{name}@", str(value))
        if network == "proxied":
            self.egress.set_call(1, 1)

        def call() -> CodeResult:
            with self._box(network) as box:
                return box.run_code(language, code, call=1, turn=1, log=self.folder / "log", timeout_s=timeout_s)

        return as_user(call)

    def run_all(self, codes: list[str], network: Any) -> Iterator[tuple[CodeResult, list[Finding]]]:
        """Several attempts, numbered from 1, with what the egress found; as the ordinary user."""
        with self._box(network) as box:
            for number, code in enumerate(codes, start=1):
                code = TABLE["prelude"] + code
                for name, value in self.facts.items():
                    code = code.replace(f"@{name}@", str(value))
                self.egress.set_call(1, number)
                result = box.run_code("python", code, call=number, turn=1, log=self.folder / "log", timeout_s=60)
                yield result, self.egress.drain(turn=1, call=number)

    def _box(self, network: Any) -> ApptainerSandbox:
        os.environ["HTTPS_PROXY"] = str(self.facts["site_proxy"])
        return ApptainerSandbox(
            image=IMAGES / "light.sif",
            public=self.folder / "public",
            workspace=self.folder / "workspace",
            network=network,
            services=self.egress.services if network == "proxied" else None,
        )

    def log(self) -> list[dict[str, Any]]:
        """Lines of the log since the last drain."""
        return [json.loads(line) for line in (self.folder / "egress.jsonl").read_text().splitlines()]

    def drain(self) -> list[Finding]:
        return self.egress.drain(turn=1, call=1)

    def forget(self) -> None:
        """Start the next attempt from nothing."""
        self.drain()
        os.truncate(self.folder / "egress.jsonl", 0)
        self.web.seen.clear()
        self.hub.seen.clear()


def world(seen: Seen) -> tuple[int, dict[str, str], bytes]:
    """Every web server there is: the listed host is welcome, all others must not be reached."""
    path = seen.target.lower()
    if seen.headers.get("host") == "index.example" and path.startswith("/simple/tinypkg"):
        return 200, {"Content-Type": "text/html"}, b'<a href="/files/tinypkg-1.0-py3-none-any.whl">tinypkg-1.0</a>'
    if path.startswith("/files/tinypkg"):
        return 200, {}, tiny_wheel()
    if seen.headers.get("host") != "code.example" or "labels" in path:
        return 200, {}, CONNECTED.encode()
    return 200, {}, LABELS if path == "/innocent.bin" else b"welcome"


def tiny_wheel() -> bytes:
    """A package with one module, as an index serves it."""
    import io
    import zipfile

    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("tinypkg.py", "VALUE = 41\n")
        info = "tinypkg-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tinypkg\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", f"tinypkg.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return stream.getvalue()


@contextlib.contextmanager
def services_of_the_host(folder: Path) -> Iterator[dict[str, object]]:
    """TCP, UDP, abstract and path sockets that say CONNECTED."""
    tcp = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    udp.bind(("::", 0))
    abstract, path = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    name = f"amb-{secrets.token_hex(8)}"
    abstract.bind(f"\0{name}")
    path.bind(str(folder / "driver.sock"))
    os.chmod(folder / "driver.sock", 0o666)
    for server in (abstract, path):
        server.listen()
    threads = [threading.Thread(target=greet, args=(server,), daemon=True) for server in (tcp, abstract, path)]
    threads.append(threading.Thread(target=answer_datagrams, args=(udp,), daemon=True))
    for thread in threads:
        thread.start()
    try:
        own = {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)}
        yield {
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "abstract": name,
            "driver_socket": folder / "driver.sock",
            "addresses": sorted(own | {"127.0.0.1", "::1"}),
            "hostname": socket.gethostname(),
            "driver": os.getpid(),
            "site_proxy": "http://site-proxy.invalid:3128",
        }
    finally:
        for server in (tcp, udp, abstract, path):
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            server.close()
        for thread in threads:
            thread.join(5)


def greet(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = server.accept()
            with client, contextlib.suppress(OSError):
                client.sendall(CONNECTED.encode())


def answer_datagrams(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            data, peer = server.recvfrom(2000)
            if not data:
                return
            server.sendto(CONNECTED.encode(), peer)


@pytest.fixture(scope="module")
def shared_host() -> Iterator[Host]:
    if reason := why_not("light"):
        pytest.skip(reason)
    hub_files = FakeHub({"config.json": b'{"a": 1}', "labels.bin": LABELS}, large={"labels.bin"})
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(user_folder())
        as_user(lambda: [(folder / name).mkdir() for name in ("public", "workspace", "log", "services")])
        facts = stack.enter_context(services_of_the_host(folder))
        web = stack.enter_context(WebServer(world))
        hub, store = stack.enter_context(hub_with_store(hub_files))
        # A site that serves models and data sets alike: TLS to it is opened.
        roots = Authority(["github.com"])
        site = stack.enter_context(WebServer(world, roots.context("github.com")))
        (folder / "roots.pem").write_bytes(roots.pem)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("SSL_CERT_FILE", str(folder / "roots.pem"))
        settings = EgressSettings(
            allow=("code.example", "rebind.example", "index.example", "github.com"),
            opened=("github.com",),
            deny_hosts=("data.example", "*.data.example", "other.example"),
            own_hosts=("data.example", "*.data.example"),
            deny_urls=("code.example/labels",),
            own_urls=("code.example/labels", "github.com/acme/data"),
            hub=hub.url,
            index=PackageIndex("http://index.example/simple", ("index.example",), ("index.example:80",)),
            hashes=(hashlib.sha256(LABELS).hexdigest(),),
        )
        places = {"store.example:80": store.place, "github.com:443": site.place}
        # Whatever a rule lets through by mistake arrives at a server that says so.
        for name in ("code", "data", "evil", "index", "www.data", "other"):
            places |= {f"{name}.example:80": web.place, f"{name}.example:443": f"127.0.0.1:{facts['tcp']}"}
        names = {"rebind.example": ["127.0.0.1"]}
        upstreams = Upstreams(names, places)
        egress = stack.enter_context(
            Egress(settings, folder / "egress.jsonl", folder / "services", upstreams=upstreams)
        )
        for entry in (folder / "services").iterdir():
            entry.chmod(0o666)  # the container belongs to another user than this test
        yield Host(folder, facts, egress, web, hub)


@pytest.fixture
def host(shared_host: Host) -> Host:
    shared_host.forget()
    return shared_host


CASES = [(name, network) for name, attempt in ATTEMPTS.items() for network in attempt["where"]]


@dataclass
class Done:
    """What came of one attempt."""

    result: CodeResult
    findings: list[Finding]
    log: list[dict[str, Any]]


@pytest.fixture(scope="module")
def attempts(shared_host: Host) -> Callable[[str], dict[str, Done]]:
    """All attempts of a network class, made one after the other, each in a container of its own."""

    @functools.cache
    def make(network: str) -> dict[str, Done]:
        shared_host.forget()
        names = [name for name, where in CASES if where == network]
        done = as_user(lambda: list(shared_host.run_all([ATTEMPTS[name]["code"] for name in names], network)))
        lines = shared_host.log()
        return {
            name: Done(result, findings, [line for line in lines if line["call"] == call])
            for call, (name, (result, findings)) in enumerate(zip(names, done, strict=True), start=1)
        }

    return make


@pytest.mark.parametrize(("name", "network"), CASES, ids=[f"{name}-{network}" for name, network in CASES])
def test_nothing_that_is_not_listed_is_reached(
    attempts: Callable[[str], dict[str, Done]], name: str, network: str
) -> None:
    done = attempts(network)[name]
    assert [word for word in BAD if word in done.result.stdout] == [], done.result.stdout
    assert done.result.status in ("ok", "error", "killed"), done.result.stderr
    # An attempt that is wrong itself would prove nothing.
    assert [word for word in ("SyntaxError", "NameError", "ImportError") if word in done.result.stderr] == []
    if reason := ATTEMPTS[name].get("reason"):
        assert reason in {line["reason"] for line in done.log if line.get("verdict") == "refused"}, done.log
        expected = {"own_home": "net.labels", "labels": "net.labels", "upload": "net.upload"}.get(reason, "net.refused")
        assert expected in {finding.rule for finding in done.findings if finding.source == "egress"}


def test_there_are_enough_attempts() -> None:
    assert len(CASES) >= 80
    assert sum("proxied" in attempt["where"] for attempt in ATTEMPTS.values()) >= 40


@pytest.mark.parametrize("name", ["tcp-host-addresses", "udp", "unix-abstract"])
def test_the_services_can_be_reached_when_the_network_is_open(host: Host, name: str) -> None:
    """The control: what is silent above answers here."""
    assert CONNECTED in host.run(TABLE["prelude"] + ATTEMPTS[name]["code"], "open").stdout


@pytest.mark.parametrize("network", ["sealed", "proxied"])
def test_there_is_one_interface(host: Host, network: str) -> None:
    result = host.run(
        "cut -d: -f1 /proc/net/dev | tail -n +3; cat /proc/net/route | tail -n +2", network, language="bash"
    )
    assert result.stdout.split() == ["lo"]


# --- what proxied is for --------------------------------------------------------------------------------------------


def test_a_listed_host_answers_ordinary_programs(host: Host) -> None:
    code = """
    import urllib.request
    print(urllib.request.urlopen("http://code.example/").read())
    try:
        urllib.request.urlopen("https://evil.example/")
    except OSError as error:
        print(error)
    print(urllib.request.urlopen("http://127.0.0.1:8090/acme/tiny-model/resolve/main/config.json").read())
    """
    result = host.run("\n".join(line.removeprefix("    ") for line in code.splitlines()), "proxied")
    lines = result.stdout.splitlines()
    assert lines[0] == "b'welcome'", result.stderr
    assert "evil.example is not on the list of hosts that may be reached" in lines[1]
    assert lines[2] == "b'{\"a\": 1}'"
    assert {(line["host"], line["verdict"]) for line in host.log()} >= {
        ("code.example", "allowed"),
        ("evil.example", "refused"),
    }


def test_pip_installs_from_the_index(host: Host) -> None:
    check = "PYTHONPATH=here python3 -c 'import tinypkg; print(tinypkg.VALUE)'"
    code = f"pip install --no-cache-dir --target here tinypkg && {check}"
    result = host.run(code, "proxied", language="bash", timeout_s=120)
    assert result.stdout.splitlines()[-1:] == ["41"], result.stdout + result.stderr
    assert {line["path"] for line in host.log()} == {"/simple/tinypkg/", "/files/tinypkg-1.0-py3-none-any.whl"}


OPENED = """
import ssl, urllib.request
for trust in (None, "/etc/ssl/certs/ca-certificates.crt"):
    context = ssl.create_default_context(cafile=trust)
    for path in ("acme/model/innocent.txt", "acme/data/x"):
        try:
            print(urllib.request.urlopen(f"https://github.com/{path}", context=context).read())
        except OSError as error:
            print(error)
"""


def test_tls_of_a_site_for_models_and_data_is_opened(host: Host) -> None:
    """Programs trust the proxy's certificates by variable and by the system's store; a home is refused by its URL."""
    lines = host.run(OPENED, "proxied").stdout.splitlines()
    assert lines[0] == lines[2] == f"b'{CONNECTED}'"
    assert "own_home" in {line["reason"] for line in host.log()}
    assert lines[1] == lines[3]
    assert "github.com/acme/data/x is a home of this task's data set" in lines[1]


def test_certificates_of_a_site_that_inspects_tls_reach_an_open_container(host: Host) -> None:
    (host.folder / "site").mkdir()
    code = "import os; print(open(os.environ['PIP_CERT']).read() == open('/etc/ssl/certs/ca-certificates.crt').read())"
    services = site_certificates(host.folder / "site")
    assert services is not None

    def call() -> CodeResult:
        folder = host.folder
        with ApptainerSandbox(
            image=IMAGES / "light.sif",
            public=folder / "public",
            workspace=folder / "workspace",
            network="open",
            services=services,
        ) as box:
            return box.run_code("python", code, call=1, turn=1, log=folder / "log", timeout_s=60)

    result = as_user(call)
    assert result.stdout == "True\n", result.stderr


def test_pip_fails_cleanly_when_sealed(host: Host) -> None:
    result = host.run("pip install --retries 0 --timeout 2 --target here tinypkg", "sealed", language="bash")
    assert result.status == "error"


def test_the_exit_status_comes_through_the_forwarder(host: Host) -> None:
    assert host.run("exit 7", "proxied", language="bash").exit_code == 7
    assert host.run("raise SystemExit(3)", "proxied").exit_code == 3


INSIDE = """
import os
states = [open(f"/proc/{pid}/status").read().splitlines() for pid in os.listdir("/proc") if pid.isdigit()]
print(len(states), len({line for state in states for line in state if line.startswith("Seccomp_filters")}))
os.symlink("/proc/self/root/proc/1/task/1/mem", "link")
for path in ("/proc/1/mem", "link", "/proc/1/syscall", "/proc/1/environ", "/proc/1/fd/0"):
    try: print("opened", os.open(path, os.O_RDONLY))
    except OSError: pass
"""


def test_forwarder_and_runner_are_traced_and_closed(host: Host) -> None:
    """Of two processes of ours and the call's, all behind the same filters, none opens another's memory unseen."""

    def run() -> tuple[CodeResult, list[Finding]]:
        with host._box("proxied") as box:
            result = box.run_code("python", INSIDE, call=1, turn=1, log=host.folder / "log", timeout_s=60)
            return result, box.drain_findings()

    result, found = as_user(run)
    assert result.stdout == "3 1\n", result.stderr
    assert [each.evidence for each in found if each.confidence == "high"] == [
        "link /proc/1/task/1/mem and 3 more (4 times)"
    ]


def test_background_processes_end_with_the_run(host: Host) -> None:
    begin = time.monotonic()
    result = host.run("sleep 300 & (setsid sleep 300 &) ; echo done", "proxied", language="bash")
    assert result.stdout == "done\n"
    assert time.monotonic() - begin < 60


def test_a_proxy_that_dies_is_a_clean_error_inside() -> None:
    """No hang, and nothing is left but the folder, which its maker removes."""
    if reason := why_not("light"):
        pytest.skip(reason)
    with user_folder() as folder, services_of_the_host(folder) as facts, WebServer(world) as web:
        as_user(lambda: [(folder / name).mkdir() for name in ("public", "workspace", "log", "services")])
        upstreams = Upstreams(places={"code.example:80": web.place})
        egress = Egress(
            EgressSettings(allow=("code.example",)), folder / "egress.jsonl", folder / "services", upstreams=upstreams
        )
        with egress:
            (folder / "services/proxy.sock").chmod(0o666)
            host = Host(folder, facts, egress, web, web)
            pid = egress._helper.process.pid
            code = """
                import os, time, urllib.request
                print(urllib.request.urlopen("http://code.example/", timeout=30).read(), flush=True)
                open("/workspace/asked", "w").close()
                while not os.path.exists("/workspace/killed"):
                    time.sleep(0.05)
                for _ in range(2):
                    try:
                        print(urllib.request.urlopen("http://code.example/", timeout=30).read())
                    except OSError as error:
                        print("failed:", error)
            """
            code = "\n".join(line.removeprefix(" " * 16) for line in code.splitlines())

            def kill() -> None:
                while not (folder / "workspace/asked").exists():
                    time.sleep(0.05)
                os.kill(pid, 9)
                (folder / "workspace/killed").touch()

            killer = threading.Thread(target=kill, daemon=True)
            killer.start()
            result = host.run(code, "proxied", timeout_s=60)
            killer.join(60)
        lines = result.stdout.splitlines()
        assert lines[0] == "b'welcome'", result.stderr
        assert [line.partition(":")[0] for line in lines[1:]] == ["failed", "failed"]
        assert list((folder / "services").iterdir()) == []
        assert not Path(f"/proc/{pid}").exists()
