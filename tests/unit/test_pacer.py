"""The pacer that drivers share: whose turn it is, who pauses, what breaks, and many drivers on a virtual clock."""

from __future__ import annotations

import functools
import heapq
import itertools
import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from automedbench.base.endpoint.client import (
    Attempt,
    Client,
    EndpointTarget,
    RequestGivenUp,
    list_pace_files,
)
from automedbench.base.endpoint.faults import Fault
from automedbench.base.endpoint.pacer import (
    DOWN_AFTER,
    LOCK_DEAD_S,
    LONGEST_RETRY_S,
    LOOK_S,
    NEW_PATIENCE_S,
    OTHERS_ANSWERED,
    PATIENCE_S,
    Pace,
    Pacer,
    Turn,
)
from automedbench.base.endpoint.rate_headers import RateLimits
from automedbench.base.endpoint.replies import read_completion
from automedbench.base.records import Tokens
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer, completion


class Time:
    """A clock that moves when a driver sleeps, and what else happens meanwhile."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.meanwhile: Callable[[], object] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()

    def clock(self) -> float:
        return self.now


def rate(requests: float | None = None, tokens: float | None = None) -> RateLimits:
    return RateLimits(requests_per_minute=requests, tokens_per_minute=tokens)


def reported(limit: float, left: float) -> dict[str, str]:
    return {"x-ratelimit-limit-requests": f"{limit:g}", "x-ratelimit-remaining-requests": f"{left:g}"}


def driver(path: Path | None, time: Time, given: RateLimits | None = None) -> Pacer:
    return Pacer(path, given, sleep=time.sleep, clock=time.clock, jitter=lambda: 1.0)


def waits(one: Pacer, tokens: int = 0) -> float:
    return one.acquire(lambda: tokens).waited_s


def pace_in(path: Path) -> Pace:
    return Pace.model_validate_json(path.read_bytes())


REFUSED = Fault("rate_limit", 429, "")
AFTER_7 = Fault("rate_limit", 429, "", 7.0)

# --- turns ------------------------------------------------------------------------------------------------------


def test_where_nothing_is_known_the_first_answer_alone_is_written(tmp_path: Path) -> None:
    one = driver(tmp_path / "x.pace", Time())
    for _ in range(3):
        turn = one.acquire(lambda: pytest.fail("tokens are counted only where they are limited"))
        one.book_answer(turn, reported(500, 400), Tokens(prompt=5))
        assert turn.waited_s == 0
    assert pace_in(tmp_path / "x.pace").answers == 1


def test_given_requests(tmp_path: Path) -> None:
    """30 a minute: one every two seconds, by whichever driver; the clocks of two machines have nothing in common.

    The other driver cannot know that the file is two seconds old, but comes no sooner than allowed.
    """
    for start in (1e6, -1e6):
        one = driver(tmp_path / f"{start}.pace", Time(), rate(30))
        assert [waits(one) for _ in range(3)] == pytest.approx([0, 2, 2])
        other = driver(tmp_path / f"{start}.pace", Time(start), rate(30))
        assert waits(other) == pytest.approx(4)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".pace"] * 2


def test_a_driver_that_was_there_before_the_file_takes_its_clock(tmp_path: Path) -> None:
    """Its own has run for a day, that of the file's first writer for none."""
    old, new = Time(), Time()
    early = driver(tmp_path / "x.pace", old, rate(30))
    old.now = 86400.0
    one = driver(tmp_path / "x.pace", new, rate(30))
    assert [waits(one) for _ in range(3)] == pytest.approx([0, 2, 2])
    assert waits(early) == pytest.approx(4)


def test_given_tokens(tmp_path: Path) -> None:
    """600 a minute are 10 a second; what a request used beyond its estimate is charged to the next one."""
    one = driver(tmp_path / "x.pace", Time(), rate(None, 600))
    turn = one.acquire(lambda: 100)
    one.book_answer(turn, {}, Tokens(prompt=120, completion=30))
    assert waits(one, 20) == pytest.approx(10)
    assert waits(one, 0) == pytest.approx((20 + 50) / 10)


def test_cached_tokens_are_free_where_the_provider_says_so() -> None:
    """Anthropic counts none; what was charged too much is given back."""
    one = driver(None, Time(), rate(None, 6000))
    headers = {"anthropic-ratelimit-tokens-limit": "96000", "anthropic-ratelimit-tokens-remaining": "40000"}
    one.book_answer(one.acquire(lambda: 1000), headers, Tokens(prompt=1000, cached=900))
    assert one.acquire(lambda: 1000).tokens == 100


def test_a_request_larger_than_a_minute_goes_through() -> None:
    one = driver(None, Time(), rate(None, 600))
    assert waits(one, 10**9) == 0
    assert waits(one, 1) == pytest.approx(60)


def test_reported_limits_count_when_half_is_used(tmp_path: Path) -> None:
    """They hold for drivers that wait already, too."""
    time = Time()
    one = driver(tmp_path / "x.pace", time)
    one.book_answer(one.acquire(lambda: 0), reported(60, 30), None)
    assert [waits(one) for _ in range(3)] == pytest.approx([0, 1, 1])
    other = driver(tmp_path / "x.pace", time)
    for _ in range(30):
        other._take_place(lambda: 0)  # thirty that wait
    time.meanwhile = lambda: other.book_answer(Turn(), reported(600, 599), None)
    assert waits(one) <= LOOK_S + 30 / 10  # at 60 a minute it would be 30; it learns of the new limit at its next look


def test_a_configured_limit_is_never_exceeded() -> None:
    one = driver(None, Time(), rate(30))
    one.book_answer(one.acquire(lambda: 0), reported(600, 10), None)
    assert [waits(one) for _ in range(2)] == pytest.approx([2, 2])


def test_endpoints_models_and_keys_are_kept_apart(tmp_path: Path) -> None:
    target = EndpointTarget("http://a.example/v1", "m", ("sk-canary-1", "sk-canary-2"), "KEYS")
    files = [
        *list_pace_files(target, tmp_path),
        *list_pace_files(EndpointTarget("http://b.example/v1", "m", ("sk-canary-1",), "KEYS"), tmp_path),
        *list_pace_files(EndpointTarget("http://a.example/v1", "n", ("sk-canary-1",), "KEYS"), tmp_path),
    ]
    assert len(set(files)) == 4
    assert files[0] == list_pace_files(EndpointTarget("http://a.example/v1", "m", ("another",), "KEYS"), tmp_path)[0]


# --- refusals ---------------------------------------------------------------------------------------------------


def test_a_refusal_of_one_driver_is_its_pause_alone(tmp_path: Path) -> None:
    """Refused ever again while others are answered, it waits as it is asked to; the others notice nothing."""
    time = Time()
    one, other = (driver(tmp_path / "x.pace", time) for _ in range(2))
    for _ in range(10):
        one.book_refusal(one.acquire(lambda: 0), {}, AFTER_7, 0.0)
        for _ in range(3):
            turn = other.acquire(lambda: 0)
            assert turn.waited_s == 0
            other.book_answer(turn, {}, None)
        assert waits(one) == pytest.approx(7)
    assert (pace_in(tmp_path / "x.pace").limits, pace_in(tmp_path / "x.pace").until) == (rate(), 0)


def test_a_refusal_is_forgotten_when_others_are_answered(tmp_path: Path) -> None:
    """The driver that was refused may have died; the next refusal, hours later, is the first again."""
    time = Time()
    one, other = (driver(tmp_path / "x.pace", time) for _ in range(2))
    one.book_refusal(Turn(), {}, REFUSED, 0.0)
    for _ in range(OTHERS_ANSWERED):
        other.book_answer(other.acquire(lambda: 0), {}, None)
    before = (tmp_path / "x.pace").read_bytes()
    other.book_answer(other.acquire(lambda: 0), {}, None)
    assert (tmp_path / "x.pace").read_bytes() == before
    other.book_refusal(Turn(), {}, REFUSED, 0.0)
    assert pace_in(tmp_path / "x.pace").limits == rate()


def test_refusals_of_two_drivers_slow_all_down(tmp_path: Path) -> None:
    """Ten requests under way are refused together: that is one sign, not ten."""
    time, path = Time(), tmp_path / "x.pace"
    drivers = [driver(path, time, rate(600)) for _ in range(10)]
    turns = [one.acquire(lambda: 0) for one in drivers]
    for one, turn in zip(drivers, turns, strict=True):
        one.book_refusal(turn, {}, REFUSED, 0.0)
    assert pace_in(path).speed == pytest.approx(0.9, abs=0.01)


def test_a_limit_is_guessed_when_two_are_refused(tmp_path: Path) -> None:
    """60 a minute at first; while drivers wait, it grows by 15 % per second and more."""
    time, path = Time(), tmp_path / "x.pace"
    one, other = (driver(path, time) for _ in range(2))
    one.book_refusal(Turn(), {}, REFUSED, 0.0)
    other.book_refusal(Turn(), {}, REFUSED, 0.0)
    assert (pace_in(path).limits, pace_in(path).is_guess, pace_in(path).speed) == (rate(60), True, 1)
    for _ in range(8):
        other._take_place(lambda: 0)
        time.now += 1
    assert 1.5 < pace_in(path).speed < 4


def test_a_pause_moves_the_time_of_all(tmp_path: Path) -> None:
    """One driver is refused twice in a row and no other is answered: what it is asked to wait, all wait, in order."""
    time, path = Time(), tmp_path / "x.pace"
    one, other, third = (driver(path, time, rate(60)) for _ in range(3))
    one.book_refusal(one.acquire(lambda: 0), {}, AFTER_7, 0.0)
    place, _ = third._take_place(lambda: 0)
    one.book_refusal(one.acquire(lambda: 0), {}, AFTER_7, 0.0)
    began = time.now
    assert waits(other) >= 7
    assert place is not None and third._read() and third._wait_left_s(place) <= 0
    assert waits(one) <= 1 and time.now - began <= 7 + 4


def test_refusals_in_a_row_without_answer_wait_longer() -> None:
    """By hand with a jitter of 1: 2, 4, 8, then 15 s, and its place in the guessed pace; an answer ends that."""
    one, found = driver(None, Time()), []
    for _ in range(5):
        turn = one.acquire(lambda: 0)
        found.append(turn.waited_s)
        one.book_refusal(turn, {}, REFUSED, 0.0)
    found.append(waits(one))
    assert found == pytest.approx([0, 2, 4, 8, 15, 15], abs=1.1)
    one.book_answer(Turn(), {}, None)
    one.book_refusal(Turn(), {}, REFUSED, 0.0)
    assert waits(one) == pytest.approx(2, abs=0.1)


def test_anyones_answer_is_a_sign(tmp_path: Path) -> None:
    """This driver is refused for hours, but another one is answered."""
    path, time = tmp_path / "x.pace", Time()
    one, other = driver(path, time, rate(60)), driver(path, time, rate(60))
    for minute in range(300):
        one.book_refusal(one.acquire(lambda: 0), {}, Fault("rate_limit", 429, "", 60.0), 0.0)
        if minute < 200:
            other.book_answer(other.acquire(lambda: 0), {}, None)
            one._read()
            assert one.is_patient(1800.0)
    assert not one.is_patient(1800.0)


# --- outages ----------------------------------------------------------------------------------------------------


def fail(path: Path, times: int = DOWN_AFTER) -> None:
    """Failures of several processes, one each."""
    for _ in range(times):
        driver(path, Time()).book_failure()


def test_failures_of_all_without_an_answer_are_an_outage(tmp_path: Path) -> None:
    """An answer to any driver, good or not, starts the count anew."""
    path = tmp_path / "x.pace"
    fail(path, DOWN_AFTER - 1)
    driver(path, Time()).book_answer(Turn(), {}, None)
    fail(path, DOWN_AFTER - 1)
    driver(path, Time()).book_recovery()
    fail(path, DOWN_AFTER - 1)
    one = driver(path, Time())
    assert not one._read() or one.outage is None
    assert one.book_failure()
    assert one.outage is not None and one.outage[1] == DOWN_AFTER


def test_failures_of_one_driver_while_others_are_answered_are_its_own(tmp_path: Path) -> None:
    """Its request has as many attempts as ever, for the endpoint is not down; the other driver never waits."""
    one, other = (driver(tmp_path / "x.pace", Time()) for _ in range(2))
    for _ in range(5 * DOWN_AFTER):
        assert not one.book_failure()
        turn = other.acquire(lambda: 0)
        assert (other.wait_while_down(1800), turn.waited_s) == (0, 0)
        other.book_answer(turn, {}, None)


def test_a_driver_asks_again_ever_more_seldom(tmp_path: Path) -> None:
    """5, 10, 20 … s apart, at most 300; one that comes new asks at once."""
    time, found = Time(), []
    fail(tmp_path / "x.pace", DOWN_AFTER - 1)
    one = driver(tmp_path / "x.pace", time)
    for _ in range(8):
        assert one.book_failure()
        found.append(one.wait_while_down(1800))
    assert found == pytest.approx([5, 10, 20, 40, 80, 160, 300, 300], abs=0.1)
    assert driver(tmp_path / "x.pace", Time()).wait_while_down(1800) == 0


def test_of_one_driver_one_request_tries(tmp_path: Path) -> None:
    fail(tmp_path / "x.pace")
    one = driver(tmp_path / "x.pace", Time())
    assert one.wait_while_down(1800) == 0
    assert one.wait_while_down(60) == pytest.approx(60, abs=0.1)


def test_the_first_answer_lets_all_go_on(tmp_path: Path) -> None:
    time = Time()
    one, other = (driver(tmp_path / "x.pace", time) for _ in range(2))
    fail(tmp_path / "x.pace", 20)
    one.book_failure()
    time.meanwhile = lambda: other.book_answer(Turn(), {}, None) if time.now > 20 else None
    assert one.wait_while_down(1800) == pytest.approx(20 + LOOK_S, abs=LOOK_S)
    assert one.outage is None


# --- what breaks ------------------------------------------------------------------------------------------------


def test_a_driver_that_is_stopped_gives_its_place_back(tmp_path: Path) -> None:
    """Twenty drivers are stopped while they wait, one is killed; the next one waits for that one only."""
    path, time = tmp_path / "x.pace", Time()
    waits(driver(path, time, rate(1)))

    def stop(_seconds: float) -> None:
        raise KeyboardInterrupt

    for _ in range(20):
        with pytest.raises(KeyboardInterrupt):
            Pacer(path, rate(1), sleep=stop, clock=time.clock).acquire(lambda: 0)
    driver(path, time, rate(1))._take_place(lambda: 0)
    assert 60 <= waits(driver(path, time, rate(1))) <= 120


def test_a_lock_of_the_dead_is_removed(tmp_path: Path) -> None:
    time = Time()
    (tmp_path / "x.lock").write_text("")
    assert waits(driver(tmp_path / "x.pace", time, rate(60))) <= 6
    assert time.now == pytest.approx(LOCK_DEAD_S, abs=1)
    assert [path.name for path in tmp_path.iterdir()] == ["x.pace"]


def test_a_lock_that_is_used_is_let_be(tmp_path: Path) -> None:
    """Others come and go: it is another file each time, so no one is dead."""
    time, lock = Time(), tmp_path / "x.lock"
    lock.write_text("")

    def others() -> None:
        lock.unlink(missing_ok=True)
        if time.now <= 60:
            (tmp_path / "new").write_text("")
            (tmp_path / "new").rename(lock)

    time.meanwhile = others
    waits(driver(tmp_path / "x.pace", time, rate(60)))
    assert time.now > 60


@pytest.mark.parametrize("content", [b"", b"{", b'{"speed": "fast"}', b'{"speed": 0}', b'{"another": 1}'])
def test_a_damaged_file_stops_no_one(tmp_path: Path, content: bytes) -> None:
    """A driver goes on by what it knows, and writes that."""
    path = tmp_path / "x.pace"
    one = driver(path, Time(), rate(60))
    waits(one)
    path.write_bytes(content)
    assert [waits(one), waits(one)] == pytest.approx([1, 1])
    path.write_bytes(content)
    assert waits(driver(path, Time(), rate(60))) == 0


def test_a_file_that_is_made_anew_stops_no_one(tmp_path: Path) -> None:
    """A hundred wait; then someone deletes the folder, and others begin a new file."""
    path, time = tmp_path / "x.pace", Time()
    one = driver(path, time, rate(60))
    for _ in range(100):
        one._take_place(lambda: 0)

    def begin_anew() -> None:
        if time.now < 10:
            path.unlink()
            waits(driver(path, Time(), rate(60)))

    time.meanwhile = begin_anew
    assert waits(one) <= LOOK_S


def test_a_folder_that_cannot_be_used_paces_this_driver_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    one = driver(tmp_path / "file" / "x.pace", Time(), rate(60))
    assert [waits(one) for _ in range(3)] == pytest.approx([0, 1, 1])
    one.book_refusal(one.acquire(lambda: 0), {}, AFTER_7, 0.0)
    assert waits(one) == pytest.approx(7, abs=0.1)
    for _ in range(DOWN_AFTER):
        one.book_failure()
    assert one.wait_while_down(1800) == pytest.approx(5)


# --- in requests ------------------------------------------------------------------------------------------------

BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
GOOD = Answer(body=completion())


def client(url: str, time: Time, shared: Path | None = None, attempts: list[Attempt] | None = None) -> Client:
    return Client(
        EndpointTarget(url, "m", ("sk-key",), "K"),
        shared=shared,
        on_attempt=(attempts if attempts is not None else []).append,
        sleep=time.sleep,
        clock=time.clock,
        jitter=lambda: 1.0,
    )


def test_a_request_outlives_many_refusals() -> None:
    """More than any other fault is repeated; all of the waiting is the provider's."""
    time = Time()
    with ScriptedServer(answers=[*[Answer(429, {})] * 30, GOOD]) as server, client(server.url, time) as one:
        found = one.ask(BODY, read_completion)
    assert found.retry_s == pytest.approx(time.now)
    assert found.retry_s == pytest.approx(2 + 4 + 8 + 27 * 15, abs=27)


def test_headers_of_answers_arrive() -> None:
    time, answer = Time(), Answer(body=completion(), headers=reported(60, 20))
    with ScriptedServer(answers=[answer]) as server, client(server.url, time) as one:
        retries = [one.ask(BODY, read_completion).retry_s for _ in range(4)]
    assert retries == pytest.approx([0, 0, 1, 1], abs=0.01)


def test_a_refusal_without_end_is_configured_up() -> None:
    time = Time()
    server = ScriptedServer(answers=[Answer(429, {}, {"retry-after": "300"})])
    with server, client(server.url, time) as one, pytest.raises(RequestGivenUp, match="rate_limit, status 429"):
        one.ask(BODY, read_completion)
    assert time.now == pytest.approx(1800, abs=6)


def test_a_request_survives_an_outage(tmp_path: Path) -> None:
    """Twelve failures are more than any request's attempts; all waiting counts as the provider's."""
    time, attempts = Time(), list[Attempt]()
    server = ScriptedServer(answers=[GOOD, *[Answer(503, {})] * 12, GOOD])
    with server, client(server.url, time, tmp_path, attempts) as one:
        one.ask(BODY, read_completion)
        found = one.ask(BODY, read_completion)
    assert [attempt.kind for attempt in attempts] == ["ok", *["server"] * 12, "ok"]
    assert found.retry_s == pytest.approx(time.now)
    # By hand: pauses of 2, 4, 8, 16 and 32 s until the endpoint is down, then waits of 5, 10, 20, 40, 80, 160, 300 s.
    assert time.now == pytest.approx(62 + 615, abs=1)


@pytest.mark.parametrize("patience_s, before", [(PATIENCE_S, [GOOD]), (NEW_PATIENCE_S, [])])
def test_waiting_is_bounded(tmp_path: Path, patience_s: float, before: list[Answer]) -> None:
    """An endpoint that has never replied is given up after minutes, and the message says so."""
    server = ScriptedServer(answers=[*before, Answer(503, {})])
    with server, client(server.url, Time(), tmp_path) as one, pytest.raises(RequestGivenUp) as caught:
        for _ in range(2):
            one.ask(BODY, read_completion)
    assert "has been down for" in str(caught.value) and "attempts failed" in str(caught.value)
    assert ("never replied: check base_url" in str(caught.value)) is (before == [])
    assert len(str(caught.value).splitlines()) <= 3
    assert caught.value.retry_s == pytest.approx(patience_s + 62, abs=1)


@pytest.mark.parametrize("status", [400, 401, 404, 429])
def test_an_endpoint_that_answers_is_not_down(tmp_path: Path, status: int) -> None:
    answers = [*[Answer(503, {})] * 3, Answer(status, {}, {"retry-after": "300"})]
    with (
        ScriptedServer(answers=answers) as server,
        client(server.url, Time(), tmp_path) as one,
        pytest.raises(RequestGivenUp),
    ):
        one.ask(BODY, read_completion)
    assert pace_in(next(tmp_path.glob("*.pace"))).failures == 0


def test_the_end_of_a_run_is_no_outage(tmp_path: Path) -> None:
    """What timed out was the run's own time."""
    with (
        ScriptedServer(answers=[Answer(body=completion(), delay_s=30)]) as server,
        client(server.url, Time(), tmp_path) as one,
        pytest.raises(RequestGivenUp) as caught,
    ):
        one.ask(BODY, read_completion, timeout_s=0.05)
    assert caught.value.run_over and list(tmp_path.iterdir()) == []


PROGRAM = """
import sys
from pathlib import Path
from automedbench.base.endpoint import pacer
from automedbench.base.endpoint.client import Client, EndpointTarget
from automedbench.base.endpoint.replies import read_completion
pacer.FIRST_RETRY_S, pacer.LONGEST_RETRY_S, pacer.LOOK_S = 0.1, 0.2, 0.05
target = EndpointTarget(sys.argv[1], "m", ("sk-key",), "K")
with Client(target, shared=Path(sys.argv[2]), jitter=lambda: 0.01) as client:
    print(client.ask({"model": "m", "messages": []}, read_completion).value.text)
"""


def test_processes_share_it(tmp_path: Path) -> None:
    """Four processes meet 40 failures: alone they would all give up after 32, eight attempts each."""
    with ScriptedServer(answers=[*(Answer(503, {}) for _ in range(40)), GOOD]) as server:
        programs = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, server.url, str(tmp_path)], stdout=subprocess.PIPE, text=True
            )
            for _ in range(4)
        ]
        assert [program.communicate(timeout=300)[0].strip() for program in programs] == ["hi"] * 4
        assert server.count() == 40 + 4
    assert json.loads(next(tmp_path.glob("*.pace")).read_text())["failures"] == 0


# --- all together -----------------------------------------------------------------------------------------------


@dataclass
class Bucket:
    """A provider: ``per_minute`` requests, of which it has ``size`` in store at most; it may tell its limits."""

    per_minute: Callable[[float], float]
    size: float
    tells: bool = False
    level: float = field(init=False)
    at: float = 0.0
    allowed: float = 0.0
    refused: int = 0

    def __post_init__(self) -> None:
        self.level = self.size

    def ask(self, moment: float) -> tuple[bool, dict[str, str]]:
        per_minute = self.per_minute(moment)
        fresh, self.at = (moment - self.at) * per_minute / 60, moment
        self.allowed += fresh
        self.level = min(self.size, self.level + fresh)
        answered = self.level >= 1
        self.level -= answered
        self.refused += not answered
        return answered, reported(per_minute, int(self.level)) if self.tells else {}


class Stage:
    """A virtual clock for threads, one of which runs at a time: the one that has slept out first."""

    def __init__(self) -> None:
        self.now, self._number = 0.0, itertools.count()
        self._sleepers: list[tuple[float, int, threading.Event]] = []
        self._over, self._errors = threading.Event(), list[BaseException]()

    def clock(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        bed = self._bed(seconds)
        self._wake_next()
        bed.wait()

    def run(self, acts: list[Callable[[], None]]) -> None:
        """Play all acts to their ends."""
        for act in acts:
            threading.Thread(target=self._play, args=(act, self._bed(0.0)), daemon=True).start()
        self._wake_next()
        self._over.wait()
        assert not self._errors, self._errors

    def _play(self, act: Callable[[], None], bed: threading.Event) -> None:
        bed.wait()
        try:
            act()
        except BaseException as error:
            self._errors.append(error)
        self._wake_next()

    def _bed(self, seconds: float) -> threading.Event:
        bed = threading.Event()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._number), bed))
        return bed

    def _wake_next(self) -> None:
        if self._sleepers and not self._errors:
            self.now, _, bed = heapq.heappop(self._sleepers)
            bed.set()
        else:
            self._over.set()


START_S, WAKE_LATE_S, OPERATION_S, ANSWER_S = (0.0, 0.5), (0.0, 0.3), (0.001, 0.020), (0.1, 0.6)


class SlowPacer(Pacer):
    """On a busy file server: lock, read, write and rename take their time, and who has the lock keeps it for that."""

    stage: Stage
    dice = random.Random(2)

    def _read(self) -> Pace:
        self.stage.spend(self.dice.uniform(*OPERATION_S))
        return super()._read()

    def _write(self, pace: Pace) -> None:
        self.stage.spend(self.dice.uniform(*OPERATION_S) + self.dice.uniform(*OPERATION_S))
        super()._write(pace)

    def _lock(self) -> float | None:
        since = super()._lock()
        self.stage.spend(self.dice.uniform(*OPERATION_S))
        return since


def storm(
    stage: Stage, path: Path, bucket: Bucket, drivers: int, given: RateLimits | None, warm_s: float, end_s: float
) -> tuple[float, float]:
    """Share of what was allowed that was used, and Jain's index over drivers, from ``warm_s`` to ``end_s``.

    Drivers wake up late, as on a busy machine; refusals come at once, answers later.
    """
    dice, counts, marks = random.Random(1), [0] * drivers, list[tuple[float, list[int]]]()

    def oversleep(seconds: float) -> None:
        stage.spend(seconds + dice.uniform(*WAKE_LATE_S))

    def drive(number: int) -> None:
        one = SlowPacer(path, given, sleep=oversleep, clock=stage.clock, jitter=dice.random)
        stage.spend(dice.uniform(*START_S))
        while stage.now < end_s:
            turn = one.acquire(lambda: 0)
            answered, headers = bucket.ask(stage.now)
            counts[number] += answered
            if answered:
                stage.spend(dice.uniform(*ANSWER_S))
                one.book_answer(turn, headers, None)
            else:
                one.book_refusal(turn, headers, REFUSED, 0.0)

    def watch() -> None:
        for seconds in (warm_s, end_s - warm_s):
            stage.spend(seconds)
            marks.append((bucket.allowed, list(counts)))

    stage.run([watch, *(functools.partial(drive, number) for number in range(drivers))])
    (before, at_first), (after, at_last) = marks
    found = [last - first for first, last in zip(at_first, at_last, strict=True)]
    return sum(found) / (after - before), sum(found) ** 2 / (drivers * sum(count**2 for count in found))


STORMS: dict[str, tuple[Bucket, RateLimits | None, float, float]] = {
    "given": (Bucket(lambda _: 300, 5), rate(300), 0, 60),
    "told": (Bucket(lambda _: 300, 30, tells=True), None, 0, 60),
    "told, little in store": (Bucket(lambda _: 600, 5, tells=True), None, 0, 40),
    "felt": (Bucket(lambda _: 300, 10), None, 40, 120),
    "told, raised": (Bucket(lambda moment: 150 if moment < 30 else 300, 15, tells=True), None, 0, 90),
    "felt, raised": (Bucket(lambda moment: 100 if moment < 40 else 300, 20), None, 100, 160),
}


@pytest.mark.parametrize("name", STORMS)
def test_a_storm_uses_what_is_allowed_and_is_fair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Sixty drivers that ask without a break; the bar is 95 % of what is allowed and an index of 0.9."""
    bucket, given, warm_s, end_s = STORMS[name]
    stage = Stage()
    monkeypatch.setattr(SlowPacer, "stage", stage, raising=False)
    monkeypatch.setattr(SlowPacer, "dice", random.Random(2))
    random.seed(3)
    used, jain = storm(stage, tmp_path / "x.pace", bucket, 60, given, warm_s, end_s)
    assert used >= 0.95, used
    assert jain >= 0.9, jain
    assert bucket.refused <= 120


def test_a_dead_endpoint_is_asked_by_each_driver_once_in_five_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty drivers fail together; half an hour later the endpoint is back, and all know it soon."""
    stage, dice, dead_s = Stage(), random.Random(1), 1740.0
    asked: list[list[float]] = [[] for _ in range(60)]
    monkeypatch.setattr(SlowPacer, "stage", stage, raising=False)

    def drive(number: int) -> None:
        one = SlowPacer(tmp_path / "x.pace", sleep=stage.spend, clock=stage.clock, jitter=dice.random)
        stage.spend(dice.uniform(*START_S))
        while True:
            assert one.wait_while_down(PATIENCE_S) < PATIENCE_S
            asked[number].append(stage.now)
            stage.spend(dice.uniform(*ANSWER_S))
            if stage.now > dead_s:
                return one.book_answer(Turn(), {}, None)
            if not one.book_failure():
                stage.spend(2.0)  # of the client, before the endpoint is known to be down

    stage.run([functools.partial(drive, number) for number in range(60)])
    for moments in asked:
        first = [moment for moment in moments if moment < 2.0 + 2 * LONGEST_RETRY_S]
        later = [moment for moment in moments if 2.0 + LONGEST_RETRY_S <= moment < dead_s]
        assert len(first) <= 4  # at once, after 2 s, within the first five minutes, and in the next five
        assert all(after - before >= LONGEST_RETRY_S for before, after in itertools.pairwise(later))
        assert moments[-1] <= dead_s + 30
