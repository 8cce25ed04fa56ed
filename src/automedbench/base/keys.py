"""Keys of endpoints and of the hub: from one variable or one protected file, read when needed, kept nowhere."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import unquote, urlsplit

from pydantic import Field, model_validator

from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.records import Model

MAX_FILE_BYTES = 64 * 1024
_KEY = re.compile(r"[!-~]+")


class KeySource(Model):
    """Keys of an agent's or a judge's endpoint, or a token of the hub: from a variable or from a file."""

    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = Field(
        None, description="NAME of the environment variable that holds the key; its value stands in no file"
    )
    api_key_file: str | None = Field(
        None, description="instead of api_key_env: file outside of the repository, mode 0600, one key per line"
    )

    @property
    def address(self) -> str:
        """Where the keys are shown; empty where nothing is set."""
        return ""


class EndpointSource(KeySource):
    """An endpoint and where its keys come from."""

    base_url: str | None = Field(None, description="where the endpoint is: docs/models.md")
    endpoint_file: str | None = Field(
        None,
        description="instead of base_url: file that holds URLs of own servers, one a line; read again when one fails",
    )

    @model_validator(mode="after")
    def _check_address(self) -> Self:
        if self.base_url and self.endpoint_file:
            raise ValueError("'base_url' and 'endpoint_file' exclude each other")
        if urlsplit(self.base_url or "").scheme == "file":
            raise ValueError("'base_url' is not a file: use 'endpoint_file' with the servers' URLs, one per line")
        return self

    @property
    def address(self) -> str:
        """Where requests go: the base URL, or the ``file:`` URL of ``endpoint_file``; empty where neither is set."""
        if self.endpoint_file:
            return Path(self.endpoint_file).expanduser().absolute().as_uri()
        return self.base_url or ""


def read_keys(source: KeySource, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """All keys of a source, in order, at least one.

    Raises InfrastructureError naming the variable or the file when there is none to read, and ConfigError when the
    file lies in the repository, others may read it, or a line of it is no key. No message holds a value.
    """
    if source.api_key_file:
        return _read_key_file(Path(source.api_key_file).expanduser())
    key = environment.get(source.api_key_env or "", "").strip()
    if not key:
        raise InfrastructureError(
            f"The environment variable {source.api_key_env} is not set; it must hold the key for "
            f"{shown_place(source.address)}.\n"
            "Export it where this command (or the Slurm job) runs, then run the same command again."
        )
    if not _KEY.fullmatch(key):
        raise ConfigError([f"{source.api_key_env}: the value of this environment variable is not one key in ASCII"])
    return (key,)


def shown_place(url: str | None) -> str:
    """Scheme, host, port and path of a URL for messages, without credentials and query; of ``file:`` the path."""
    parts = urlsplit(url or "")
    if parts.scheme == "file":
        return unquote(parts.path)
    if not parts.hostname:
        return "the endpoint"
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return f"{parts.scheme}://{host}{port}{parts.path}"


def read_small(path: Path) -> tuple[os.stat_result, bytes]:
    """Status and content of one open file; of more than MAX_FILE_BYTES one byte more, of what is no file nothing."""
    # Without blocking: a pipe would wait for its writer.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        status = os.fstat(stream.fileno())
        return status, stream.read(MAX_FILE_BYTES + 1) if stat.S_ISREG(status.st_mode) else b""


def _read_key_file(path: Path) -> tuple[str, ...]:
    name = f"api_key_file {path}"
    try:
        real = path.resolve(strict=True)
        status, data = read_small(real)
    except OSError as error:
        raise InfrastructureError(
            f"The {name} cannot be read: {error.strerror or error}.\n"
            "Put it where this command (or the Slurm job) runs, then run the same command again."
        ) from error
    mode, problems = status.st_mode, []
    for root in _find_repositories():
        if root == real or root in real.parents:
            problems.append(f"{name}: lies in the repository {root}; move it outside, where no commit can take it")
            break
    if not stat.S_ISREG(mode) or len(data) > MAX_FILE_BYTES:
        problems.append(f"{name}: is not a small regular file")
    elif mode & 0o077:
        problems.append(f"{name}: has mode {mode & 0o777:04o}, so that others may use it; run `chmod 600` on it")
    keys, faulty = _parse_keys(data)
    problems += [f"{name}: line {number} is not one key in ASCII" for number in faulty]
    if not keys and not problems:
        problems.append(f"{name}: contains no key; it needs one per line")
    if problems:
        raise ConfigError(problems)
    return keys


def _parse_keys(data: bytes) -> tuple[tuple[str, ...], list[int]]:
    """Keys of a file, and numbers of the lines that are none."""
    lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
    keys = tuple(line for line in lines if line and _KEY.fullmatch(line))
    return keys, [number for number, line in enumerate(lines, start=1) if line and not _KEY.fullmatch(line)]


def _find_repositories() -> list[Path]:
    """The checkout that this package runs from, if it is one, and that around the current folder."""
    package = Path(__file__).resolve().parents[3]
    here = Path.cwd().resolve()
    found = [package] if (package / "pyproject.toml").is_file() else []
    return found + [folder for folder in (here, *here.parents) if (folder / ".git").exists()][:1]
