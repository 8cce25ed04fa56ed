"""Two hundred drivers at one provider that enforces a limit: how much of it do they use, and how fairly?

    python benchmarks/bench_limiter.py [--drivers 200] [--per-minute 900] [--seconds 120] [--processes 4]

A server on loopback answers so many requests per minute, the others get 429. Drivers are threads of a few
processes, each with a client and a limiter of its own; all they share is a folder of real files. They ask without a
break. The limit is given in the configuration, told in headers, or felt by refusals alone; then the first minute is
left out, in which it is found. Prints a Markdown table; the exit status is 1 below the aims: 95 % used, a
Jain index of 0.95, no run lost.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.queues import Queue as Results
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from automedbench.base.endpoint.client import Client, EndpointHealth, GivenUp, Target
from automedbench.base.endpoint.rate_headers import RateLimits
from automedbench.base.endpoint.replies import read_completion

STORE_S = 10.0
"""The provider keeps what was not used for so long."""
LATENCY_S = (0.1, 0.6)
SPREAD_S = 2.0
"""Drivers begin within this time, when the clients of all are made."""
START_S, SEARCH_S = 5.0, 60.0
"""What is left out before counting: the start, and the search for a limit that no one tells."""
AIM = 0.95
BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
ANSWER = json.dumps(
    {"model": "m", "choices": [{"message": {"content": "hi"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
).encode()


class Provider(ThreadingHTTPServer):
    """Answers ``per_minute`` requests per minute; ``tells`` its limit in headers."""

    daemon_threads, request_queue_size = True, 512

    def __init__(self, per_minute: float, tells: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.per_minute, self.tells = per_minute, tells
        self.level, self.at = self.size, time.monotonic()
        self.lock = threading.Lock()
        self.answered: list[float] = []
        self.refused: list[float] = []
        self.unused: list[tuple[float, float]] = []

    @property
    def size(self) -> float:
        """Requests that it has in store at most."""
        return self.per_minute / 60 * STORE_S

    def take(self) -> tuple[bool, float]:
        """Whether a request is answered, and what is left."""
        with self.lock:
            moment = time.monotonic()
            level = self.level + (moment - self.at) * self.per_minute / 60
            self.unused.append((moment, max(0.0, level - self.size)))
            self.level, self.at = min(self.size, level), moment
            good = self.level >= 1
            self.level -= good
            (self.answered if good else self.refused).append(moment)
            return good, self.level


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Provider

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        good, left = self.server.take()
        if good:
            time.sleep(random.uniform(*LATENCY_S))
        data = ANSWER if good else b'{"error": {"message": "rate limit"}}'
        self.send_response(200 if good else 429)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if self.server.tells:
            # What is left of a minute, as providers count it.
            self.send_header("x-ratelimit-limit-requests", f"{self.server.per_minute:g}")
            self.send_header("x-ratelimit-remaining-requests", str(int(left)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Order:
    """What a process's drivers do."""

    url: str
    folder: str
    rate: RateLimits | None
    drivers: int
    warm_s: float
    seconds: float


def drive(order: Order, ready: Barrier, results: Results[tuple[list[int], int, Counter[str]]]) -> None:
    """A process: answers per driver after the warm-up, runs lost, and operations on shared files by kind."""
    operations: Counter[str] = Counter()

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "os.rename") and order.folder in str(arguments[0]):
            operations[event] += 1

    sys.addaudithook(count)
    counts, lost, began = [0] * order.drivers, [0], [0.0]
    made, go = threading.Barrier(order.drivers + 1), threading.Event()

    def one(number: int) -> None:
        target = Target(order.url, "m", ("sk-bench",), "KEY", rate=order.rate)
        with Client(target, health=EndpointHealth(Path(order.folder), order.url)) as client:
            made.wait()
            go.wait()
            time.sleep(random.random() * SPREAD_S)
            while (moment := time.monotonic() - began[0]) < order.warm_s + order.seconds:
                try:
                    client.ask(BODY, read_completion)
                except GivenUp:
                    lost[0] += 1
                counts[number] += moment >= order.warm_s

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(order.drivers)]
    for thread in threads:
        thread.start()
    made.wait()
    ready.wait()
    began[0] = time.monotonic()
    go.set()
    for thread in threads:
        thread.join()
    results.put((counts, lost[0], operations))


def measure(name: str, options: argparse.Namespace) -> tuple[str, bool]:
    """One row of the table, and whether it reaches the aims."""
    warm_s = SEARCH_S if name == "felt" else START_S
    rate = RateLimits(requests_per_minute=options.per_minute) if name == "given" else None
    context = multiprocessing.get_context("spawn")
    with Provider(options.per_minute, tells=name == "told") as provider, tempfile.TemporaryDirectory() as folder:
        threading.Thread(target=provider.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{provider.server_address[1]}/v1"
        share = options.drivers // options.processes
        order = Order(url, folder, rate, share, warm_s, options.seconds)
        results: Results[tuple[list[int], int, Counter[str]]] = context.Queue()
        ready = context.Barrier(options.processes + 1)
        processes = [context.Process(target=drive, args=(order, ready, results)) for _ in range(options.processes)]
        for process in processes:
            process.start()
        ready.wait()
        start = time.monotonic() + warm_s
        found = [results.get() for _ in processes]
        for process in processes:
            process.join()
        provider.shutdown()
    end = start + options.seconds
    answered = sum(start <= moment < end for moment in provider.answered)
    refused = sum(start <= moment < end for moment in provider.refused)
    allowed = answered + sum(amount for moment, amount in provider.unused if start <= moment < end)
    counts = [count for part, _, _ in found for count in part]
    jain = sum(counts) ** 2 / (len(counts) * sum(count**2 for count in counts))
    lost = sum(part[1] for part in found)
    requests = len(provider.answered) + len(provider.refused)
    operations = sum((part[2] for part in found), Counter[str]())
    per_request = {kind: operations[kind] / requests for kind in ("open", "os.rename")}
    row = f"| {name} | {answered / allowed:.3f} | {jain:.3f} | {lost} | {refused / max(answered, 1):.1%} | "
    row += " | ".join(f"{number:.1f}" for number in per_request.values()) + " |"
    return row, answered / allowed >= AIM and jain >= AIM and lost == 0


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drivers", type=int, default=200)
    parser.add_argument("--per-minute", type=float, default=900)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--only", choices=["given", "told", "felt"])
    options = parser.parse_args()
    print("| limit | used | Jain | runs lost | refused ÷ answered | opened | renamed per request |")
    print("|---|---|---|---|---|---|---|")
    good = True
    for name in [options.only] if options.only else ["given", "told", "felt"]:
        row, reached = measure(name, options)
        print(row, flush=True)
        good = good and reached
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
