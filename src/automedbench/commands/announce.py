"""Announce the address of a model's server for as long as it runs, and start the server, if its command is given.

The address stands in one file of a folder, which is the `endpoint_file` of agents and judges. It is written when the
server answers under the address that others will use, and removed when the server ends or this command is asked to.
The server's command may hold {host} and {port}. docs/serving.md has examples.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pydantic

from automedbench.base.console import Interrupted
from automedbench.base.endpoint.announced import Announcement
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import write_record
from automedbench.base.records import now

LOOK_S = 1.0
"""Between two looks whether the server answers, and whether its file is still there."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: where, under which name, and the server's command."""
    parser.add_argument("--folder", type=Path, required=True, help="the folder of the model's servers")
    parser.add_argument("--model", help="name that the server gives its model; runs of another model pass it over")
    parser.add_argument("--host", default=socket.gethostname(), help="name of this machine for others, {host}")
    parser.add_argument("--port", type=int, default=0, help="{port}; without it a free one")
    parser.add_argument("--url", default="http://{host}:{port}/v1", help="address, by default %(default)s")
    parser.add_argument("--name", help="of the file; by default the Slurm job and its process, else host and port")
    parser.add_argument("command", nargs="*", metavar="-- COMMAND", help="the server's program and its options")


def main(options: argparse.Namespace) -> None:
    """Announce until the server ends, and end with its exit code; on a signal withdraw first, then pass it on.

    Raises ConfigError for an address or a name that cannot be.
    """
    port = str(options.port or _free_port())
    job = os.environ.get("SLURM_JOB_ID")
    name = options.name or (f"{job}-{os.environ.get('SLURM_PROCID', '0')}" if job else f"{options.host}-{port}")
    if not _NAME.fullmatch(name):
        raise ConfigError([f"--name {name}: must be letters and digits, and after the first also '.', '_' and '-'"])
    if not options.port and "{port}" in options.url and not any("{port}" in word for word in options.command):
        raise ConfigError(["--port: is not given; say where the server listens, or put {port} into its command"])
    words = [_filled(word, options.host, port) for word in (options.url, *options.command)]
    try:
        notice = Announcement(url=words[0], model=options.model, job=job, started_at=now())
    except pydantic.ValidationError as error:
        raise ConfigError([f"--url {words[0]}: {error.errors()[0]['msg']}"]) from error
    sys.exit(_Announcer(options.folder / f"{name}.json", notice).keep(words[1:]))


@dataclass(frozen=True)
class _Announcer:
    """The one writer of a file."""

    path: Path
    notice: Announcement

    def keep(self, command: list[str]) -> int:
        """Announce as long as the command runs, without one for ever; its exit code, or 128 + signal."""
        self._withdraw()  # of an earlier start of the same job
        child = _started(command) if command else None
        try:
            self._announce(lambda: child is None or child.poll() is None)
            code = child.returncode if child else 0
            return code if code >= 0 else 128 - code
        except KeyboardInterrupt as error:
            number = error.number if isinstance(error, Interrupted) else signal.SIGINT
            self._withdraw()
            if child is not None:
                child.send_signal(number)
                child.wait()
            return 128 + number
        finally:
            self._withdraw()
            if child is not None and child.poll() is None:
                child.kill()

    def _announce(self, runs: Callable[[], bool]) -> None:
        """Write the file when the server answers, and again when it was deleted meanwhile."""
        from automedbench.base.endpoint.transport import Deadline, make_http_client, trouble_of

        deadline, told = Deadline(), ""
        with make_http_client(self.path.absolute().as_uri(), None, deadline) as client:
            while runs():
                if not self.path.exists():
                    said = trouble_of(client, deadline, self.notice.url, self.notice.model) or self._write()
                    if said != told:
                        print(said)
                        told = said
                time.sleep(LOOK_S)

    def _write(self) -> str:
        """Write the file, or say why not: a full disk ends no server."""
        try:
            write_record(self.path, self.notice)
        except InfrastructureError as error:
            return str(error)
        return f"{self.notice.url} is announced in {self.path}"

    def _withdraw(self) -> None:
        self.path.unlink(missing_ok=True)


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    """The server in a process group of its own: signals reach it through us, once."""
    try:
        return subprocess.Popen(command, process_group=0)
    except OSError as error:
        raise ConfigError([f"{command[0]}: cannot be started: {error.strerror}"]) from error


def _filled(word: str, host: str, port: str) -> str:
    return word.replace("{host}", host).replace("{port}", port)


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("", 0))
        port: int = tried.getsockname()[1]
        return port
