"""Two hundred drivers at one provider that enforces a limit: how much of it do they use, and how fairly?

    python benchmarks/bench_pacer.py [--drivers 200] [--per-minute 900] [--seconds 120] [--only dead]

A server on loopback answers so many requests per minute, the others get 429. Each driver is a process with a client and
a pacer of its own; all they share is a folder of real files. They ask without a break. The limit is given in the
configuration, told in headers, or felt by refusals alone; then the first minute is left out, in which it is found.
Prints a Markdown table; the exit status is 1 below the aims: 95 % used, a Jain index of 0.9, no run lost. ``--only
dead`` takes 12 minutes: the endpoint answers nothing but 503, and each driver may ask once in five minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
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

from automedbench.base.endpoint.client import Attempt, Client, EndpointTarget, RequestGivenUp
from automedbench.base.endpoint.pacer import LONGEST_RETRY_S
from automedbench.base.endpoint.rate_headers import RateLimits
from automedbench.base.endpoint.replies import read_completion

STORE_S = 10.0
"""The provider keeps what was not used for so long."""
LATENCY_S = (0.1, 0.6)
SPREAD_S = 2.0
"""Drivers begin within this time, when the clients of all are made."""
START_S, SEARCH_S = 5.0, 60.0
"""What is left out before counting: the start, and the search for a limit that no one tells."""
AIM, FAIR = 0.95, 0.9
DEAD_S, DEAD_WARM_S = 700.0, 330.0
"""How long the endpoint is dead, and what of it are the first failures and the first wait."""
BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
ANSWER = json.dumps(
    {"model": "m", "choices": [{"message": {"content": "hi"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
).encode()


class Provider(ThreadingHTTPServer):
    """Answers ``per_minute`` requests per minute; ``tells`` its limit in headers."""

    daemon_threads, request_queue_size = True, 512

    def __init__(self, per_minute: float, tells: bool, *, dead: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.per_minute, self.tells, self.dead = per_minute, tells, dead
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
        if self.server.dead:
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
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
    """What a driver does."""

    url: str
    folder: str
    rate: RateLimits | None
    warm_s: float
    seconds: float


@dataclass(frozen=True)
class Result:
    """Of a driver: answers after the warm-up, runs lost, moments of its failed attempts, operations on shared files."""

    count: int
    lost: int
    failed: list[float]
    operations: Counter[str]


def drive(order: Order, ready: Barrier, results: Results[Result]) -> None:
    """A driver."""
    operations: Counter[str] = Counter()
    failed: list[float] = []
    count = lost = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "os.rename") and order.folder in str(arguments[0]):
            operations[event] += 1

    def note(attempt: Attempt) -> None:
        if attempt.kind != "ok":
            failed.append(time.monotonic() - began - attempt.elapsed_s)

    random.seed(os.getpid())
    sys.addaudithook(watch)
    target = EndpointTarget(order.url, "m", ("sk-bench",), "KEY", rate=order.rate)
    with Client(target, shared=Path(order.folder), on_attempt=note) as client:
        ready.wait()
        began = time.monotonic()
        time.sleep(random.random() * SPREAD_S)
        while (moment := time.monotonic() - began) < order.warm_s + order.seconds:
            try:
                client.ask(BODY, read_completion)
            except RequestGivenUp:
                lost += 1
            count += moment >= order.warm_s
    results.put(Result(count, lost, failed, operations))


def run_drivers(order: Order, drivers: int) -> tuple[float, list[Result]]:
    """Moment of the start, and what the drivers did."""
    target = EndpointTarget(order.url, "m", ("sk-bench",), "KEY")
    with Client(target, sleep=lambda _s: None) as client, contextlib.suppress(RequestGivenUp):
        client.ask(BODY, read_completion)  # imports what all need; they share their memory
    context = multiprocessing.get_context("fork")
    results: Results[Result] = context.Queue()
    ready = context.Barrier(drivers + 1)
    processes = [context.Process(target=drive, args=(order, ready, results)) for _ in range(drivers)]
    for process in processes:
        process.start()
    ready.wait()
    start = time.monotonic()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return start, found


def measure(name: str, options: argparse.Namespace) -> tuple[str, bool]:
    """One row of the table, and whether it reaches the aims."""
    warm_s = SEARCH_S if name == "felt" else START_S
    rate = RateLimits(requests_per_minute=options.per_minute) if name == "given" else None
    with Provider(options.per_minute, tells=name == "told") as provider, tempfile.TemporaryDirectory() as folder:
        threading.Thread(target=provider.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{provider.server_address[1]}/v1"
        start, found = run_drivers(Order(url, folder, rate, warm_s, options.seconds), options.drivers)
        provider.shutdown()
    start += warm_s
    end = start + options.seconds
    answered = sum(start <= moment < end for moment in provider.answered)
    refused = sum(start <= moment < end for moment in provider.refused)
    allowed = answered + sum(amount for moment, amount in provider.unused if start <= moment < end)
    counts = [result.count for result in found]
    jain = sum(counts) ** 2 / (len(counts) * sum(count**2 for count in counts))
    lost = sum(result.lost for result in found)
    requests = len(provider.answered) + len(provider.refused)
    operations = sum((result.operations for result in found), Counter[str]())
    per_request = {kind: operations[kind] / requests for kind in ("open", "os.rename")}
    row = f"| {name} | {answered / allowed:.3f} | {jain:.3f} | {lost} | {refused / max(answered, 1):.1%} | "
    row += " | ".join(f"{number:.1f}" for number in per_request.values()) + " |"
    return row, answered / allowed >= AIM and jain >= FAIR and lost == 0


def measure_dead(options: argparse.Namespace) -> tuple[str, bool]:
    """A sentence on a dead endpoint, and whether each driver asks it once in five minutes at most; then it is back."""
    with Provider(6e4, tells=False, dead=True) as provider, tempfile.TemporaryDirectory() as folder:
        threading.Thread(target=provider.serve_forever, daemon=True).start()
        threading.Timer(DEAD_S, setattr, (provider, "dead", False)).start()
        url = f"http://127.0.0.1:{provider.server_address[1]}/v1"
        _, found = run_drivers(Order(url, folder, None, 0.0, SPREAD_S + 1), options.drivers)
        provider.shutdown()
    pauses = [
        after - before
        for result in found
        for before, after in itertools.pairwise(result.failed)
        if before >= DEAD_WARM_S
    ]
    first = max(sum(moment < DEAD_WARM_S for moment in result.failed) for result in found)
    lost = sum(result.lost for result in found)
    text = (
        f"{len(found)} drivers, dead for {DEAD_S:.0f} s: {first} attempts of a driver at most in the first "
        f"{DEAD_WARM_S:.0f} s, then one in {min(pauses):.0f} s or more; {lost} lost."
    )
    return text, min(pauses) >= LONGEST_RETRY_S - 1 and lost == 0


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drivers", type=int, default=200)
    parser.add_argument("--per-minute", type=float, default=900)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--only", choices=["given", "told", "felt", "dead"])
    options = parser.parse_args()
    if options.only == "dead":
        text, good = measure_dead(options)
        print(text)
        return 0 if good else 1
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
