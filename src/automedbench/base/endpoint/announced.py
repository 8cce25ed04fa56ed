"""Own servers: each announces its address in a file of its own; who asks finds one that answers, and finds it again.

A place is a folder with one file per replica, or one such file. Files of dead servers may lie there (a node that was
lost removes nothing): what does not answer is passed over. A file decides where a key is sent, so one that others can
write is refused.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

import pydantic
from pydantic import AfterValidator, Field

from automedbench.base.endpoint.keys import read_small, shown_place
from automedbench.base.errors import ConfigError
from automedbench.base.records import Model

FIRST_LOOK_S, LONGEST_LOOK_S = 1.0, 15.0
SHOWN_FILES = 3


def _plain(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise ValueError("must be http://… or https://… with a host and without credentials")
    if not (parts.port is None or parts.port > 0) or parts.query or parts.fragment:
        raise ValueError("must have a port from 1 to 65535, no query and no fragment")
    return url.rstrip("/")


class Announcement(Model):
    """``<endpoint_file>/<replica>.json``: where one server answers; ``automedbench announce`` writes and removes it."""

    schema_: Literal["automedbench/endpoint/1"] = Field("automedbench/endpoint/1", alias="schema")
    url: Annotated[str, AfterValidator(_plain)] = Field(description="base URL, as a rule ending in /v1")
    model: str | None = Field(None, description="what it serves; who asks for another model passes it over")
    job: str | None = Field(None, description="number of its Slurm job")
    started_at: datetime


@dataclass(frozen=True)
class Replica:
    """One file. Without ``url`` it is of no use; ``problem`` says what is wrong with it or with the server."""

    name: str
    url: str = ""
    problem: str = ""


def announced_in(address: str) -> Path | None:
    """The folder or file that an address names as ``file:`` URL; None where it is the endpoint's own address."""
    parts = urlsplit(address)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def read_replicas(place: Path, model: str) -> list[Replica]:
    """All files of a place in the order of their names.

    Raises ConfigError when one of them is another user's, or others may write it.
    """
    paths = sorted(place.glob("*.json")) if place.is_dir() else [place]
    return [replica for path in paths if (replica := _read(path, model)) is not None]


def _read(path: Path, model: str) -> Replica | None:
    """One file; None when it is gone."""
    try:
        status, data = read_small(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Replica(path.name, problem=f"cannot be read: {error.strerror or error}")
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in (os.geteuid(), 0) or mode & 0o022:
        raise ConfigError(
            [
                f"endpoint_file {path}: is of user {status.st_uid} with mode {mode:04o}; it says where the key is "
                "sent, so you alone may own and write it (0600 or 0644)"
            ]
        )
    try:
        found = Announcement.model_validate_json(data)
    except pydantic.ValidationError as error:
        return Replica(path.name, problem=f"is no announcement: {error.errors()[0]['msg']}")
    if found.model not in (None, model):
        return Replica(path.name, problem=f"{shown_place(found.url)} serves '{found.model}'")
    return Replica(path.name, found.url)


class Servers:
    """The server that one client asks: the same one as long as it answers, then the next.

    Raises ConfigError, also later, as ``read_replicas`` does.
    """

    def __init__(self, place: Path, model: str, asker: str) -> None:
        self.place, self._model, self._asker = place, model, asker
        self._current = self._lost = ""
        self._seen = read_replicas(place, model)

    def find(self, trouble: Callable[[str], str]) -> str:
        """URL of a server that answers; empty when there is none now. ``trouble`` says what is wrong with one.

        By rendezvous hash: an asker always begins with the same replica, all askers spread over them, and a replica
        that comes or goes moves its own share only.
        """
        if self._current:
            return self._current
        self._seen = sorted(read_replicas(self.place, self._model), key=self._rank)
        for i, replica in enumerate(self._seen):
            if not replica.url:
                continue
            if not (problem := trouble(replica.url)):
                self._current = replica.url
                break
            self._seen[i] = replace(replica, problem=problem)
        return self._current

    def lose(self, url: str) -> None:
        """A request to this server failed: look again, and at the others first."""
        if url == self._current:
            self._current, self._lost = "", url

    def explain(self, waited_s: float) -> str:
        """What was found, when none answers."""
        files = [f"{replica.name}: {replica.problem}" for replica in self._seen]
        more = f" and {len(files) - SHOWN_FILES} more" if len(files) > SHOWN_FILES else ""
        return (
            f"None of the servers announced in {self.place} has answered for {waited_s / 60:.0f} min: "
            f"{'; '.join(files[:SHOWN_FILES]) or 'there is no file'}{more}.\n"
            "Start one with `automedbench announce` (docs/serving.md), then run the same command again."
        )

    def _rank(self, replica: Replica) -> tuple[bool, str]:
        chosen = hashlib.sha256(f"{self._asker}\0{replica.name}".encode()).hexdigest()
        return replica.url == self._lost, chosen


def look_again_s(looks: int) -> float:
    """Seconds from one look for a server that answers to the next."""
    return min(LONGEST_LOOK_S, FIRST_LOOK_S * 2.0 ** min(looks, 10))
