"""A circuit breaker that all processes of a campaign share through one small file per endpoint.

After ``OPEN_AFTER`` failed attempts in a row, counted over all runs, requests wait. One of them at a time probes
whether the endpoint is back; the first good answer lets all go on. Nothing here compares clocks of two machines, and
a dead prober is replaced by the next. Counting is not exact when two nodes write at once: a breaker that
opens without need costs one probe.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import pydantic

from automedbench.base.endpoint.client import Admission, EndpointDown
from automedbench.base.endpoint.keys import shown_place
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import write_record
from automedbench.base.records import Model, now

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
    """The breaker of one endpoint; see ``client.Health``. ``folder`` is shared by all nodes.

    A folder that cannot be read or written makes the breaker blind, never the request fail.
    """

    def __init__(
        self,
        folder: Path,
        base_url: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        dead_after_s: float = DEAD_AFTER_S,
    ) -> None:
        self._name = shown_place(base_url)
        self._path = folder / f"{_slug(base_url)}.json"
        self._sleep, self._clock, self._dead_after_s = sleep, clock, dead_after_s
        self._seen: tuple[str | None, int] = (None, 0)
        self._seen_at = 0.0
        self._probe_after_s = FIRST_PROBE_S
        self._claimed: tuple[str | None, int] | None = None

    def state(self) -> EndpointState:
        """What stands in the file; an unreadable one tells nothing."""
        try:
            return EndpointState.model_validate_json(self._path.read_bytes())
        except (OSError, pydantic.ValidationError):
            return EndpointState()

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
        if idle > self._probe_after_s + self._dead_after_s:
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
