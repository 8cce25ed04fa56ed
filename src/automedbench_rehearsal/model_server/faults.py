"""Everything that goes wrong with real endpoints, by name, and when the test server shall do it; in any protocol."""

from __future__ import annotations

import copy
import email.utils
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator, model_validator

from automedbench.base.records import Model
from automedbench.base.yamlfile import load_yaml, suggestion, validate
from automedbench_rehearsal.model_server.http import Answer
from automedbench_rehearsal.model_server.wire import Usage, Wire

# fmt: off
HARMLESS = (
    "usage_null", "usage_missing", "usage_wrong_types", "arguments_object", "content_parts", "empty_ids",
    "repeated_ids", "gzip", "wrong_content_type", "drip", "padding",
)
"""The reply can be used as it is."""
TRANSIENT = (
    "rate_limit", "rate_limit_seconds", "rate_limit_date", "status_408", "status_409", "status_500", "status_502",
    "status_503", "status_504", "status_520", "status_529", "timeout", "body_timeout", "cut_at_once", "cut_body",
    "not_json", "empty_body", "not_object", "no_choices", "message_null", "error_in_200", "rate_limit_in_200",
    "redirect", "broken_gzip", "too_large",
)
"""The next attempt may succeed."""
FINAL = (
    "context_400", "context_413", "context_in_200", "filter_status", "filter_finish", "length_cut",
    "status_400", "status_401", "status_402", "status_403", "status_404", "status_422",
)
"""Asking the same again does not help; the client must do something else."""
SPECIAL = (
    "limit_ignored", "function_call", "hosted_tool", "rate_limit_headers", "stream_error", "stream_cut",
)
"""What only some protocols or streams have: output far above the limit, the call in its old form, the use of a tool
that the provider runs, 429 with all that the provider tells of its limits, an error or a clean end within a stream
(whole replies: status 500, a cut connection)."""
# fmt: on


def _known(kind: str) -> str:
    known = [*HARMLESS, *TRANSIENT, *FINAL, *SPECIAL]
    if kind not in known:
        raise ValueError(f"unknown fault{suggestion(kind, known) or '; known: ' + ', '.join(known)}")
    return kind


Kind = Annotated[str, AfterValidator(_known)]
_USUAL = ("rate_limit_seconds", "status_503", "cut_body", "not_json", "no_choices")
TOO_LARGE = 65 * 1024 * 1024
LONG_S = 3600.0
ENDLESS = 100_000
"""Tokens of a reply without limit."""


class ServerFault(Model):
    """One fault: its name, or ``{kind: …, seconds: …}``."""

    kind: Kind
    seconds: float | None = Field(
        None, ge=0, description="Retry-After (default 1), length of the silence (3600) or of the slow body (5)"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value


class FaultMix(Model):
    """A seeded share of all answers, the same ones for any order of the requests."""

    share: float = Field(ge=0, le=1)
    kinds: dict[Kind, float] = Field(
        default_factory=lambda: dict.fromkeys(_USUAL, 1.0),
        min_length=1,
        description="fault → weight",
    )
    seconds: float | None = Field(None, ge=0, description="of all these faults")
    in_a_row: int = Field(3, ge=1, description="faulty answers at most to one turn of a conversation")

    @field_validator("kinds")
    @classmethod
    def _positive(cls, kinds: dict[Kind, float]) -> dict[Kind, float]:
        if any(weight < 0 for weight in kinds.values()) or not any(kinds.values()):
            raise ValueError("weights are 0 or more, and one is above 0")
        return kinds


class FaultPlan(Model):
    """When the server misbehaves. ``requests`` goes before ``turns``, ``turns`` before ``mix``."""

    seed: int = 0
    requests: dict[int, ServerFault] = Field(default_factory=dict, description="n-th request of the server (from 1)")
    turns: dict[int, list[ServerFault]] = Field(
        default_factory=dict, description="n-th turn of every conversation (from 1): its first answers, then a good one"
    )
    mix: FaultMix | None = None

    @field_validator("turns", mode="before")
    @classmethod
    def _listed(cls, turns: Any) -> Any:
        """One fault alone is a list of one."""
        if not isinstance(turns, Mapping):
            return turns
        return {turn: faults if isinstance(faults, list) else [faults] for turn, faults in turns.items()}

    def choose(self, number: int, conversation: str, turn: int, asked: int) -> ServerFault | None:
        """Fault of the ``number``-th request, the ``asked``-th for this turn of its conversation (both from 1)."""
        if number in self.requests:
            return self.requests[number]
        faults = self.turns.get(turn, [])
        if asked <= len(faults):
            return faults[asked - 1]
        return self._drawn(f"{conversation}:{turn}", asked)

    def _drawn(self, place: str, asked: int) -> ServerFault | None:
        mix = self.mix
        if mix is None or asked > mix.in_a_row or _chance(f"{self.seed}:{place}:{asked}") >= mix.share:
            return None
        point = _chance(f"{self.seed}:kind:{place}:{asked}") * sum(mix.kinds.values())
        for kind, weight in mix.kinds.items():
            point -= weight
            if point < 0:
                return ServerFault(kind=kind, seconds=mix.seconds)
        return None


def load_faults(path: Path) -> FaultPlan:
    """Read a faults file; raises ConfigError with every problem, one line each."""
    return validate(load_yaml(path), FaultPlan, str(path))


def apply_fault(fault: ServerFault, answer: Answer, wire: Wire, limit: int | None = None) -> Answer:
    """``answer`` as a broken server would send it; what the fault does not touch stays.

    ``limit`` is the number of tokens that the request allowed.
    """
    kind = fault.kind
    if kind == "limit_ignored":
        body = copy.deepcopy(answer.body)
        body[wire.usage_key] = wire.counted(Usage(10, 4 * limit if limit else ENDLESS))
        return replace(answer, body=body)
    if kind in _SHAPES:
        body = copy.deepcopy(answer.body)
        _SHAPES[kind](wire, body)
        return replace(answer, body=body)
    if kind in _REFUSALS:
        status, message, name, code = _REFUSALS[kind]
        return Answer(status, wire.error(status, message, name, code))
    if kind in _ERRORS:
        return replace(answer, body=wire.error(*_ERRORS[kind]))
    if kind in _BODIES:
        return replace(answer, body=_BODIES[kind], headers=_HTML if kind == "not_json" else {})
    if kind == "rate_limit_headers":
        seconds = 1.0 if fault.seconds is None else fault.seconds
        return Answer(429, wire.limited(seconds), wire.limits(seconds))
    if kind.startswith("rate_limit"):
        return Answer(429, wire.error(429, "Rate limit reached", "rate_limit_error"), _retry_after(fault))
    if kind.startswith("status_"):
        status = int(kind.removeprefix("status_"))
        return Answer(status, wire.error(status, "The server is unwell", "test_fault"))
    if kind.startswith("stream_"):
        return _stream_broken(kind, answer, wire)
    return _sent_badly(fault, answer)


def _stream_broken(kind: str, answer: Answer, wire: Wire) -> Answer:
    """The stream ends in its middle; a whole reply fails as it would have without one."""
    half = answer.events[: len(answer.events) // 2]
    if kind == "stream_cut":
        return replace(answer, events=half) if half else replace(answer, cut="body")
    if half:
        return replace(answer, events=[*half, wire.failure(answer.body, len(half))])
    return Answer(500, wire.error(500, "The server had an error", "server_error"))


def _sent_badly(fault: ServerFault, answer: Answer) -> Answer:
    seconds = fault.seconds
    changes: dict[str, dict[str, Any]] = {
        "timeout": {"delay_s": LONG_S if seconds is None else seconds},
        "body_timeout": {"pause_s": LONG_S if seconds is None else seconds},
        "drip": {"drip_s": 5.0 if seconds is None else seconds},
        "cut_at_once": {"cut": "at_once"},
        "cut_body": {"cut": "body"},
        "gzip": {"gzip": "whole"},
        "broken_gzip": {"gzip": "broken"},
        "wrong_content_type": {"headers": {"Content-Type": "text/plain"}},
        "padding": {"padding": 1024 * 1024},
        "too_large": {"padding": TOO_LARGE},
        "redirect": {"status": 302, "body": b"", "headers": {"Location": "/maintenance.html"}},
    }
    return replace(answer, **changes[fault.kind])


def _retry_after(fault: ServerFault) -> dict[str, str]:
    seconds = 1.0 if fault.seconds is None else fault.seconds
    if fault.kind == "rate_limit_seconds":
        return {"Retry-After": f"{seconds:g}"}
    if fault.kind == "rate_limit_date":
        return {"Retry-After": email.utils.formatdate(time.time() + seconds, usegmt=True)}
    return {}


def _chance(text: str) -> float:
    """A number in [0, 1) that depends on ``text`` only."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") / 2**56


# --- faults of the body ----------------------------------------------------------------------------------------

_HTML = {"Content-Type": "text/html"}
_BODIES: dict[str, Any] = {
    "not_json": b"<!doctype html><title>Busy</title><p>We are busy, please come back later.",
    "empty_body": b"",
    "not_object": ["not", "an", "object"],
}
_ERRORS: dict[str, tuple[int, str, str]] = {
    "error_in_200": (529, "The engine is overloaded", "overloaded_error"),
    "rate_limit_in_200": (429, "slow down", "rate_limit_error"),
    "context_in_200": (400, "maximum context length exceeded", "invalid_request_error"),
}
_REFUSALS: dict[str, tuple[int, str, str, str | None]] = {
    "context_400": (
        400,
        "This model's maximum context length is 8192 tokens",
        "invalid_request_error",
        "context_length_exceeded",
    ),
    "context_413": (413, "prompt is too long: 250000 tokens", "request_too_large", None),
    "filter_status": (400, "Blocked by the content_filter", "invalid_request_error", "content_filter"),
}


def _message_null(wire: Wire, body: Any) -> None:
    if wire.name == "chat":
        body["choices"][0].update(message=None)
    else:
        body[wire.items_key] = None


def _no_choices(wire: Wire, body: Any) -> None:
    body.pop(wire.usage_key, None)
    body[wire.items_key] = []


def _usage_wrong_types(wire: Wire, body: Any) -> None:
    wrong: tuple[Any, ...] = ("many", None, [1])
    body[wire.usage_key] = dict(zip(wire.usage_totals, wrong, strict=True))


def _empty_ids(wire: Wire, body: Any) -> None:
    for call in wire.calls(body):
        call[wire.id_key] = ""


def _repeated_ids(wire: Wire, body: Any) -> None:
    """One id for all calls; it still shows the turn, which the server must find in shortened conversations."""
    calls = wire.calls(body)
    for call in calls:
        call[wire.id_key] = f"{calls[0][wire.id_key].rpartition('_')[0]}_0"


_SHAPES: dict[str, Callable[[Wire, Any], object]] = {
    "message_null": _message_null,
    "no_choices": _no_choices,
    "usage_null": lambda wire, body: body.update({wire.usage_key: None}),
    "usage_missing": lambda wire, body: body.pop(wire.usage_key, None),
    "usage_wrong_types": _usage_wrong_types,
    "arguments_object": lambda wire, body: wire.arguments_object(body),
    "content_parts": lambda wire, body: wire.content_parts(body),
    "empty_ids": _empty_ids,
    "repeated_ids": _repeated_ids,
    "filter_finish": lambda wire, body: wire.filtered(body),
    "length_cut": lambda wire, body: wire.cut(body),
    "function_call": lambda wire, body: wire.legacy(body),
    "hosted_tool": lambda wire, body: wire.hosted(body),
}
