"""What all protocols of programs have in common: a request, read with limits, and why one is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from automedbench.agent.models.model import ChatMessage, Reply
from automedbench.base.endpoint.completion import clean_text

MAX_MESSAGES = 5000
MAX_DEPTH = 64


class Refused(Exception):
    """A request that gets an error object instead of a reply: status, type and code as OpenAI names them.

    ``rule``: that of a finding, where the request is one.
    """

    def __init__(self, status: int, kind: str, code: str | None, message: str, rule: str | None = None) -> None:
        self.status, self.kind, self.code, self.rule = status, kind, code, rule
        super().__init__(message)

    @property
    def body(self) -> dict[str, Any]:
        """The error object."""
        return {"error": {"message": str(self), "type": self.kind, "param": None, "code": self.code}}


@dataclass(frozen=True)
class ProgramRequest:
    """A request of the program, checked: its own fields, and how it wants the answer."""

    fields: Mapping[str, Any]
    messages: tuple[Mapping[str, Any], ...]
    stream: bool
    stream_usage: bool
    max_tokens: int | None
    chat: tuple[ChatMessage, ...]
    """The messages as the log keeps them: parts that are no text are named, not kept."""


Answer = Callable[[ProgramRequest], Reply]


def parse_body(data: bytes) -> dict[str, Any]:
    """The JSON object in a body; raises Refused."""
    try:
        body = json.loads(data, parse_constant=_refuse_constant)
        value = _clean(body, MAX_DEPTH)
    except (ValueError, RecursionError) as error:
        raise invalid(f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise invalid("the body must be a JSON object")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _clean(value: Any, depth: int) -> Any:
    """The value without lone surrogates; raises ValueError beyond the depth."""
    if depth < 0:
        raise ValueError(f"more than {MAX_DEPTH} levels")
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key): _clean(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [_clean(inner, depth - 1) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def invalid(message: str) -> Refused:
    """A request that is none."""
    return Refused(400, "invalid_request_error", None, message)


def outside(rule: str, message: str) -> Refused:
    """A request that would make the provider go out; a finding."""
    return Refused(400, "invalid_request_error", None, message, rule)
