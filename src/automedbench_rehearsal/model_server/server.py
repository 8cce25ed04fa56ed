"""Scripted server: the chat-completions protocol on loopback, with faults on demand.

A script is the file of a scripted agent. Which turn answers a request is read from the conversation in the request
(how many assistant messages it holds), so that concurrent, repeated and resumed conversations need no state here.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TextIO

from automedbench.agent.models.scripted import ScriptedTurn, load_turns, reply_of
from automedbench.base.errors import ConfigError
from automedbench_rehearsal.model_server.faults import FaultPlan, apply_fault
from automedbench_rehearsal.model_server.http import Answer, HttpServer, completion, error_body, spoken

__all__ = ["Answer", "Exchange", "ScriptedServer", "completion", "named_turns"]

_CALL_ID = re.compile(r"call_(\d+)_\d+")


@dataclass(frozen=True)
class Exchange:
    """One request as the server saw it. ``fault`` is the name of the fault it was answered with, or empty."""

    number: int
    conversation: str
    turn: int
    asked: int
    fault: str
    status: int


class ScriptedServer:
    """Serves scripts by turn, or ``answers`` one per request (the last one for ever); a context manager.

    ``scripts`` is a script's file, its turns, or several of them by the name of the model that they play; a single one
    answers every model name. With ``keys`` a request without one of them is refused. Bodies and headers of all
    requests are kept unless ``keep`` is false. Safe to use from several threads.
    """

    def __init__(
        self,
        scripts: Path | Sequence[ScriptedTurn] | Mapping[str, Path | Sequence[ScriptedTurn]] | None = None,
        *,
        answers: Sequence[Answer] = (),
        faults: FaultPlan | None = None,
        keys: Sequence[str] = (),
        usage: tuple[int, int] | None = None,
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
        self._usage, self._keep, self._record = usage, keep, record
        self._lock = threading.Lock()
        self._asked: Counter[tuple[str, int]] = Counter()
        self.exchanges: list[Exchange] = []
        """What each chat request so far was: conversation, turn, fault."""
        self.requests: list[dict[str, Any]] = []
        """Their bodies."""
        self.headers: list[dict[str, str]] = []
        """Their headers, with names in small letters."""
        self._http = HttpServer(port, self._post, self._get)

    def __enter__(self) -> Self:
        self._http.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.stop()

    @property
    def url(self) -> str:
        """The base URL for clients, with ``/v1``."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def count(self, conversation: str | None = None, turn: int | None = None) -> int:
        """Chat requests so far, of one conversation or turn if given; conversations are named by ``exchanges``."""
        return sum(
            conversation in (None, exchange.conversation) and turn in (None, exchange.turn)
            for exchange in list(self.exchanges)
        )

    # --- answering --------------------------------------------------------------------------------------------

    def _get(self, path: str, headers: Mapping[str, str]) -> Answer:
        if not path.endswith("/models"):
            return Answer(404, error_body(f"no such path: {path}", "invalid_request_error"))
        if not self._may_ask(headers):
            return _REFUSED
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "test"} for name in self._scripts]
        return Answer(body={"object": "list", "data": models})

    def _post(self, path: str, headers: Mapping[str, str], data: bytes) -> tuple[Answer, Mapping[str, Any]]:
        """The answer to a request, and the request."""
        if not path.endswith("/chat/completions"):
            return Answer(404, error_body(f"no such path: {path}", "invalid_request_error")), {}
        try:
            request = json.loads(data)
            messages = [dict(message) for message in request["messages"]]
        except (ValueError, LookupError, TypeError):
            return Answer(400, error_body("not a chat request: no JSON with 'messages'", "invalid_request_error")), {}
        with self._lock:
            answer, exchange = self._answer(request, messages, headers)
            self.exchanges.append(exchange)
            if self._keep:
                self.requests.append(request)
                self.headers.append({name.lower(): value for name, value in headers.items()})
            if self._record is not None:
                self._record.write(json.dumps(_recorded(exchange, request, headers)) + "\n")
                self._record.flush()
        return answer, request

    def _answer(
        self, request: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], headers: Mapping[str, str]
    ) -> tuple[Answer, Exchange]:
        conversation = _conversation(request, messages, headers)
        number, turn = len(self.exchanges) + 1, _turn(messages)
        self._asked[conversation, turn] += 1
        asked = self._asked[conversation, turn]
        fault = self._faults.choose(number, conversation, turn, asked)
        if not self._may_ask(headers):
            answer, fault = _REFUSED, None
        elif self._answers:
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        else:
            answer = self._scripted(request, turn)
        if fault is not None and answer.status == 200:
            answer = apply_fault(fault, answer)
        name = fault.kind if fault else ""
        return answer, Exchange(number, conversation, turn, asked, name, answer.status)

    def _scripted(self, request: Mapping[str, Any], turn: int) -> Answer:
        name = str(request.get("model") or "")
        turns = self._scripts.get(name) if len(self._scripts) > 1 else next(iter(self._scripts.values()))
        if turns is None:
            known = ", ".join(self._scripts)
            return Answer(404, error_body(f"no model '{name}'; known: {known}", "invalid_request_error"))
        return Answer(body=spoken(reply_of(turns, turn, name), request, self._usage))

    def _may_ask(self, headers: Mapping[str, str]) -> bool:
        return not self._keys or _key(headers) in self._keys


_REFUSED = Answer(401, error_body("the key is not known here", "authentication_error", "invalid_api_key"))


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


def _turn(messages: Sequence[Mapping[str, Any]]) -> int:
    """Number of the turn that is asked for. A shortened conversation still shows it in the ids of its calls."""
    said = [message for message in messages if message.get("role") == "assistant"]
    ids = (
        (_CALL_ID.fullmatch(str(call.get("id"))), len(said) - position)
        for position, message in enumerate(said, start=1)
        for call in message.get("tool_calls") or ()
    )
    return max([len(said), *(int(match[1]) + later for match, later in ids if match)]) + 1


def _conversation(request: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], headers: Mapping[str, str]) -> str:
    """Name of a conversation: what all of its requests have in common and others do not."""
    opening = [message.get("content") for message in messages[:2] if message.get("role") != "assistant"]
    text = json.dumps([request.get("model"), _key(headers), opening])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _key(headers: Mapping[str, str]) -> str:
    value = next((value for name, value in headers.items() if name.lower() == "authorization"), "")
    return value.removeprefix("Bearer ").strip()


def _recorded(exchange: Exchange, request: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """One line of the record; of the key only a digest."""
    key = _key(headers)
    digest = hashlib.sha256(key.encode()).hexdigest()[:8] if key else None
    return {"time": time.time(), **vars(exchange), "key_digest": digest, "request": request}
