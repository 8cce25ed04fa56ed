"""How fast the ways of the network class proxied are, on loopback: MiB/s of one download, hash included.

Run by hand: ``python benchmarks/bench_network.py [--mib 512] [--repeats 3]``. Server, proxy and client are a process
each; the client reads through the proxy's socket as programs inside do, without the forwarder.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import multiprocessing
import os
import socket
import ssl
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from automedbench.sandbox.egress import Egress
from automedbench.sandbox.egress.authority import Authority
from automedbench.sandbox.egress.dial import Upstreams
from automedbench.sandbox.egress.rules import EgressSettings

HOST = "github.com"
BLOCK = 1024 * 1024


def serve(server: socket.socket, size: int, roots: Authority | None) -> None:
    """Answer every connection with ``size`` bytes; with TLS where there are ``roots``."""
    while True:
        client, _ = server.accept()
        with contextlib.suppress(OSError), client:
            if roots is not None:
                client = roots.context(HOST).wrap_socket(client, server_side=True)
            while b"\r\n\r\n" not in client.recv(65536):
                pass
            client.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
            block = bytes(BLOCK)
            for _ in range(size // BLOCK):
                client.sendall(block)


@contextlib.contextmanager
def upstream(size: int, roots: Authority | None) -> Iterator[str]:
    """A server in a process of its own; its place."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = multiprocessing.get_context("fork").Process(target=serve, args=(server, size, roots), daemon=True)
        process.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        process.terminate()


def download(path: Path, size: int, trust: Path | None, head: str) -> float:
    """Seconds until all of the body has come; with ``trust`` in a tunnel whose TLS that file's authorities sign."""
    begin = time.perf_counter()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        if trust is not None:
            client.sendall(f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n".encode())
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
            client = ssl.create_default_context(cafile=str(trust)).wrap_socket(client, server_hostname=HOST)
        client.sendall(head.encode())
        buffer, got = bytearray(BLOCK), 0
        while got < size and (count := client.recv_into(buffer)):
            got += count
        assert got >= size, got
    return time.perf_counter() - begin


def processor_seconds(egress: Egress) -> float:
    """What the proxy's process has used: on a busy machine the steadier figure."""
    fields = Path(f"/proc/{egress._helper.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print one line per way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    size, roots = options.mib * BLOCK, Authority([HOST])
    model = "GET /acme/model/resolve/main/x.bin HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    plain = f"GET http://{HOST}/x HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
    inside = f"GET /x HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
    base = EgressSettings(allow=(HOST,), hub="http://hub.example", hashes=("0" * 64,))
    opened = dataclasses.replace(base, opened=(HOST,))
    with tempfile.TemporaryDirectory(prefix="amb-net-") as name:
        folder = Path(name)
        (folder / "roots.pem").write_bytes(roots.pem)
        os.environ["SSL_CERT_FILE"] = str(folder / "roots.pem")
        with upstream(size, None) as http, upstream(size, roots) as https:
            places = {f"{HOST}:80": http, f"{HOST}:443": https, "hub.example:80": http}
            ways = {
                "plain HTTP through the proxy, hashed": (base, "proxy.sock", None, plain),
                "hub mirror (HTTP upstream), hashed": (base, "hub.sock", None, model),
                "closed tunnel, TLS end to end": (base, "proxy.sock", folder / "roots.pem", inside),
                "opened TLS, read and hashed": (opened, "proxy.sock", folder / "s/ca.pem", inside),
            }
            for way, (settings, sock, trust, head) in ways.items():
                (folder / "s").mkdir(exist_ok=True)
                with Egress(settings, folder / "log.jsonl", folder / "s", upstreams=Upstreams({}, places)) as egress:
                    before = processor_seconds(egress)
                    times = [download(folder / "s" / sock, size, trust, head) for _ in range(options.repeats)]
                    used = (processor_seconds(egress) - before) / options.repeats
                found = f"{options.mib / statistics.median(times):.0f} MiB/s (best {options.mib / min(times):.0f})"
                print(f"{way}: {found}; {options.mib / used:.0f} MiB per second of the proxy's processor time")


if __name__ == "__main__":
    main()
