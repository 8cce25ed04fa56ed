"""Scripted server: four protocols on loopback, with faults on demand.

A script is the file of a scripted agent. Which turn answers a request is read from the conversation in the request
(how many replies of the model it holds), so that concurrent, repeated and resumed conversations need no state here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TextIO
from urllib.parse import parse_qs, urlsplit

from automedbench.agent.models.scripted import ScriptedTurn, load_turns
from automedbench.base.errors import ConfigError
from automedbench_rehearsal.model_server.chat import Chat, completion
from automedbench_rehearsal.model_server.faults import FaultPlan, ServerFault, apply_fault
from automedbench_rehearsal.model_server.gemini import Gemini
from automedbench_rehearsal.model_server.http import Answer, HttpServer
from automedbench_rehearsal.model_server.messages import Messages
from automedbench_rehearsal.model_server.meter import TokenMeter
from automedbench_rehearsal.model_server.program import polls, program_of, side_answer, told, turn_of
from automedbench_rehearsal.model_server.responses import Responses
from automedbench_rehearsal.model_server.wire import (
    Asked,
    Call,
    Said,
    Usage,
    Wire,
    refusal_of,
    thought_of,
    to_json,
    usage_rule,
)

__all__ = ["Answer", "Exchange", "ScriptedServer", "Usage", "completion", "named_turns", "usage_rule"]

_PATHS: tuple[tuple[re.Pattern[str], Wire], ...] = (
    (re.compile(r".*/chat/completions"), Chat()),
    (re.compile(r".*/responses"), Responses()),
    (re.compile(r".*/messages(?:/count_tokens)?"), Messages()),
    (re.compile(r".*/models/[^:]+:(?:generateContent|streamGenerateContent|countTokens)"), Gemini()),
)
_COUNTS = ("/count_tokens", ":countTokens")
_NO_REQUEST = (ValueError, LookupError, TypeError, AttributeError)
"""What reading something else than a request, or telling something else than a reply as events, ends with."""


@dataclass(frozen=True)
class Exchange:
    """One request as the server saw it. ``fault`` is the name of the fault it was answered with, or empty.

    ``turn`` is 0 for a request beside the work: a title, a quota check.
    """

    number: int
    conversation: str
    turn: int
    asked: int
    fault: str
    status: int
    protocol: str = "chat"
    path: str = ""


class ScriptedServer:
    """Serves scripts by turn, or ``answers`` one per request (the last one for ever); a context manager.

    ``scripts`` is a script's file, its turns, or several of them by the name of the model that they play; a single
    one answers every model name. ``usage`` fixes the tokens of a reply (input, output) or computes them from its
    turn or the whole request; else they are characters / 4. With ``demand`` every reply carries thinking, and a
    request that does not give it back unchanged is refused. With ``keys`` a request without one of them is refused.
    Bodies and headers of all requests are kept unless ``keep`` is false. Safe to use from several threads.
    """

    def __init__(
        self,
        scripts: Path | Sequence[ScriptedTurn] | Mapping[str, Path | Sequence[ScriptedTurn]] | None = None,
        *,
        answers: Sequence[Answer] = (),
        faults: FaultPlan | None = None,
        keys: Sequence[str] = (),
        usage: tuple[int, int] | Callable[[int], Usage] | TokenMeter | None = None,
        demand: bool = False,
        port: int = 0,
        keep: bool = True,
        record: TextIO | None = None,
    ) -> None:
        if (scripts is None) == (not answers):
            raise ValueError("give scripts or answers")
        self._scripts = named_turns(scripts)
        self._answers = list(answers)
        self._faults = faults or FaultPlan()
        self._keys = frozenset(keys)
        self._usage, self._demand, self._keep, self._record = usage, demand, keep, record
        self._lock = threading.Lock()
        self._asked: Counter[tuple[str, int]] = Counter()
        self.exchanges: list[Exchange] = []
        """What each request for a reply so far was: conversation, turn, fault."""
        self.requests: list[dict[str, Any]] = []
        """Their bodies."""
        self.headers: list[dict[str, str]] = []
        """Their headers, with names in small letters."""
        self.refused_paths: list[str] = []
        """Paths that were asked for and are none of the server's."""
        self._http = HttpServer(port, self._post, self._get)

    def __enter__(self) -> Self:
        self._http.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.stop()

    @property
    def url(self) -> str:
        """The base URL for clients, with ``/v1``."""
        return f"{self.root}/v1"

    @property
    def root(self) -> str:
        """The base URL for clients that add the version themselves."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def count(self, conversation: str | None = None, turn: int | None = None) -> int:
        """Requests for a reply so far, of one conversation or turn if given; ``exchanges`` names conversations."""
        return sum(
            conversation in (None, exchange.conversation) and turn in (None, exchange.turn)
            for exchange in list(self.exchanges)
        )

    # --- answering --------------------------------------------------------------------------------------------

    def _get(self, target: str, headers: Mapping[str, str]) -> Answer:
        path, names = urlsplit(target).path, {name.lower(): value for name, value in headers.items()}
        wire: Wire = Messages() if "anthropic-version" in names else Chat()
        if "/v1beta/" in path or "x-goog-api-key" in names:
            wire = Gemini()
        if not path.endswith("/models"):
            return self._no_path(path, wire)
        if not self._may_ask(_key(names, target)):
            return _refused(wire)
        return Answer(body=wire.models(list(self._scripts)))

    def _no_path(self, path: str, wire: Wire) -> Answer:
        with self._lock:
            self.refused_paths.append(path)
        return Answer(404, wire.error(404, f"no such path: {path}"))

    def _post(self, target: str, headers: Mapping[str, str], data: bytes) -> Answer:
        """The answer to a request."""
        path, names = urlsplit(target).path, {name.lower(): value for name, value in headers.items()}
        wire = next((wire for pattern, wire in _PATHS if pattern.fullmatch(path)), None)
        if wire is None:
            return self._no_path(path, Chat())
        try:
            request = json.loads(data)
            asked = wire.read(request, path)
        except _NO_REQUEST:
            return Answer(400, wire.error(400, f"not a {wire.name} request: no JSON with the conversation"))
        key = _key(names, target)
        if path.endswith(_COUNTS):
            return Answer(body=wire.count(asked.characters // 4)) if self._may_ask(key) else _refused(wire)
        with self._lock:
            answer, exchange = self._answer(_ModelRequest(wire, request, names, asked, key, target))
            self.exchanges.append(exchange)
            if self._keep:
                self.requests.append(request)
                self.headers.append(names)
            if self._record is not None:
                self._record.write(json.dumps(_recorded(exchange, request, key)) + "\n")
                self._record.flush()
        return answer

    def _answer(self, got: _ModelRequest) -> tuple[Answer, Exchange]:
        asked, wire = got.asked, got.wire
        conversation = asked.conversation or _conversation(asked, got.key)
        turns = self._turns(asked.model)
        program = program_of(asked, turns or (), wire.name)
        number, turn = len(self.exchanges) + 1, turn_of(asked, program)
        self._asked[conversation, turn] += 1
        times = self._asked[conversation, turn]
        fault = self._faults.choose(number, conversation, turn, times)
        wrong = wire.missing(got.body, got.headers) or (self._demand and refusal_of(wire, asked))
        if not self._may_ask(got.key):
            answer, fault = _refused(wire), None
        elif self._answers:
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        elif turns is None:
            known = ", ".join(self._scripts)
            answer = Answer(404, wire.error(404, f"no model '{asked.model}'; known: {known}"))
        elif wrong:
            answer = Answer(400, wire.error(400, wrong))
        else:
            text, calls = told(turns, turn, program, wire.prefix) if turn else (side_answer(asked), [])
            if program.poll is not None:
                text, calls = "", polls(asked, program.poll, turn, wire.prefix)
            answer = Answer(body=wire.whole(self._said(turn, text, calls, got, conversation), asked))
        answer = _sent(answer, fault, got)
        name = fault.kind if fault else ""
        return answer, Exchange(number, conversation, turn, times, name, answer.status, wire.name, got.path)

    def _turns(self, model: str) -> Sequence[ScriptedTurn] | None:
        """The script that plays a model; None when none does."""
        return self._scripts.get(model) if len(self._scripts) > 1 else next(iter(self._scripts.values()), None)

    def _said(self, turn: int, text: str, calls: Sequence[Call], got: _ModelRequest, conversation: str) -> Said:
        if isinstance(self._usage, TokenMeter):
            usage = self._usage.charge(got.body)
        elif callable(self._usage):
            usage = self._usage(turn)
        elif self._usage is not None:
            usage = Usage(*self._usage)
        else:
            said = len(text) + sum(len(call.name) + len(to_json(call.arguments)) for call in calls)
            usage = Usage(got.asked.characters // 4, said // 4)
        thought = thought_of(turn) if self._demand and turn else ""
        return Said(turn, text, tuple(calls), usage, thought, conversation)

    def _may_ask(self, key: str) -> bool:
        return not self._keys or key in self._keys


@dataclass(frozen=True)
class _ModelRequest:
    """A request with what was read from it; names of headers in small letters."""

    wire: Wire
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    asked: Asked
    key: str
    target: str

    @property
    def path(self) -> str:
        """The target without its query, which may hold a key."""
        return urlsplit(self.target).path


def _sent(answer: Answer, fault: ServerFault | None, got: _ModelRequest) -> Answer:
    """``answer`` with its fault, as a stream where one was asked for; faults of streams come last."""
    if answer.status != 200:
        return answer
    of_stream = fault is not None and fault.kind.startswith("stream_")
    if fault is not None and not of_stream:
        answer = apply_fault(fault, answer, got.wire, got.asked.limit)
    if got.asked.stream and answer.status == 200:
        with contextlib.suppress(*_NO_REQUEST):  # a body that is no reply goes out as it is
            answer = replace(answer, events=got.wire.events(answer.body, got.body))
        if answer.events and isinstance(got.wire, Gemini) and "alt=sse" not in got.target:
            answer = replace(answer, events=(), body=got.wire.chunks(answer.body))
    return apply_fault(fault, answer, got.wire) if fault is not None and of_stream else answer


def _refused(wire: Wire) -> Answer:
    body = wire.error(401, "the key is not known here", "authentication_error", "invalid_api_key")
    return Answer(wire.no_key_status, body)


def named_turns(scripts: Any) -> dict[str, list[ScriptedTurn]]:
    """Turns of scripts by the name of the model that they play; raises ConfigError with the problems of all files."""
    if scripts is None:
        return {}
    if isinstance(scripts, Path):
        scripts = {scripts.stem: scripts}
    elif not isinstance(scripts, Mapping):
        scripts = {"scripted": scripts}
    problems: list[str] = []
    named: dict[str, list[ScriptedTurn]] = {}
    for name, script in scripts.items():
        try:
            named[name] = load_turns(script) if isinstance(script, Path) else list(script)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return named


def _conversation(asked: Asked, key: str) -> str:
    """Name of a conversation: what all of its requests have in common and others do not."""
    text = json.dumps([asked.model, key, asked.opening])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _key(headers: Mapping[str, str], target: str) -> str:
    """The key of a request, by any of the headers of the four protocols or in its address."""
    bearer = headers.get("authorization", "").removeprefix("Bearer ").strip()
    asked = parse_qs(urlsplit(target).query).get("key", [""])[0]
    return bearer or headers.get("x-api-key", "") or headers.get("x-goog-api-key", "") or asked


def _recorded(exchange: Exchange, request: Mapping[str, Any], key: str) -> dict[str, Any]:
    """One line of the record; of the key only a digest."""
    digest = hashlib.sha256(key.encode()).hexdigest()[:8] if key else None
    return {"time": time.time(), **vars(exchange), "key_digest": digest, "request": request}
