"""Child process that works on texts of others: a line of JSON to it, a line back, and nothing of our environment."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any


class Child:
    """A running Python and our end of its socket, which is its input and its output.

    It gets PATH and no other variable: ours may hold keys. An answer has at most ``most`` bytes.
    """

    def __init__(self, arguments: Sequence[str], *, most: int) -> None:
        self._most = most
        self.socket, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", *arguments],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": os.defpath},
            )

    def ask(self, message: Any, wait_s: float) -> Any:
        """The answer to a line; raises OSError or ValueError when there is none, and the child is of no more use."""
        deadline = time.monotonic() + wait_s
        self.socket.settimeout(wait_s)
        self.socket.sendall(json.dumps(message).encode() + b"\n")
        answer = bytearray()
        while not answer.endswith(b"\n"):
            self.socket.settimeout(max(0.01, deadline - time.monotonic()))
            block = self.socket.recv(1 << 20)
            answer += block
            if not block or len(answer) > self._most:
                raise OSError("no answer")
        return json.loads(answer)

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()
        self.socket.close()
