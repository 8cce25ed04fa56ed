"""Streamed answers (server-sent events), read as a whole: the JSON objects that were sent, in their order."""

from __future__ import annotations

import json
import re
from typing import Any

from automedbench.base.endpoint.completion import Fault, FaultyReply, classify_error_object, cleaned
from automedbench.base.records import Tokens

_LINE = re.compile(r"\r\n|\n|\r")
_FIELD = re.compile(rb"\s*(?:data|event|id|retry)?:")


def is_stream(data: bytes) -> bool:
    """True when a body is a stream; an endpoint may answer whole though it was asked for one, and the other way."""
    return _FIELD.match(data.removeprefix(b"\xef\xbb\xbf")) is not None


def read_events(data: bytes) -> list[dict[str, Any]]:
    """The objects of a stream; comments, end marks and a last event that was cut are left out."""
    found: list[dict[str, Any]] = []
    lines: list[str] = []
    for line in [*_LINE.split(data.decode("utf-8-sig", "replace")), ""]:
        if line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
        elif not line and lines:
            try:
                value = cleaned(json.loads("\n".join(lines)))
            except (ValueError, RecursionError):
                value = None
            if isinstance(value, dict):
                found.append(value)
            lines = []
    return found


def stream_fault(error: Any, spent: Tokens | None, tier: str = "") -> FaultyReply:
    """What is wrong with a stream that holds ``error`` (an object or text), or that ended early (None).

    ``spent``: what it had told by then that it used, ``tier``: what it was served as.
    """
    if error is None:
        fault = Fault("network", 200, "the stream ended before the reply was complete")
    else:
        fault = Fault(classify_error_object(error), 200, json.dumps({"error": error}))
    return FaultyReply(fault, spent or Tokens(), tier)
