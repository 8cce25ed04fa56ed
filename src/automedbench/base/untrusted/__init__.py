"""Readers of files that an agent made: bounded in size and depth, never an exception but InvalidSubmission."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from automedbench.base.errors import InvalidSubmission

_MAX_INTEGER_DIGITS = 300


Failure = Callable[[str, str], Exception]
"""Makes the exception for a code and a message: an agent's file is judged, one of ours is reported."""


@contextlib.contextmanager
def open_regular(path: Path, fail: Failure = InvalidSubmission, *, trusted: bool = False) -> Iterator[IO[bytes]]:
    """A regular file open to be read; unless it is ``trusted``, never following a link nor waiting for a pipe.

    Fails with ``not_found`` and ``not_a_file``.
    """
    guard = 0 if trusted else os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        stream = open(path, "rb", opener=lambda name, flags: os.open(name, flags | guard))  # noqa: SIM115
    except (FileNotFoundError, NotADirectoryError) as error:
        raise fail("not_found", "does not exist") from error
    except OSError as error:
        raise fail("not_a_file", f"is not a regular file that can be read ({error.strerror})") from error
    with stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise fail("not_a_file", "is not a regular file")
        yield stream


def read_bounded(path: Path, max_bytes: int) -> bytes | None:
    """Content of a regular file of at most ``max_bytes``; None when nothing is there.

    Raises InvalidSubmission (``not_a_file``, ``too_large``).
    """
    try:
        with open_regular(path) as stream:
            data = stream.read(max_bytes + 1)
    except InvalidSubmission as error:
        if error.code == "not_found":
            return None
        raise
    if len(data) > max_bytes:
        raise InvalidSubmission("too_large", f"is larger than {max_bytes} bytes")
    return data


def parse_json(data: bytes) -> Any:
    """The JSON value in ``data``, whose byte order mark is left out; NaN and infinities become floats.

    So the caller can refuse these one by one. Raises InvalidSubmission (``not_utf8``, ``duplicate_key``, ``too_deep``,
    ``json_parse``).
    """
    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=_unique_keys, parse_int=_bounded_int)
    except UnicodeDecodeError as error:
        raise InvalidSubmission("not_utf8", f"is not UTF-8 (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise InvalidSubmission("json_parse", f"is not JSON: {error.msg} (line {error.lineno})") from error
    except RecursionError as error:
        raise InvalidSubmission("too_deep", "is nested too deeply") from error


def shown(value: Any, length: int = 40) -> str:
    """An agent's value for a message: printable ASCII, cut to ``length``."""
    if isinstance(value, (dict, list)):
        return type(value).__name__
    return ascii(value[:length] if isinstance(value, str) else value)[:length]


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise InvalidSubmission("duplicate_key", f"has the key {shown(twice)} twice in one object")
    return value


def _bounded_int(text: str) -> int | float:
    """An integer of any length: beyond what a float holds it becomes infinite instead of costing time."""
    return int(text) if len(text) <= _MAX_INTEGER_DIGITS else float(text)
