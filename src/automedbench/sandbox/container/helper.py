"""Helper processes of the driver: the other end of a socket pair, a clean environment, no signal meant for the driver.

Standard library and modules of this package that need no more: the supervisor uses it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import automedbench
from automedbench.base.closing import Closing
from automedbench.base.errors import InfrastructureError

SOURCE = Path(automedbench.__file__).resolve().parents[1]
_RUN = "import importlib, sys; sys.path.insert(0, sys.argv[1]); importlib.import_module(sys.argv[2]).main(sys.argv[3:])"


def module_command(module: str) -> list[str]:
    """Command that calls ``main(arguments)`` of a module which needs the standard library only."""
    return [sys.executable, "-I", "-S", "-c", _RUN, str(SOURCE), module]


class HelperProcess(Closing):
    """A program that gets the number of its socket as last argument; the end of the driver's socket tells it to end."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        patience_s: float,
        *,
        kind: socket.SocketKind = socket.SOCK_STREAM,
        env: Mapping[str, str] | None = None,
        cwd: Path = Path("/"),
        stderr: int | IO[bytes] | None = subprocess.DEVNULL,
    ) -> None:
        """Start it in a session of its own; raises InfrastructureError when no process can be started."""
        self.control, theirs = socket.socketpair(socket.AF_UNIX, kind)
        self._patience_s = patience_s
        try:
            self.process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                env=env or {"PATH": os.defpath},  # not ours: it may hold keys
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError as error:
            self.control.close()
            raise InfrastructureError(f"Cannot start {name}: {error.strerror}.") from error
        finally:
            theirs.close()

    def close(self) -> None:
        """Tell it to end, and kill it after ``patience_s``; may be called twice."""
        self.control.close()
        try:
            self.process.wait(self._patience_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
