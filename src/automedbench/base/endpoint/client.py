"""One client for every model endpoint: a request, repeated as the error policy says, or the reason why not.

Policy: docs/specification.md, 8.5. What a body means is the caller's affair. The rate of requests, and the wait for an
endpoint that is down, are the pacer's.
"""

from __future__ import annotations

import json
import random
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from automedbench.base.closing import Closing
from automedbench.base.endpoint.address import ProtocolName, api_root, credentials
from automedbench.base.endpoint.faults import MAX_ATTEMPTS, SLOW, TRANSIENT, Fault, FaultyReply, pause
from automedbench.base.endpoint.pacer import PATIENCE_S, Pacer, Turn
from automedbench.base.endpoint.rate_headers import RateLimits
from automedbench.base.endpoint.servers import RETRY_S, Servers, parse_file_url
from automedbench.base.endpoint.usage import Billed
from automedbench.base.errors import ConfigError
from automedbench.base.files import sha256_bytes
from automedbench.base.keys import shown_place
from automedbench.base.masking import masked, secret_forms
from automedbench.base.plaintable import counted
from automedbench.base.records import Tokens, now

SHOWN_BODY = 200
SHORT_WAIT_S = 0.2
"""A shorter wait is charged like its request, and no container is stopped for it: that takes 6 to 50 ms."""
_OUTAGE = frozenset({"server", "network", "malformed"})
T = TypeVar("T")


@dataclass(frozen=True)
class EndpointTarget:
    """An endpoint and how it is reached. ``key_name`` stands for the keys in messages.

    ``base_url`` may be the ``file:`` URL of a file that lists own servers; ``asker`` then chooses among them: who asks
    again with the same name begins with the same server.
    """

    base_url: str
    model: str
    keys: tuple[str, ...]
    key_name: str
    rotate: bool = False
    timeout_s: float = 600.0
    protocol: ProtocolName = "chat"
    rate: RateLimits | None = None
    asker: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(frozen=True)
class Attempt:
    """One HTTP attempt of a request, for the log.

    ``turn_s`` was waited for its turn before it, ``wait_s`` is the pause after it, ``key`` an index. ``spent`` is what
    it has reported; ``doubtful``: it may have cost more, for it broke off.
    """

    kind: str
    status: int | None
    wait_s: float
    body: str
    elapsed_s: float
    key: int = 0
    turn_s: float = 0.0
    spent: tuple[Billed, ...] = ()
    doubtful: bool = False


@dataclass(frozen=True)
class EndpointAnswer(Generic[T]):
    """A good answer; ``retry_s`` and ``spent`` are what the failed attempts before it took."""

    value: T
    elapsed_s: float
    retry_s: float
    spent: tuple[Billed, ...]


class RequestGivenUp(Exception):
    """A request without answer. ``run_over``: the caller's own time ran out, not the provider's."""

    def __init__(
        self, fault: Fault, message: str, shown: str, spent: tuple[Billed, ...], retry_s: float, run_over: bool
    ) -> None:
        self.fault, self.shown, self.spent, self.retry_s, self.run_over = fault, shown, spent, retry_s, run_over
        super().__init__(message)


class Client(Closing):
    """Posts requests to one endpoint; a context manager that closes its connections.

    ``on_send`` is called before each attempt, and ``on_attempt`` after it; what ``on_send`` raises ends the request.

    ``shared`` is the folder of the files by which all processes of a campaign keep one pace.
    """

    def __init__(
        self,
        target: EndpointTarget,
        *,
        on_send: Callable[[], None] = lambda: None,
        on_attempt: Callable[[Attempt], None] = lambda _attempt: None,
        shared: Path | None = None,
        max_attempts: int = MAX_ATTEMPTS,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        from automedbench.base.endpoint.http import EndpointHttp

        self._target, self._on_send, self._on_attempt = target, on_send, on_attempt
        self._max_attempts, self._sleep, self._clock, self._jitter = max_attempts, sleep, clock, jitter
        self._key = 0
        self._http = EndpointHttp(target.base_url, clock)
        self._pacers = [
            Pacer(path, target.rate, sleep=sleep, clock=clock, jitter=jitter)
            for path in list_pace_files(target, shared)
        ]
        listed = parse_file_url(target.base_url)
        self._servers = Servers(listed, target.asker) if listed else None

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(
        self,
        body: dict[str, Any],
        read: Callable[[bytes], T],
        timeout_s: float = float("inf"),
        path: str = "/chat/completions",
        *,
        attempts: int = MAX_ATTEMPTS,
        patience_s: float = PATIENCE_S,
    ) -> EndpointAnswer[T]:
        """Post ``body`` to ``path`` below the API and ``read`` the answer, which raises FaultyReply for what is none.

        A stream that broke off is read too: it may be whole, or say what it has cost. An attempt takes at most
        ``timeout_s`` (what is left of a run) and the target's own time-out; of ``attempts`` in all, with waits of
        ``patience_s`` for a slot or a server. Raises RequestGivenUp.
        """
        request = _RequestState(self._target, timeout_s, min(attempts, self._max_attempts), patience_s)
        if self._servers is None:  # listed servers may still have to start
            request.patience_s = self._pacers[0].limit_patience(patience_s)
        while True:
            request.url = self._choose_server(request)
            self._wait_while_down(request)
            key = self._key
            pacer = self._pacers[key]
            turn = pacer.acquire(lambda: len(json.dumps(body, default=str)) // 4)
            request.book_pause(turn.waited_s)
            self._on_send()
            started = self._clock()
            outcome = self._attempt(api_root(request.url, self._target.protocol), path, body, read, request.attempt_s)
            elapsed = self._clock() - started
            if not isinstance(outcome, FaultyReply):
                usage = getattr(outcome, "usage", None)
                self._book_answer(turn, pacer, usage)
                spent = (Billed(usage, getattr(outcome, "service_tier", "")),) if usage else ()
                self._on_attempt(Attempt("ok", 200, 0.0, "", elapsed, key, turn.waited_s, spent))
                return EndpointAnswer(outcome, elapsed, request.retry_s, request.spent)
            fault = outcome.fault
            request.spent += outcome.spent
            is_down = self._book_fault(request, fault, turn, pacer, elapsed)
            if self._target.rotate:  # the key that worked is kept
                self._key = (key + 1) % len(self._target.keys)
            again = request.may_repeat(fault, is_down, elapsed, pacer)
            is_paused = again and not is_down and fault.kind in TRANSIENT
            wait = pause(fault, request.failures, self._jitter()) if is_paused else 0.0
            attempt = Attempt(fault.kind, fault.status, wait, self.excerpt(fault.body), elapsed, key, turn.waited_s)
            self._on_attempt(replace(attempt, spent=outcome.spent, doubtful=fault.is_doubtful))
            request.retry_s += 0.0 if request.is_over(fault) else elapsed
            if not again:
                raise self._make_error(request, fault)
            if fault.kind != "rate_limit":  # for which the pacer waits
                self._sleep(wait)
            request.book_pause(wait)

    def excerpt(self, body: str) -> str:
        """The beginning of a body on one line, with every key masked."""
        return masked(" ".join(body.split()), secret_forms(self._target.keys))[:SHOWN_BODY]

    def _book_answer(self, turn: Turn, pacer: Pacer, usage: Tokens | None = None) -> None:
        """Tell the pacers of an answer; that of the first key knows whether the endpoint is down."""
        pacer.book_answer(turn, self._http.headers, usage)
        if pacer is not self._pacers[0]:
            self._pacers[0].book_recovery()

    def _book_fault(self, request: _RequestState, fault: Fault, turn: Turn, pacer: Pacer, elapsed_s: float) -> bool:
        """Tell the pacers of a failed attempt; True when the endpoint is down for all."""
        if fault.kind == "rate_limit":
            pacer.book_refusal(turn, self._http.headers, fault, elapsed_s)
            self._pacers[0].book_recovery()
        elif fault.kind not in _OUTAGE:
            self._book_answer(turn, pacer)
        elif not request.is_over(fault) and not self._fails_over(request.url, fault):
            return self._pacers[0].book_failure()
        return False

    def _choose_server(self, request: _RequestState) -> str:
        """Base URL for the next attempt; waits for a server that answers, where a file lists them."""
        servers, began, waited_s = self._servers, self._clock(), 0.0
        if servers is None:
            return self._target.base_url
        while not (url := self._find_server(servers, request)) and waited_s < request.patience_s:
            self._sleep(RETRY_S)
            waited_s = self._clock() - began
        request.book_wait(waited_s)
        if not url:
            raise self._no_server(request, servers.explain(waited_s))
        return url

    def _find_server(self, servers: Servers, request: _RequestState) -> str:
        target = self._target
        headers = credentials(target.protocol, target.keys[self._key])
        try:
            return servers.find(
                lambda url: self._http.find_problem(api_root(url, target.protocol), target.model, headers)
            )
        except ConfigError as error:
            raise self._no_server(request, str(error)) from None

    def _fails_over(self, url: str, fault: Fault) -> bool:
        """True when another server may answer: the loss of one is no outage of the endpoint, which is all of them."""
        if self._servers is None:
            return False
        self._servers.lose(url)
        return fault.kind == "network"

    def _no_server(self, request: _RequestState, message: str) -> RequestGivenUp:
        return RequestGivenUp(Fault("network", None, message), message, message, request.spent, request.retry_s, False)

    def _wait_while_down(self, request: _RequestState) -> None:
        """Wait while the endpoint is down for all, as long as the request is patient."""
        pacer = self._pacers[0]
        request.book_wait(pacer.wait_while_down(request.patience_s))
        if request.patience_s <= 0 and (outage := pacer.outage) is not None:
            since, failures = outage
            minutes = max(0.0, (now() - since).total_seconds()) / 60
            raise self._no_server(
                request,
                f"{shown_place(self._target.base_url)} has been down for {minutes:.0f} min, since "
                f"{since:%Y-%m-%d %H:%M:%S} UTC; {counted(failures, 'attempt')} failed"
                f"{'' if pacer.has_replied else ', and it has never replied: check base_url, model and key'}.\n"
                "Nothing is lost: run the same command again when it is back.",
            )

    def _make_error(self, request: _RequestState, fault: Fault) -> RequestGivenUp:
        from automedbench.base.endpoint.http import describe_proxy

        target, shown = self._target, self.excerpt(fault.body)
        where = f"{shown_place(request.url)} (model {target.model}){describe_proxy(target.base_url)}"
        where += f", listed in {self._servers.path}," if self._servers else ""
        status = f"status {fault.status}" if fault.status else "no answer"
        remedy = {
            "auth": f"Check the key in {target.key_name} and the credit of its account.",
            "bad_request": "The endpoint does not accept the request: check model, protocol, temperature, extra_body.",
            "malformed": f"What answers does not speak '{target.protocol}', or is out of order: check base_url.",
        }.get(fault.kind, "What was paid for is kept; run the same command again when the endpoint is back.")
        attempts = counted(request.failures, "attempt")
        message = f"{where} failed after {attempts}: {fault.kind}, {status}: {shown}\n{remedy}"
        return RequestGivenUp(fault, message, shown, request.spent, request.retry_s, request.is_over(fault))

    def _attempt(
        self, root: str, path: str, body: dict[str, Any], read: Callable[[bytes], T], timeout_s: float
    ) -> T | FaultyReply:
        """The outcome of one attempt, complete within ``timeout_s``: what was read, or the fault."""
        from automedbench.base.endpoint.http import FAILURES, CutStream, classify_failure

        target = self._target
        try:
            return read(self._http.post(target.protocol, root, path, target.keys[self._key], body, timeout_s))
        except FaultyReply as failure:
            return failure
        except CutStream as cut:
            return _read_cut(cut.data, read, classify_failure(cut.reason, timeout_s))
        except FAILURES as error:
            return FaultyReply(classify_failure(error, timeout_s))


def _read_cut(data: bytes, read: Callable[[bytes], T], fault: Fault) -> T | FaultyReply:
    """The content of a stream before ``fault``: the whole reply, an error in it, or its cost by then."""
    try:
        return read(data)
    except FaultyReply as failure:
        if failure.fault.kind == "network":
            failure.fault = fault
        return failure


def list_pace_files(target: EndpointTarget, folder: Path | None) -> list[Path | None]:
    """One file for each key of an endpoint and model, named by the host and without anything of the key."""
    host = re.sub(r"[^a-z0-9.-]+", "-", (urlsplit(target.base_url).hostname or "endpoint").lower())
    place = _digest(shown_place(target.base_url))
    names = [_digest(f"{target.model}\n{target.key_name}\n{number}") for number in range(len(target.keys))]
    return [folder and folder / f"{host}-{place}-{name}.pace" for name in names]


def _digest(text: str) -> str:
    return sha256_bytes(text.encode())[:8]


class _RequestState:
    """State of one request: failed attempts, waiting and cost so far, and what it may still do."""

    def __init__(self, target: EndpointTarget, timeout_s: float, max_attempts: int, patience_s: float) -> None:
        self._target, self._timeout_s, self._max_attempts = target, timeout_s, max_attempts
        self._counts = Counter[str]()
        self.url = ""
        self.attempt_s = min(timeout_s, target.timeout_s)
        self.patience_s = self._patience_s = patience_s
        self.spent: tuple[Billed, ...] = ()
        self.retry_s = 0.0

    @property
    def failures(self) -> int:
        """Failed attempts that count."""
        return self._counts.total()

    def book_wait(self, seconds: float) -> None:
        """The endpoint was known to be down: what failed before is no sign of what comes."""
        if seconds > 0:
            self.retry_s += seconds
            self.patience_s -= seconds
            self._counts.clear()

    def book_pause(self, seconds: float) -> None:
        """Take a wait off the time that is charged."""
        self.retry_s += seconds if seconds >= SHORT_WAIT_S else 0.0

    def is_over(self, fault: Fault) -> bool:
        """True when it was not the provider's time that ran out, but the run's."""
        return fault.slow and self._timeout_s < self._target.timeout_s

    def may_repeat(self, fault: Fault, is_down: bool, elapsed_s: float, pacer: Pacer) -> bool:
        """Book a failed attempt; True when another one may follow."""
        if is_down:
            self.patience_s -= elapsed_s
            return True  # how long to wait for the endpoint is bounded by patience
        self._counts[fault.kind] += 1
        count = self._counts[fault.kind]
        if self.is_over(fault):
            return False
        if fault.kind == "rate_limit":
            return pacer.is_patient(self._patience_s)
        if fault.kind == "content_policy":
            return count < 2
        if fault.kind == "auth" and self._target.rotate:
            return count < len(self._target.keys)
        allowed = min(TRANSIENT.get(fault.kind, 1), self._max_attempts) // (SLOW if fault.slow else 1)
        return count < allowed and self._counts.total() - self._counts["rate_limit"] < self._max_attempts
