"""Own servers whose addresses change: a file lists their URLs, one a line, and a client keeps to one that answers.

The file is read at the start and again when a request fails. URLs of dead servers may stand in it (a node that was
lost removes nothing): a server that does not answer is passed over. The file decides where a key is sent, so one that
others can write is refused.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from automedbench.base.errors import ConfigError
from automedbench.base.keys import read_small

RETRY_S = 10.0
"""From one look for a server that answers to the next."""
SHOWN_SERVERS = 3


def parse_file_url(address: str) -> Path | None:
    """The file that an address names as ``file:`` URL; None where it is the endpoint's own address."""
    parts = urlsplit(address)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def read_servers(path: Path) -> list[str]:
    """URLs in the file, in its order; blank lines and lines that begin with ``#`` are none.

    Raises ConfigError for a folder, for a line that is no URL, and when the file is another user's or others may write
    it; OSError when it cannot be read.
    """
    try:
        status, data = read_small(path)
    except IsADirectoryError:
        raise ConfigError(
            [f"endpoint_file {path}: is a folder; name a file that holds the servers' URLs, one a line"]
        ) from None
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in (os.geteuid(), 0) or mode & 0o022:
        raise ConfigError(
            [
                f"endpoint_file {path}: is of user {status.st_uid} with mode {mode:04o}; it says where the key is "
                "sent, so you alone may own and write it (0600 or 0644)"
            ]
        )
    lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
    problems = [
        f"endpoint_file {path}: line {number} {problem}"
        for number, line in enumerate(lines, start=1)
        if (problem := _find_url_problem(line))
    ]
    if problems:
        raise ConfigError(problems[:SHOWN_SERVERS])
    return [line.rstrip("/") for line in lines if _is_url(line)]


def _is_url(line: str) -> bool:
    return bool(line) and not line.startswith("#")


def _find_url_problem(line: str) -> str:
    """Problem of a line; empty when it is a URL of a server, a comment or blank."""
    if not _is_url(line):
        return ""
    try:
        parts = urlsplit(line)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        return "is no URL"
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        return "must be http://… or https://… with a host and without credentials"
    if not has_port or parts.query or parts.fragment or " " in line:
        return "must have a port from 1 to 65535, no query, no fragment and no spaces"
    return ""


class Servers:
    """The server that one client asks: the same one as long as it answers, then the next.

    Raises ConfigError, also later, as ``read_servers`` does.
    """

    def __init__(self, path: Path, asker: str) -> None:
        self.path, self._asker = path, asker
        self._current = self._lost = ""
        self._problems: list[str] = []
        self._read()

    def find(self, probe: Callable[[str], str]) -> str:
        """URL of a server that answers; empty when there is none now. ``probe`` says what is wrong with one.

        By rendezvous hash: an asker always begins with the same server, all askers spread over them, and a server
        that comes or goes moves its own share only.
        """
        if self._current:
            return self._current
        for url in sorted(self._read(), key=self._rank):
            if not (problem := probe(url)):
                self._current = url
                break
            self._problems.append(problem)
        return self._current

    def lose(self, url: str) -> None:
        """Book a failed request: the file is read again, and the other servers come first."""
        if url == self._current:
            self._current, self._lost = "", url

    def explain(self, waited_s: float) -> str:
        """Message for the case that none answers."""
        more = f" and {len(self._problems) - SHOWN_SERVERS} more" if len(self._problems) > SHOWN_SERVERS else ""
        return (
            f"None of the servers in {self.path} has answered for {waited_s / 60:.0f} min: "
            f"{'; '.join(self._problems[:SHOWN_SERVERS]) or 'it holds no URL'}{more}.\n"
            "Start one and write its URL there (docs/serving.md), then run the same command again."
        )

    def _read(self) -> list[str]:
        """URLs as they stand in the file now; none when it cannot be read."""
        self._problems = []
        try:
            return read_servers(self.path)
        except OSError as error:
            self._problems = [f"the file cannot be read ({error.strerror or error})"]
            return []

    def _rank(self, url: str) -> tuple[bool, str]:
        return url == self._lost, hashlib.sha256(f"{self._asker}\0{url}".encode()).hexdigest()
