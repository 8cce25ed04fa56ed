"""How fast a file of the hub comes through the mirror: straight, first fetched into the cache, and out of it.

    python benchmarks/bench_mirror.py [--rounds 5] [--mib 2048]

A store on loopback stands for the hub's; the client throws away what it reads. All candidates run in turn, in every
round, on the same machine; the first is the same read without anything of ours between. The CPU time is that of the
mirror's process without its start, so that other work on the machine does not change it much.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import multiprocessing
import os
import resource
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from automedbench.sandbox.egress import Egress
from automedbench.sandbox.egress.dial import Upstreams
from automedbench.sandbox.egress.rules import EgressSettings

MIB = 1024 * 1024
Spent = tuple[float, float]
"""Seconds on the clock, and of CPU."""
COMMIT = "0" * 40
PATH = f"/acme/model/resolve/{COMMIT}/weights.bin"


def main() -> int:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=2048, help="size of the file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="amb-mirror-") as name:
        print(table(measure(Path(name), options.rounds, options.mib * MIB), options.mib))
    return 0


def table(measured: dict[str, list[Spent]], mib: int) -> str:
    """Markdown: medians."""
    rows = ["| | ms | MiB/s | MiB per CPU second |", "|---|---|---|---|"]
    for name, spent in measured.items():
        wall, cpu = (statistics.median(each) for each in zip(*spent, strict=True))
        rows.append(f"| {name} | {1000 * wall:.0f} | {mib / wall:.0f} | {mib / cpu:.0f} |")
    return "\n".join(rows)


def measure(folder: Path, rounds: int, size: int) -> dict[str, list[Spent]]:
    """Seconds of every candidate, in each round."""
    weights = folder / "weights.bin"
    weights.write_bytes(block := os.urandom(MIB))
    with open(weights, "ab") as stream:
        for _ in range(size // MIB - 1):
            stream.write(block)
    with open(weights, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    with running(weights, digest, size) as port:
        candidates = {
            "bare read from the store": lambda: read(("127.0.0.1", port), "/store", size),
            "SHA-256 of the file": lambda: hashed(weights),
            "mirror, no cache": through(folder, port, size, cached=False, emptied=True),
            "mirror, into the cache": through(folder, port, size, cached=True, emptied=True),
            "mirror, out of the cache": through(folder, port, size, cached=True, emptied=False),
        }
        found: dict[str, list[Spent]] = {name: [] for name in candidates}
        for _ in range(rounds):
            for name, candidate in candidates.items():
                found[name].append(candidate())
    return found


def hashed(path: Path) -> Spent:
    """Seconds to hash a file."""
    begun, busy = time.perf_counter(), time.process_time()
    with open(path, "rb") as stream:
        hashlib.file_digest(stream, "sha256")
    return time.perf_counter() - begun, time.process_time() - busy


def through(folder: Path, port: int, size: int, *, cached: bool, emptied: bool) -> Callable[[], Spent]:
    """Reads the file through a mirror of its own, the process as in a run."""
    upstreams = Upstreams(places={"store.example:80": f"127.0.0.1:{port}"})
    place = (folder / "cache", 10**15) if cached else None
    settings = EgressSettings(allow=(), hub=f"http://127.0.0.1:{port}", cached=cached)

    def candidate() -> Spent:
        if emptied:
            shutil.rmtree(folder / "cache", ignore_errors=True)
        sockets = Path(tempfile.mkdtemp(prefix="amb-m-"))
        try:

            def start() -> Egress:
                return Egress(settings, folder / "log.jsonl", sockets, cache=place, upstreams=upstreams)

            first = of_children()
            with start():
                pass
            second = of_children()
            with start():
                wall, _ = read(str(sockets / "hub.sock"), PATH, size)
            return wall, of_children() - second - (second - first)
        finally:
            shutil.rmtree(sockets)

    return candidate


def of_children() -> float:
    """CPU seconds of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def read(place: str | tuple[str, int], path: str, size: int) -> Spent:
    """Seconds to get a file and throw it away."""
    begun, busy = time.perf_counter(), time.process_time()
    kind = socket.AF_UNIX if isinstance(place, str) else socket.AF_INET
    buffer, got = bytearray(MIB), 0
    with socket.socket(kind) as client:
        client.connect(place)
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:8090\r\nConnection: close\r\n\r\n".encode())
        while count := client.recv_into(buffer):
            got += count
    assert got >= size, f"{got} bytes of {size}: {bytes(buffer[:300])!r}"
    return time.perf_counter() - begun, time.process_time() - busy


@contextlib.contextmanager
def running(weights: Path, digest: str, size: int) -> Iterator[int]:
    """The hub and its store in a process of their own; gives their port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    process = multiprocessing.get_context("fork").Process(target=serve, args=(listener, weights, digest, size))
    process.start()
    try:
        yield listener.getsockname()[1]
    finally:
        process.terminate()
        process.join()


def serve(listener: socket.socket, weights: Path, digest: str, size: int) -> None:
    """Answer one request after the other."""
    moved = f'Location: http://store.example/store\r\nX-Repo-Commit: {COMMIT}\r\nX-Linked-Etag: "{digest}"\r\n'
    with open(weights, "rb") as file:
        while True:
            client, _ = listener.accept()
            with client, contextlib.suppress(OSError):
                request = client.recv(65536)
                if b" /store " in request:
                    client.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
                    file.seek(0)
                    client.sendfile(file)
                else:
                    head = f"HTTP/1.1 302 Found\r\n{moved}X-Linked-Size: {size}\r\nContent-Length: 0\r\n\r\n"
                    client.sendall(head.encode())


if __name__ == "__main__":
    sys.exit(main())
