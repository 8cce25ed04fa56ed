"""One client for every model endpoint: a request, repeated as the error policy says, or the reason why not.

Policy: docs/specification.md, 8.5. What a body means is the caller's affair.

A circuit breaker is shared by all processes of a campaign through one small file per endpoint. After ``OPEN_AFTER``
failed attempts in a row, counted over all runs, requests wait. One of them at a time probes whether the endpoint is
back; the first good answer lets all go on. Nothing here compares clocks of two machines, and a dead prober is replaced
by the next. Counting is not exact when two nodes write at once: a breaker that opens without need costs one probe.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlsplit

from automedbench.base.closing import Closing
from automedbench.base.endpoint.address import ProtocolName, api_root, credentials
from automedbench.base.endpoint.faults import MAX_ATTEMPTS, TRANSIENT, Fault, FaultyReply, pause
from automedbench.base.endpoint.keys import shown_place
from automedbench.base.endpoint.limiter import Limiter
from automedbench.base.endpoint.rate_headers import RateLimits
from automedbench.base.endpoint.servers import Servers, endpoint_file_of, look_again_s
from automedbench.base.endpoint.usage import Billed
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import known_record, write_record
from automedbench.base.masking import masked, secret_forms
from automedbench.base.plaintable import counted
from automedbench.base.records import Model, now

if TYPE_CHECKING:
    from automedbench.base.endpoint.http import EndpointHttp


OPEN_AFTER = 6
FIRST_PROBE_S, LONGEST_PROBE_S = 5.0, 300.0
POLL_S = 1.0
DEAD_AFTER_S = 700.0
"""A probe without result for longer than any request may take: its process is gone."""


class EndpointState(Model):
    """What is known of an endpoint. ``outage`` names the current outage; None while requests are sent."""

    failures: int = 0
    outage: str | None = None
    probes: int = 0
    since: datetime | None = None


class EndpointHealth:
    """What is known of an endpoint by all processes that use it: its breaker. ``folder`` is shared by all nodes.

    A folder that cannot be read or written makes the breaker blind, never the request fail.
    """

    def __init__(
        self,
        folder: Path,
        base_url: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder, self._name = folder, shown_place(base_url)
        self._path = folder / f"{_slug(base_url)}.json"
        self._sleep, self._clock = sleep, clock
        self._seen: tuple[str | None, int] = (None, 0)
        self._seen_at = 0.0
        self._probe_after_s = FIRST_PROBE_S
        self._claimed: tuple[str | None, int] | None = None

    def state(self) -> EndpointState:
        """What stands in the file; an unreadable one tells nothing."""
        return known_record(self._path, EndpointState) or EndpointState()

    def admit(self, patience_s: float) -> Admission:
        """Wait while the endpoint is down and others probe; raises EndpointDown after ``patience_s``."""
        started, waited = self._clock(), 0.0
        while (state := self.state()).outage is not None:
            if waited >= patience_s:
                raise EndpointDown(self._explain(state), waited)
            if self._may_probe(state):
                return Admission(waited, probe=True)
            self._sleep(POLL_S)
            waited = self._clock() - started
        return Admission(waited)

    def report(self, *, alive: bool) -> None:
        """Book an attempt: a good one ends an outage, a bad one may begin it or end a probe."""
        state = self.state()
        if alive:
            if state.failures:
                self._write(EndpointState())
                self._forget_claims()
        elif state.outage is None:
            failures = state.failures + 1
            outage = secrets.token_hex(4) if failures >= OPEN_AFTER else None
            self._write(EndpointState(failures=failures, outage=outage, since=state.since or now()))
        elif self._claimed == (state.outage, state.probes):
            self._write(state.model_copy(update={"probes": state.probes + 1}))

    def _may_probe(self, state: EndpointState) -> bool:
        """True for the one process that is next to try."""
        current = (state.outage, state.probes)
        if current != self._seen:
            # A newcomer may try soon: the outage may be an old one.
            is_known = self._seen[0] == state.outage
            self._probe_after_s = probe_after_s(state.probes) if is_known else FIRST_PROBE_S
            self._seen, self._seen_at = current, self._clock()
        idle = self._clock() - self._seen_at
        if idle < self._probe_after_s:
            return False
        if self._claim(current):
            return True
        if idle > self._probe_after_s + DEAD_AFTER_S:
            self._write(state.model_copy(update={"probes": state.probes + 1}))
        return False

    def _claim(self, probe: tuple[str | None, int]) -> bool:
        name = self._path.with_suffix(f".probe-{probe[0]}-{probe[1]}")
        try:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except OSError:
            return False
        self._claimed = probe
        return True

    def _forget_claims(self) -> None:
        for claim in self._path.parent.glob(f"{self._path.stem}.probe-*"):
            with contextlib.suppress(OSError):
                claim.unlink(missing_ok=True)

    def _write(self, state: EndpointState) -> None:
        with contextlib.suppress(InfrastructureError):
            write_record(self._path, state)

    def _explain(self, state: EndpointState) -> str:
        since = state.since or now()
        minutes = max(0.0, (now() - since).total_seconds()) / 60
        return (
            f"{self._name} has been down for {minutes:.0f} min, since {since:%Y-%m-%d %H:%M:%S} UTC; "
            f"{state.probes} probes failed.\nNothing is lost: run the same command again when it is back."
        )


def probe_after_s(probes: int) -> float:
    """Seconds from one probe to the next, doubled after each that failed."""
    return min(LONGEST_PROBE_S, FIRST_PROBE_S * 2.0 ** min(probes, 10))


def _slug(base_url: str) -> str:
    """A file name that tells the host and is different for every base URL."""
    host = re.sub(r"[^a-z0-9.-]+", "-", (urlsplit(base_url).hostname or "endpoint").lower())
    return f"{host}-{hashlib.sha256(shown_place(base_url).encode()).hexdigest()[:8]}"


SHOWN_BODY = 200
T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """An endpoint and how it is reached. ``key_name`` stands for the keys in messages.

    ``base_url`` may be the ``file:`` URL of a file that lists own servers; ``asker`` then chooses among them: who asks
    again with the same name begins with the same server.
    """

    base_url: str
    model: str
    keys: tuple[str, ...]
    key_name: str
    rotate: bool = False
    gateway: str | None = None
    timeout_s: float = 600.0
    protocol: ProtocolName = "chat"
    rate: RateLimits | None = None
    asker: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(frozen=True)
class Attempt:
    """One HTTP attempt of a request, for the log.

    ``turn_s`` was waited for its turn before it, ``wait_s`` is the pause after it, ``key`` an index.
    """

    kind: str
    status: int | None
    wait_s: float
    body: str
    elapsed_s: float
    key: int = 0
    turn_s: float = 0.0


@dataclass(frozen=True)
class Answered(Generic[T]):
    """A good answer; ``retry_s`` and ``spent`` are what the failed attempts before it took."""

    value: T
    elapsed_s: float
    retry_s: float
    spent: tuple[Billed, ...]


class GivenUp(Exception):
    """A request without answer. ``run_over``: the caller's own time ran out, not the provider's."""

    def __init__(
        self, fault: Fault, message: str, shown: str, spent: tuple[Billed, ...], retry_s: float, run_over: bool
    ) -> None:
        self.fault, self.shown, self.spent, self.retry_s, self.run_over = fault, shown, spent, retry_s, run_over
        super().__init__(message)


@dataclass(frozen=True)
class Admission:
    """Leave to send a request, after waiting; ``probe``: it is the one that tries whether the endpoint is back."""

    waited_s: float = 0.0
    probe: bool = False


class EndpointDown(InfrastructureError):
    """An endpoint did not come back for as long as a request may wait."""

    def __init__(self, message: str, waited_s: float) -> None:
        self.waited_s = waited_s
        super().__init__(message)


class Client(Closing):
    """Posts requests to one endpoint; a context manager that closes its connections."""

    def __init__(
        self,
        target: Target,
        *,
        on_attempt: Callable[[Attempt], None] = lambda _attempt: None,
        health: EndpointHealth | None = None,
        max_attempts: int = MAX_ATTEMPTS,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        from automedbench.base.endpoint.http import EndpointHttp

        self._target, self._on_attempt, self._health = target, on_attempt, health
        self._max_attempts, self._sleep, self._clock, self._jitter = max_attempts, sleep, clock, jitter
        self._key = 0
        self._http: EndpointHttp = EndpointHttp(target.base_url, target.gateway, clock)
        self._limiters = [
            Limiter(path, target.rate, sleep=sleep, clock=clock, jitter=jitter)
            for path in _limiter_files(target, health.folder if health else None)
        ]
        listed = endpoint_file_of(target.base_url)
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
    ) -> Answered[T]:
        """Post ``body`` to ``path`` below the API and ``read`` the answer, which raises FaultyReply for what is none.

        A stream that broke off is read too: it may be whole, or say what it has cost. An attempt takes at most
        ``timeout_s`` (what is left of a run) and the target's own time-out. Raises GivenUp.
        """
        request = _Request(self._target, timeout_s, self._max_attempts)
        while True:
            request.url = self._located(request)
            probe = self._admitted(request)
            key = self._key
            limiter = self._limiters[key]
            turn = limiter.acquire(lambda: _estimated_tokens(body))
            request.retry_s += turn.waited_s
            started = self._clock()
            outcome = self._attempt(api_root(request.url, self._target.protocol), path, body, read, request.attempt_s)
            elapsed = self._clock() - started
            if not isinstance(outcome, FaultyReply):
                self._report(alive=True)
                limiter.answered(turn, self._http.headers, getattr(outcome, "usage", None))
                self._on_attempt(Attempt("ok", 200, 0.0, "", elapsed, key, turn.waited_s))
                return Answered(outcome, elapsed, request.retry_s, request.spent)
            fault = outcome.fault
            request.spent += outcome.spent
            if not request.is_over(fault) and (probe or not self._moves_on(request.url, fault)):
                self._report(alive=fault.kind not in _OUTAGE)
            self._next_key()
            if fault.kind == "rate_limit":
                limiter.refused(turn, self._http.headers, fault, elapsed)
            again = request.may_repeat(fault, probe, elapsed, limiter)
            wait = self._pause(request, fault) if again and not probe else 0.0
            attempt = Attempt(fault.kind, fault.status, wait, self.shown(fault.body), elapsed, key, turn.waited_s)
            self._on_attempt(attempt)
            if not again:
                raise self._given_up(request, fault)
            if fault.kind != "rate_limit":  # for which the limiter waits
                self._sleep(wait)
            request.retry_s += elapsed + wait

    def shown(self, body: str) -> str:
        """The beginning of a body on one line, with every key masked."""
        return masked(" ".join(body.split()), secret_forms(self._target.keys))[:SHOWN_BODY]

    def _report(self, *, alive: bool) -> None:
        if self._health is not None:
            self._health.report(alive=alive)

    def _located(self, request: _Request) -> str:
        """Base URL for the next attempt; waits for a server that answers, where a file lists them."""
        servers, started, looks = self._servers, self._clock(), 0
        if servers is None:
            return self._target.base_url
        while not (url := self._found(servers, request)):
            waited = self._clock() - started
            if waited >= request.patience_s:
                request.waited(waited)
                raise self._lost(request, servers.explain(waited))
            self._sleep(look_again_s(looks))
            looks += 1
        if looks:
            request.waited(self._clock() - started)
        return url

    def _found(self, servers: Servers, request: _Request) -> str:
        target, key = self._target, self._target.keys[self._key]
        shown = credentials(target.protocol, key)
        try:
            return servers.find(lambda url: self._http.trouble_of(api_root(url, target.protocol), target.model, shown))
        except ConfigError as error:
            raise self._lost(request, str(error)) from None

    def _moves_on(self, url: str, fault: Fault) -> bool:
        """True when another server may answer: the loss of one is no outage of the endpoint, which is all of them."""
        if self._servers is None or fault.kind not in _OUTAGE:
            return False
        self._servers.lose(url)
        return fault.kind == "network"

    def _lost(self, request: _Request, message: str) -> GivenUp:
        return GivenUp(Fault("network", None, message), message, message, request.spent, request.retry_s, False)

    def _admitted(self, request: _Request) -> bool:
        """Wait while the endpoint is known to be down; True when this request tries whether it is back."""
        try:
            admission = self._health.admit(request.patience_s) if self._health else Admission()
        except EndpointDown as down:
            request.retry_s += down.waited_s
            raise self._lost(request, str(down)) from None
        request.waited(admission.waited_s)
        return admission.probe

    def _pause(self, request: _Request, fault: Fault) -> float:
        return pause(fault, request.failures, self._jitter()) if fault.kind in TRANSIENT else 0.0

    def _next_key(self) -> None:
        """The key that worked is kept; after a failure the next one has its turn."""
        if self._target.rotate:
            self._key = (self._key + 1) % len(self._target.keys)

    def _given_up(self, request: _Request, fault: Fault) -> GivenUp:
        shown = self.shown(fault.body)
        message = self._explain(request.url, fault, request.failures, shown)
        return GivenUp(fault, message, shown, request.spent, request.retry_s, request.is_over(fault))

    def _explain(self, url: str, fault: Fault, attempts: int, shown: str) -> str:
        from automedbench.base.endpoint.http import way

        target = self._target
        where = f"{shown_place(url)} (model {target.model}){way(target.base_url, target.gateway)}"
        where += f", listed in {self._servers.path}," if self._servers else ""
        status = f"status {fault.status}" if fault.status else "no answer"
        remedy = {
            "auth": f"Check the key in {target.key_name} and the credit of its account.",
            "bad_request": "The endpoint does not accept the request: check model, protocol, temperature, extra_body.",
            "malformed": f"What answers does not speak '{target.protocol}', or is out of order: check base_url.",
        }.get(fault.kind, "What was paid for is kept; run the same command again when the endpoint is back.")
        return f"{where} failed after {counted(attempts, 'attempt')}: {fault.kind}, {status}: {shown}\n{remedy}"

    def _attempt(
        self, root: str, path: str, body: dict[str, Any], read: Callable[[bytes], T], timeout_s: float
    ) -> T | FaultyReply:
        """One attempt, complete within ``timeout_s``: what was read, or what was wrong."""
        from automedbench.base.endpoint.http import FAILURES, CutStream, fault_of

        target = self._target
        try:
            return read(self._http.post(target.protocol, root, path, target.keys[self._key], body, timeout_s))
        except FaultyReply as failure:
            return failure
        except CutStream as cut:
            return _read_cut(cut.data, read, fault_of(cut.reason, timeout_s))
        except FAILURES as error:
            return FaultyReply(fault_of(error, timeout_s))


def _read_cut(data: bytes, read: Callable[[bytes], T], fault: Fault) -> T | FaultyReply:
    """What came of a stream before ``fault``: the whole reply, an error that it told, or what it had cost by then."""
    try:
        return read(data)
    except FaultyReply as failure:
        if failure.fault.kind == "network":
            failure.fault = fault
        return failure


def _limiter_files(target: Target, folder: Path | None) -> list[Path | None]:
    """One file for each key of an endpoint and model, named without anything of the key."""
    names = [
        hashlib.sha256(f"{target.model}\n{target.key_name}\n{number}".encode()).hexdigest()[:8]
        for number in range(len(target.keys))
    ]
    return [folder and folder / f"{_slug(target.base_url)}-{name}.rate" for name in names]


def _estimated_tokens(body: dict[str, Any]) -> int:
    """Tokens of a request by its length: characters / 4."""
    return len(json.dumps(body, default=str)) // 4


PATIENCE_S = 1800.0
"""How long one request waits in all for an endpoint that is known to be down, or that refuses all for their rate."""

_OUTAGE = frozenset({"server", "network", "malformed"})


class _Request:
    """What one request has met so far, and what it may still do."""

    def __init__(self, target: Target, timeout_s: float, max_attempts: int) -> None:
        self._target, self._timeout_s, self._max_attempts = target, timeout_s, max_attempts
        self._counts: dict[str, int] = {}
        self._refusals = 0
        self.url = ""
        self.attempt_s = min(timeout_s, target.timeout_s)
        self.patience_s = PATIENCE_S
        self.spent: tuple[Billed, ...] = ()
        self.retry_s = 0.0

    @property
    def failures(self) -> int:
        """Failed attempts that count."""
        return sum(self._counts.values()) + self._refusals

    def waited(self, seconds: float) -> None:
        """The endpoint was known to be down: what failed before is no sign of what comes."""
        if seconds > 0:
            self.retry_s += seconds
            self.patience_s -= seconds
            self._counts.clear()

    def is_over(self, fault: Fault) -> bool:
        """True when it was not the provider's time that ran out, but the run's."""
        return fault.slow and self._timeout_s < self._target.timeout_s

    def may_repeat(self, fault: Fault, probe: bool, elapsed_s: float, limiter: Limiter) -> bool:
        """Book a failed attempt; True when another one may follow."""
        if fault.kind == "rate_limit":
            self._refusals += 1
            return limiter.is_patient(PATIENCE_S)
        if self.is_over(fault):
            self._book(fault)
            return False
        if probe and fault.kind in _OUTAGE:
            self.patience_s -= elapsed_s
            return True  # the endpoint is still down; how long to wait for it is bounded by patience
        count = self._book(fault)
        if fault.kind == "content_policy":
            return count < 2
        if fault.kind == "auth" and self._target.rotate:
            return count < len(self._target.keys)
        allowed = min(TRANSIENT.get(fault.kind, 1), self._max_attempts)
        return count < allowed and sum(self._counts.values()) < self._max_attempts

    def _book(self, fault: Fault) -> int:
        self._counts[fault.kind] = self._counts.get(fault.kind, 0) + 1
        return self._counts[fault.kind]
