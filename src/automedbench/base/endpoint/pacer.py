"""The pace at which all drivers of a campaign ask an endpoint: when the next request and the next token may go.

Virtual scheduling (the generic cell rate algorithm): drivers on all nodes share one small locked file per endpoint,
model and key, which counts what was taken and what has come due. A request takes the next place, one write, and sleeps
until that is due. Rate limits are those that are configured or reported; without either, refusals (429) find them: they
make all slower, and waiting drivers make it faster again, little by little. Until something
limits, only the first answer is written.

*One driver's trouble is its own.* A driver that is refused while others are answered pauses alone; all slow down when a
second one is refused too. An endpoint is *down* after ``DOWN_AFTER`` failures in a row without an answer to any driver:
then each driver asks again after a wait of its own, at last every five minutes, and the first answer lets all go on.
One that has never replied may be misconfigured, and a request gives it up after ``NEW_PATIENCE_S``.

*Clocks.* Moments in the file are seconds since it was begun, on a clock of its own; no clocks of machines are compared.
A process counts the file's clock on by its own monotonic one from what it has read, and jumps ahead when the file is
ahead: it may be behind the others, and so too late, but never before them.

*Faults.* What cannot be read or written makes a driver go by what it knows itself. The lock is a file made by O_EXCL,
which is written and then renamed to the file itself; one that stands still for ``LOCK_DEAD_S`` is a dead process's and
is removed. Should two processes hold it at once, a place is given twice: one refusal more.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pydantic
from pydantic import ConfigDict, Field

from automedbench.base.endpoint.faults import Fault, pause
from automedbench.base.endpoint.rate_headers import MINUTE_S, RateLimits, read_rate_limits
from automedbench.base.records import Model, Tokens, now

LOOK_S, LOCK_DEAD_S = 5.0, 5.0
"""A waiting driver reads the file so often."""
BURST_S = 1.0
"""Of unused time so much may be made up for."""
FIRST_GUESS, GUESS_CALM_S = RateLimits(requests_per_minute=60.0), 75.0
"""Limit after the first refusals of a provider that reports none; it grows as after so much calm, 15 % per second."""
GROWTH, CALM_S, LONGEST_STEP_S, SLOWER = 0.01, 20.0, 5.0, 0.9
"""Growth of the speed per second, twice that after ``CALM_S`` without refusal, and ever more; so much of the time
between two writes counts; what a refusal leaves of the speed."""
SLOWEST, LONGEST_HOLD_S = 1 / MINUTE_S, 15.0
"""Requests per second that are always tried; how long all wait where no one is answered and no wait is asked for."""
DOWN_AFTER, FIRST_RETRY_S, LONGEST_RETRY_S = 6, 5.0, 300.0
PATIENCE_S, NEW_PATIENCE_S = 1800.0, 240.0
"""Longest wait of one request in all for an endpoint that is known to be down, or that refuses all for their rate; for
one that is down and has never replied. A run waits for two requests there: its own and a plain one."""
OTHERS_ANSWERED = 20
"""Answers to others after which a refusal was its driver's own trouble."""

Place = tuple[float, float]
"""Requests and tokens that were taken before; what is not limited is not counted."""


class Pace(Model):
    """The file. ``speed`` is a share of the limits, ``round`` counts slowdowns, ``answers`` those since a refusal."""

    model_config = ConfigDict(frozen=False)
    id: str = Field(default_factory=lambda: secrets.token_hex(4))
    clock: float = 0.0
    until: float = 0.0
    limits: RateLimits = RateLimits()
    is_guess: bool = False
    speed: float = Field(1.0, gt=0)
    calm_s: float = 0.0
    due: Place = (0.0, 0.0)
    taken: Place = (0.0, 0.0)
    round: int = 0
    answers: int = 0
    refused: str = ""
    failures: int = 0
    down_since: datetime | None = None
    replied: bool = False

    def advance(self, moment: float, limits: RateLimits) -> None:
        """Let places come due up to ``moment``; while drivers wait, the speed grows."""
        seconds = max(0.0, moment - max(self.clock, self.until))
        self.clock = max(self.clock, moment)
        are_waiting = any(taken > due for taken, due in zip(self.taken, self.due, strict=True))
        requests, tokens = self._per_s(limits)
        self.due = (self.due[0] + requests * seconds, self.due[1] + tokens * seconds)
        if are_waiting:
            step = min(seconds, LONGEST_STEP_S)
            self.calm_s += step
            self.speed *= 1 + GROWTH * step * (1 + (self.calm_s / CALM_S) ** 2)
            self.speed = self.speed if self.is_guess else min(self.speed, 1.0)

    def take(self, tokens: float, limits: RateLimits) -> Place:
        """Take the next place."""
        requests_s, tokens_s = self._per_s(limits)
        requests, before = place = self.taken
        self.due = (min(self.due[0], requests + requests_s * BURST_S), min(self.due[1], before + tokens_s * BURST_S))
        self.taken = (requests + (1 if requests_s else 0), before + (tokens if tokens_s else 0))
        return place

    def wait_s(self, place: Place, limits: RateLimits) -> float:
        """Seconds from ``clock`` until a place is due; none for a place of another file."""
        if place > self.taken:
            return 0.0
        parts = zip(place, self.due, self._per_s(limits), strict=True)
        left = max(((taken - due) / rate for taken, due, rate in parts if rate), default=0.0)
        return max(0.0, self.until - self.clock) + max(0.0, left)

    def differs(self, limits: RateLimits) -> bool:
        """True for reported limits that are not those known."""
        return limits != RateLimits() and (self.is_guess or not self.limits.override(limits).is_close(self.limits))

    def learn(self, limits: RateLimits) -> None:
        """Go by limits that the provider reports."""
        self.limits = limits if self.is_guess else self.limits.override(limits)
        self.is_guess, self.speed = False, 1.0

    def slow_down(self, limits: RateLimits) -> None:
        """React to refusals; without any limit begin with a guess."""
        if limits == RateLimits():
            self.limits, self.is_guess, self.calm_s = FIRST_GUESS, True, GUESS_CALM_S
        else:
            slowest = min(SLOWEST * MINUTE_S / (limits.requests_per_minute or MINUTE_S), 1.0)
            self.speed, self.calm_s = max(self.speed * SLOWER, slowest), 0.0
        self.round += 1

    def hold(self, seconds: float) -> None:
        """Let no place come due within ``seconds``."""
        self.until = max(self.until, self.clock + seconds)
        self.due = (min(self.due[0], self.taken[0]), min(self.due[1], self.taken[1]))

    def _per_s(self, limits: RateLimits) -> Place:
        """Requests and tokens per second; 0 for what is not limited."""
        requests, tokens = limits.requests_per_minute or 0.0, limits.tokens_per_minute or 0.0
        return requests / MINUTE_S * self.speed, tokens / MINUTE_S * self.speed


@dataclass(frozen=True)
class Turn:
    """Leave to send a request after ``waited_s``; ``round`` and ``tokens`` are what it was sent under."""

    waited_s: float = 0.0
    round: int = 0
    tokens: float = 0.0


class Pacer:
    """The pacer as one driver uses it, from any of its threads; ``path`` None serves one process alone."""

    def __init__(
        self,
        path: Path | None = None,
        given: RateLimits | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.path, self._configured, self._driver = path, given or RateLimits(), secrets.token_hex(4)
        self._sleep, self._real_clock, self._jitter = sleep, clock, jitter
        self._turn_lock, self._state_lock = threading.Lock(), threading.RLock()
        self._slept_ahead = 0.0
        self._pace, self._offset = Pace(), -clock()
        self._is_blind = path is None
        self._refusals = self._retries = 0
        self._owed = self._unanswered_s = 0.0
        self._paused_until = self._retry_at = clock()

    # --- before a request -------------------------------------------------------------------------------------

    def acquire(self, tokens: Callable[[], int]) -> Turn:
        """Wait for this driver's turn; a driver with several requests at once takes one place at a time."""
        with self._turn_lock:
            began = self._clock()
            self._sleep_full(self._paused_until - began)
            place, charged = self._take_place(tokens)
            try:
                while place is not None and (left := self._wait_left_s(place)) > 0:
                    self._sleep_full(min(left, LOOK_S))
                    self._read()
            except BaseException:
                with self._writing() as pace:  # the run is stopped: those behind it move up
                    pace.due = (pace.due[0] + 1, pace.due[1] + charged)
                raise
            waited = self._clock() - began
            if self._refusals:
                self._unanswered_s += waited
            return Turn(waited, self._pace.round, charged)

    def _take_place(self, tokens: Callable[[], int]) -> tuple[Place | None, float]:
        """Take a place, where anything limits, and the tokens that it is charged."""
        limits = self._limits(self._read())
        if limits == RateLimits():
            return None, 0.0
        charged = 0.0
        if limits.tokens_per_minute:
            # What earlier requests used beyond what they were charged comes on top.
            charged = min(max(tokens() + self._owed, 0.0), limits.tokens_per_minute)
        with self._writing() as pace:
            return pace.take(charged, self._limits(pace)), charged

    def _wait_left_s(self, place: Place) -> float:
        with self._state_lock:
            limits = self._limits(self._pace)
            self._pace.advance(self._clock() + self._offset, limits)
            return self._pace.wait_s(place, limits)

    def wait_while_down(self, patience_s: float) -> float:
        """Wait, ``patience_s`` at most, while the endpoint is down and this driver is not to try yet; the seconds."""
        began, waited = self._clock(), 0.0
        while self._read().failures >= DOWN_AFTER and waited < patience_s:
            with self._state_lock:
                if (left := self._retry_at - self._clock()) <= 0:
                    self._retry_at = self._clock() + LONGEST_RETRY_S  # of this driver's requests one tries at a time
                    break
            self._sleep_full(min(left, LOOK_S, patience_s - waited))
            waited = self._clock() - began
        return waited

    @property
    def has_replied(self) -> bool:
        """True when the endpoint has answered any driver, ever."""
        return self._read().replied

    def limit_patience(self, patience_s: float) -> float:
        """Seconds to wait at most for the endpoint while it is down: ``patience_s``, or less if it never replied."""
        return patience_s if self.has_replied else min(patience_s, NEW_PATIENCE_S)

    @property
    def outage(self) -> tuple[datetime, int] | None:
        """Since when the endpoint is down, and failures since; None while it is not known to be."""
        pace = self._pace
        return (pace.down_since or now(), pace.failures) if pace.failures >= DOWN_AFTER else None

    # --- after it -----------------------------------------------------------------------------------------------

    def book_answer(self, turn: Turn, headers: Mapping[str, str], used: Tokens | None) -> None:
        """Book a request that was answered, if only by an error of its own, and what the answer reports of limits."""
        report = read_rate_limits(headers)
        with self._state_lock:
            self._refusals, self._unanswered_s = 0, 0.0
            if turn.tokens and used is not None:
                self._owed += used.total - (used.cached if report.cached_free else 0) - turn.tokens
            pace = self._read()
            is_new = (report.pressing or pace.limits != RateLimits()) and pace.differs(report.rate)
            if is_new or pace.failures or pace.refused or not pace.replied:
                with self._writing() as pace:
                    pace.failures, pace.down_since, pace.answers, pace.replied = 0, None, pace.answers + 1, True
                    if pace.refused == self._driver or pace.answers >= OTHERS_ANSWERED:
                        pace.refused = ""
                    if is_new:
                        pace.learn(report.rate)

    def book_refusal(self, turn: Turn, headers: Mapping[str, str], fault: Fault, elapsed_s: float) -> None:
        """Book a request that was refused for its rate: its driver pauses alone, or all slow down, or all pause."""
        with self._writing() as pace:
            self._refusals, self._unanswered_s = self._refusals + 1, self._unanswered_s + elapsed_s
            self._owed -= turn.tokens
            if pace.differs(limits := read_rate_limits(headers, fault.body).rate):
                pace.learn(limits)
            limits, seconds = self._limits(pace), pause(fault, self._refusals, self._jitter())
            is_own_trouble = not pace.refused or (pace.refused == self._driver and pace.answers > 0)
            is_silent = self._refusals > 1 and not pace.answers  # to be slower would not help, only to come later
            if is_own_trouble:
                self._paused_until = self._clock() + seconds
            elif turn.round == pace.round and not (is_silent and limits != RateLimits()):
                pace.slow_down(limits)
            if is_silent:
                pace.hold(seconds if fault.retry_after_s else min(seconds, LONGEST_HOLD_S))
            elif not is_own_trouble:
                self._paused_until = self._clock() + (fault.retry_after_s or 0.0)
            pace.refused, pace.answers = self._driver, 0

    def book_recovery(self) -> None:
        """Book that the endpoint gives answers, of any kind."""
        pace = self._read()
        if pace.failures or not pace.replied:
            with self._writing() as pace:
                pace.failures, pace.down_since, pace.replied = 0, None, True

    def book_failure(self) -> bool:
        """Book a request without answer; True when a shared file says that the endpoint is down for all."""
        if self.path is None:
            return False
        with self._writing() as pace:
            pace.failures, pace.down_since = pace.failures + 1, pace.down_since or now()
            if pace.failures < DOWN_AFTER:
                return False
            wait = min(FIRST_RETRY_S * 2.0 ** min(pace.failures - DOWN_AFTER, 10), LONGEST_RETRY_S)
            # The first wait has any length up to that: drivers that failed together come back one by one.
            self._retry_at = self._clock() + wait * (1.0 if self._retries else self._jitter())
            self._retries += 1
            return True

    def is_patient(self, patience_s: float) -> bool:
        """True while the provider answered any driver within ``patience_s`` of this one's waiting."""
        return self._unanswered_s < patience_s

    # --- what is known --------------------------------------------------------------------------------------------

    def _limits(self, pace: Pace) -> RateLimits:
        """The given and the reported limits; a guess only where there is neither."""
        configured = self._configured
        return configured if pace.is_guess and configured != RateLimits() else configured.tighten(pace.limits)

    def _read(self) -> Pace:
        """The pace as it stands in the file; what this process knows where there is none, or a damaged one."""
        with self._state_lock:
            pace = self._pace
            if self.path is not None and not self._is_blind:
                with contextlib.suppress(OSError, pydantic.ValidationError):
                    pace = Pace.model_validate_json(self.path.read_bytes())
            ahead = pace.clock - self._clock()
            self._offset = max(self._offset, ahead) if pace.id == self._pace.id else ahead
            self._pace = pace
            if pace.answers:
                self._unanswered_s = 0.0
            if pace.failures < DOWN_AFTER:
                self._retries, self._retry_at = 0, self._clock()
            return pace

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Pace]:
        """The pace as of now, to be changed while no other process does; written at the end."""
        with self._state_lock:
            since = self._lock()
            self._is_blind = since is None
            pace = self._read()
            pace.advance(self._clock() + self._offset, self._limits(pace))
            try:
                yield pace
            finally:
                # One that stood still may have lost the lock: it writes nothing, and does not move another's.
                if since is not None and self._clock() - since < LOCK_DEAD_S / 2:
                    self._write(pace)

    def _write(self, pace: Pace) -> None:
        """Let the lock become the file; not synced, for after a crash of the machine it is worth nothing."""
        assert self.path is not None
        lock = self.path.with_suffix(".lock")
        try:
            lock.write_text(pace.model_dump_json())
            os.replace(lock, self.path)
        except OSError:
            self._is_blind = True
            with contextlib.suppress(OSError):
                lock.unlink()

    def _lock(self) -> float | None:
        """Make the lock, when that of another is gone or stands still; the moment, or None when none can be made."""
        if self.path is None:
            return None
        lock, seen, since = self.path.with_suffix(".lock"), (0, 0), self._clock()
        with contextlib.suppress(OSError):
            lock.parent.mkdir(parents=True, exist_ok=True)
        nap = 0.005
        while True:
            try:
                os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
                return self._clock()
            except FileExistsError:
                self._sleep_full(nap * random.random())
                nap = min(2 * nap, 0.5)
            except OSError:
                return None
            with contextlib.suppress(OSError), open(lock, "rb") as stream:  # opened, so that NFS asks its server
                status = os.fstat(stream.fileno())
                if (found := (status.st_ino, status.st_mtime_ns)) != seen:
                    seen, since = found, self._clock()
                elif self._clock() - since > LOCK_DEAD_S:
                    lock.unlink()

    def _clock(self) -> float:
        return self._real_clock() + self._slept_ahead

    def _sleep_full(self, seconds: float) -> None:
        """Sleep; what ``sleep`` shortens (benchmarks do) counts in full."""
        if seconds > 0:
            began = self._clock()
            self._sleep(max(seconds, 0.001))
            self._slept_ahead += max(0.0, began + seconds - self._clock())


def list_outages(folder: Path) -> list[str]:
    """A line for each endpoint that is down by the pace files of ``folder``: since when, and how often it failed."""
    lines = []
    for file in sorted(folder.glob("*.pace")):
        with contextlib.suppress(OSError, pydantic.ValidationError):
            pace, host = Pace.model_validate_json(file.read_bytes()), file.stem.rsplit("-", 2)[0]
            if pace.failures >= DOWN_AFTER and pace.down_since:
                never, limit_s = ("", PATIENCE_S) if pace.replied else (", it has never replied", 2 * NEW_PATIENCE_S)
                lines.append(
                    f"{host} is down since {pace.down_since:%Y-%m-%d %H:%M} UTC ({pace.failures} attempts failed"
                    f"{never}); runs that ask it wait, each for at most {limit_s / 60:.0f} min"
                )
    return lines
