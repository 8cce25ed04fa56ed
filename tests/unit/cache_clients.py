"""Clients of the cache, each with mirror and index in a process of its own: ``python cache_clients.py JSON``."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

from automedbench.sandbox.egress.cache import Cache
from automedbench.sandbox.egress.dial import Upstreams
from automedbench.sandbox.egress.rules import EgressSettings
from automedbench.sandbox.egress.server import serve_on_loopback


def get(port: int, path: str) -> str:
    """SHA-256 of what the mirror answers."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    digest = hashlib.sha256()
    with direct.open(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        while block := answer.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


async def ask(told: dict[str, Any], log: Path) -> str:
    cache = Cache(Path(told["cache"]), 10**12)
    settings = EgressSettings.from_json(told["settings"])
    async with serve_on_loopback(settings, log, cache, Upstreams(**told["upstreams"])) as ports:
        return await asyncio.to_thread(get, ports["hub"], told["path"])


def main() -> None:
    told = json.loads(sys.argv[1])
    for number in range(told["clients"]):
        if os.fork() == 0:
            found = asyncio.run(ask(told, Path(told["logs"], f"{number}.jsonl")))
            os.write(1, f"{found}\n".encode())
            os._exit(0)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    main()
