"""One limiter for all drivers of a campaign: who may ask an endpoint next, and how fast all of them may ask together.

Drivers on all nodes share one small file per endpoint, model and key. Nothing is written while nothing limits them.
As soon as a limit is given, told by an answer or felt by a refusal (429), each request takes a place in a queue: one
write, then sleep until its turn. The queue is laid out on the *provider's time*, seconds that run at ``speed``: 1 is
the limit itself. Each refusal makes it a tenth slower, waiting drivers make it faster again, little by little. A pause
that the provider asks for sets that time back.

No clocks of two machines are compared. Each process counts the provider's time on by its own clock from what it has
seen, and the latest of what the file says and what it has counted itself holds: both can only be too early. A driver
that waits long shows now and then that it lives; the places of those that do not are taken from under their successors.
The lock is a file made by O_EXCL, which is written and then renamed to the queue's file within some milliseconds; a
process that sees nothing change behind it for long removes it. Should two hold it at once, a place is given twice: one
refusal more.
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
from pathlib import Path

import pydantic
from pydantic import ConfigDict, Field

from automedbench.base.endpoint.faults import Fault, pause
from automedbench.base.endpoint.rate_headers import MINUTE_S, RateLimits, read_rate_limits
from automedbench.base.records import Model, Tokens

LOOK_S, NEAR_S = 15.0, 1.0
"""A waiting driver looks at the file at least and at most this often, and when its turn comes."""
BEAT_S, DEAD_AFTER_S = 20.0, 70.0
"""It shows that it lives this often; a place without that for so long, under the watcher's own clock, is free."""
LOCK_DEAD_S = 5.0
SHORT_S, LONGEST_PAUSE_S = 2.0, 15.0
BURST_S = 1.0
"""Of unused time so much may be made up for."""
FIRST_GUESS = 60.0
"""Requests per minute after the first refusal of a provider that tells no limits."""
SLOWER, STEP, CALM_S, SLOWEST = 0.9, 0.01, 20.0, 1.0
"""Speed after a refusal; its growth per second, as share of that; after so long without refusal it grows twice as fast,
and ever faster: the limit must have been raised; requests per minute that are always tried."""
DOUBTED, DOUBLING_S = 0.7, 5.0
"""The same while the limit is a guess: speed after a refusal that ends the doubling, and the time of one."""


class Place(Model):
    """A driver's place in the queue, in the provider's time as its requests and as its tokens allow."""

    model_config = ConfigDict(frozen=False)
    driver: str
    tokens: float
    by_requests: float = 0.0
    by_tokens: float = 0.0
    beats: int = 0

    @property
    def at(self) -> float:
        """When its turn comes."""
        return max(self.by_requests, self.by_tokens)


class Queue(Model):
    """What all drivers know of an endpoint's limits. ``round`` counts the reactions to refusals."""

    model_config = ConfigDict(frozen=False)
    writes: int = 0
    told: RateLimits = RateLimits()
    is_guess: bool = False
    speed: float = 1.0
    step: float | None = STEP
    grown_at: float = 0.0
    calm_s: float = 0.0
    time: float = 0.0
    set_back: float = 0.0
    held_to: float = 0.0
    by_requests: float = 0.0
    by_tokens: float = 0.0
    places: list[Place] = Field(default_factory=list)
    answers: int = 0
    round: int = 0
    round_answers: int = 0
    in_a_row: int = 0

    def lay(self, places: list[Place], limits: RateLimits) -> None:
        """Put these places where the first of the queue stood, without gaps, and end the queue behind them."""
        if self.places:
            self.by_requests, self.by_tokens = self.places[0].by_requests, self.places[0].by_tokens
        self.places = []
        for place in places:
            self.append(place, limits)

    def append(self, place: Place, limits: RateLimits) -> None:
        """Put a place at the end."""
        place.by_requests, place.by_tokens = self.by_requests, self.by_tokens
        self.places.append(place)
        if limits.requests_per_minute:
            self.by_requests += MINUTE_S / limits.requests_per_minute
        if limits.tokens_per_minute:
            self.by_tokens += MINUTE_S * place.tokens / limits.tokens_per_minute

    def grow(self) -> None:
        """A little faster, for the time since the last time, up to the limit where one is known."""
        if self.time < self.held_to:
            return
        seconds = min(max(self.time - self.grown_at, 0.0) / self.speed, DOUBLING_S)
        self.calm_s += seconds
        if self.step is None:
            self.speed *= 2 ** (seconds / DOUBLING_S)
        else:
            self.speed += self.step * seconds * (1 + (self.calm_s / CALM_S) ** 2)
        if not self.is_guess:
            self.speed = min(self.speed, 1.0)

    def slow_down(self, limits: RateLimits) -> None:
        """Slower after a refusal; a guess is no longer doubled."""
        slowest = min(SLOWEST / (limits.requests_per_minute or FIRST_GUESS), 1.0)
        self.speed = max(self.speed * (DOUBTED if self.step is None else SLOWER), slowest)
        self.step, self.calm_s = STEP * self.speed, 0.0

    def hold(self, seconds: float) -> None:
        """Let the next turn come no sooner than in ``seconds``."""
        following = min((place.at for place in self.places), default=max(self.by_requests, self.by_tokens))
        if (early := self.time - (following - seconds * self.speed)) > 0:
            self.held_to = following
            self.time -= early
            self.set_back += early


@dataclass(frozen=True)
class Turn:
    """Leave to send a request after ``waited_s``; ``round`` and ``tokens`` are what it was sent under."""

    waited_s: float = 0.0
    round: int = 0
    tokens: float = 0.0


class Limiter:
    """The limiter as one driver uses it, from any of its threads.

    ``path`` is the shared file, None for one process alone. What cannot be read or written makes it know its own
    requests only, never one of them fail.
    """

    def __init__(
        self,
        path: Path | None = None,
        given: RateLimits | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._given = given or RateLimits()
        self._sleep, self._clock, self._jitter = sleep, clock, jitter
        self._file = _QueueFile(path, sleep, clock)
        self._driver = secrets.token_hex(4)
        self._one_place, self._books = threading.Lock(), threading.RLock()
        self._seen, self._seen_at = Queue(), clock()
        self._mine: Place | None = None
        self._beats, self._shown_at = 0, clock()
        self._alive: dict[str, tuple[int, float]] = {}
        self._answers, self._owed, self._unanswered_s = 0, 0.0, 0.0

    # --- before a request -------------------------------------------------------------------------------------

    def acquire(self, tokens: Callable[[], int]) -> Turn:
        """Wait for this driver's turn; a driver with several requests at once has one place in the queue at a time."""
        with self._one_place:
            charged, waited = self.join(tokens), 0.0
            while (left := self.left()) > 0:
                began, seconds = self._clock(), self.nap(left)
                self._sleep(seconds)
                passed = max(seconds, self._clock() - began)
                waited += passed
                self.look(began + passed)
            self._unanswered_s += waited
            return Turn(waited, self._seen.round, charged)

    def join(self, tokens: Callable[[], int]) -> float:
        """Take a place at the end of the queue, where there is one; tokens that it is charged."""
        with self._books:
            self._mine = None
            if self._limits(self._seen) == RateLimits():
                self._take_in(self._file.read())
            limits, charged = self._limits(self._seen), 0.0
            if limits == RateLimits():
                return charged
            if limits.tokens_per_minute:
                # What earlier requests used beyond what they were charged comes on top.
                charged = min(max(tokens() + self._owed, 0.0), limits.tokens_per_minute)
            self._enter(charged)
            return charged

    def left(self) -> float:
        """Seconds until this driver's turn, as far as it has looked; not above 0 when it is there."""
        with self._books:
            if self._mine is None:
                return 0.0
            self._count_on(self._seen)
            return (self._mine.at - self._seen.time) / self._seen.speed

    def nap(self, left: float) -> float:
        """Seconds to sleep before the next look: while the speed changes, a turn may come sooner than it seemed."""
        if self._file.path is not None:
            left = min(left, LOOK_S if self._seen.speed == 1.0 else min(max(left / 2, NEAR_S), LOOK_S))
        return max(left, 0.001)

    def look(self, moment: float) -> None:
        """See what became of this driver's place; it is at least ``moment`` by now."""
        with self._books:
            self._seen_at -= max(0.0, moment - self._clock())
            self._take_in(self._file.read())
            if self._mine is None:
                return
            found = next((place for place in self._seen.places if place.driver == self._driver), None)
            self._mine = found or self._mine
            if found is None and self.left() > 0:
                self._enter(self._mine.tokens)  # it was taken for dead, or the file is a new one
            elif found is not None and self._clock() - self._shown_at > BEAT_S:
                self._beat()

    def _enter(self, tokens: float) -> None:
        with self._writing() as queue:
            queue.by_requests = max(queue.by_requests, queue.time - BURST_S)
            queue.by_tokens = max(queue.by_tokens, queue.time - BURST_S)
            self._mine = self._shown(Place(driver=self._driver, tokens=tokens))
            queue.append(self._mine, self._limits(queue))
            if self._mine.at > queue.time:
                queue.grow()
            queue.grown_at = queue.time

    def _beat(self) -> None:
        with self._writing() as queue:
            for place in queue.places:
                if place.driver == self._driver:
                    self._mine = self._shown(place)

    def _shown(self, place: Place) -> Place:
        """The place with a number that it never had before."""
        self._beats, self._shown_at = self._beats + 1, self._clock()
        place.beats = self._beats
        return place

    # --- after it -----------------------------------------------------------------------------------------------

    def answered(self, turn: Turn, headers: Mapping[str, str], used: Tokens | None) -> None:
        """Book a request that was answered, and what the answer tells of limits."""
        told = read_rate_limits(headers)
        with self._books:
            self._answers += 1
            self._unanswered_s = 0.0
            if turn.tokens and used is not None:
                self._owed += used.total - (used.cached if told.cached_free else 0) - turn.tokens
            if (told.pressing or self._seen.told != RateLimits()) and self._is_news(self._seen, told.rate):
                with self._writing() as queue:
                    self._learn(queue, told.rate)

    def refused(self, turn: Turn, headers: Mapping[str, str], fault: Fault, elapsed_s: float) -> None:
        """Book a request that was refused for its rate: all go slower, and wait if the provider asks for it."""
        with self._books:
            self._unanswered_s += elapsed_s
            self._owed -= turn.tokens
            with self._writing() as queue:
                self._learn(queue, read_rate_limits(headers, fault.body).rate)
                limits = self._limits(queue)
                if limits == RateLimits():
                    queue.told, queue.is_guess, queue.step = RateLimits(requests_per_minute=FIRST_GUESS), True, None
                if turn.round == queue.round:
                    self._react(queue, limits)
                queue.by_requests = max(queue.by_requests, queue.time)
                queue.hold(self._pause(queue, fault))

    def is_patient(self, patience_s: float) -> bool:
        """True while the provider answered any driver within ``patience_s`` of this one's waiting."""
        return self._unanswered_s < patience_s

    def _react(self, queue: Queue, limits: RateLimits) -> None:
        """The first refusal of a request that was sent since the last reaction."""
        if queue.answers == queue.round_answers:
            # No one was answered: to be slower would not help, only to come later.
            queue.in_a_row += 1
        elif queue.step is None and queue.calm_s < DOUBLING_S:
            queue.in_a_row = 1  # of what was sent before the guess was made
        else:
            queue.in_a_row = 0
            if queue.is_guess or queue.speed == 1.0 or queue.calm_s >= SHORT_S:
                queue.slow_down(limits)  # a clump that came late to a known limit is one sign
        queue.round, queue.round_answers = queue.round + 1, queue.answers

    def _pause(self, queue: Queue, fault: Fault) -> float:
        """Seconds that all drivers wait. A second or two means this request, which is the last in the queue again."""
        asked = fault.retry_after_s
        # Where the limit is known, one without answer since is only a sign that answers take longer than refusals.
        is_first = queue.in_a_row <= (0 if queue.is_guess else 1)
        if is_first and queue.places and (asked or 0.0) <= SHORT_S:
            return 0.0
        if asked is None and queue.in_a_row:
            return min(pause(fault, queue.in_a_row, self._jitter()), LONGEST_PAUSE_S)
        return asked or 0.0

    def _is_news(self, queue: Queue, told: RateLimits) -> bool:
        return told != RateLimits() and (queue.is_guess or not queue.told.but(told).is_close(queue.told))

    def _learn(self, queue: Queue, told: RateLimits) -> None:
        if self._is_news(queue, told):
            queue.told = told if queue.is_guess else queue.told.but(told)
            queue.is_guess, queue.speed, queue.step = False, 1.0, STEP
            queue.lay(queue.places, self._limits(queue))

    # --- what is known --------------------------------------------------------------------------------------------

    def _limits(self, queue: Queue) -> RateLimits:
        """What counts: what is given and what the provider tells; a guess only where there is neither."""
        return self._given if queue.is_guess and self._given != RateLimits() else self._given.and_of(queue.told)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Queue]:
        """The queue as of now and without the places that are over or dead, to be changed, alone."""
        with self._file.alone() as queue:
            self._take_in(queue)
            queue.answers, self._answers = queue.answers + self._answers, 0
            queue.places = [place for place in queue.places if place.at > queue.time]
            living = [place for place in queue.places if not self._is_dead(place)]
            if len(living) < len(queue.places):
                queue.lay(living, self._limits(queue))
            yield queue

    def _take_in(self, queue: Queue) -> None:
        """What the file says is what is known, but for the time that this process has counted."""
        if queue.answers != self._seen.answers:
            self._unanswered_s = 0.0
        self._count_on(queue)
        self._seen = queue
        before, moment = self._alive, self._clock()
        self._alive = {}
        for place in queue.places:
            beats, since = before.get(place.driver, (None, 0.0))
            self._alive[place.driver] = (place.beats, since if beats == place.beats else moment)

    def _is_dead(self, place: Place) -> bool:
        return place.driver != self._driver and self._clock() - self._alive[place.driver][1] > DEAD_AFTER_S

    def _count_on(self, queue: Queue) -> None:
        """Move ``queue`` to the provider's time now: what it says, or what this process has counted, the later one."""
        moment, seen = self._clock(), self._seen
        if queue.writes >= seen.writes:
            counted = seen.time + min(seen.speed, queue.speed) * (moment - self._seen_at)
            queue.time = max(queue.time, counted - (queue.set_back - seen.set_back))
        self._seen_at = moment


class _QueueFile:
    """The queue's file; without ``path``, or while it cannot be used, the queue in memory."""

    def __init__(self, path: Path | None, sleep: Callable[[float], None], clock: Callable[[], float]) -> None:
        self.path, self._sleep, self._clock = path, sleep, clock
        self._memory = Queue()
        self._is_blind = path is None

    def read(self) -> Queue:
        """The queue as it stands; a file that is not there or damaged holds an empty one."""
        if self.path is None or self._is_blind:
            return self._memory
        try:
            return Queue.model_validate_json(self.path.read_bytes())
        except (FileNotFoundError, pydantic.ValidationError):
            return Queue()
        except OSError:
            return self._memory

    @contextlib.contextmanager
    def alone(self) -> Iterator[Queue]:
        """The queue, to be changed while no other process does; written at the end."""
        since = self._lock()
        self._is_blind = since is None
        yield (queue := self.read())
        queue.writes += 1
        self._memory = queue
        # One that was stopped in between may have lost the lock: it writes nothing, and does not move another's.
        if self.path is not None and since is not None and self._clock() - since < LOCK_DEAD_S / 2:
            self._write(self.path, queue)

    def _write(self, path: Path, queue: Queue) -> None:
        """Let the lock's file become the queue's; not synced, for after a crash of the machine it is worth nothing."""
        lock = self._lock_of(path)
        try:
            lock.write_text(queue.model_dump_json())
            os.replace(lock, path)
        except OSError:
            self._is_blind = True
            with contextlib.suppress(OSError):
                lock.unlink(missing_ok=True)

    def _lock(self) -> float | None:
        """Make the lock's file, when the one of another is gone; the moment, or None when none can be made."""
        if self.path is None:
            return None
        lock, since, writes, nap = self._lock_of(self.path), self._clock(), -1, 0.005
        while True:
            try:
                os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
                return self._clock()
            except FileExistsError:
                pass
            except FileNotFoundError:
                try:
                    lock.parent.mkdir(parents=True)
                except FileExistsError:
                    pass
                except OSError:
                    return None
                continue
            except OSError:
                return None
            self._sleep(nap * random.random())
            nap = min(2 * nap, 0.5)
            if writes < 0 or self._clock() - since > LOCK_DEAD_S:
                current = self.read().writes
                if current == writes:
                    _remove(lock)
                since, writes = self._clock(), current

    @staticmethod
    def _lock_of(path: Path) -> Path:
        return path.with_suffix(".lock")


def _remove(lock: Path) -> None:
    """Remove a dead process's lock: of all that try, one does."""
    with contextlib.suppress(OSError):
        aside = lock.with_suffix(f".{secrets.token_hex(4)}")
        os.replace(lock, aside)
        aside.unlink()
