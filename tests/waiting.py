"""What tests of processes wait for, and where they listen."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], seconds: float = 60, what: Callable[[], str] = lambda: "") -> None:
    """Poll until the condition holds; fails the test, saying ``what``, when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain: {what()}"
        time.sleep(0.05)


def free_port() -> int:
    """A port of loopback that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
