"""The limiter that drivers share: what providers tell, whose turn it is, and a storm of drivers on a virtual clock."""

from __future__ import annotations

import functools
import heapq
import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from automedbench.base.endpoint.client import Client, GivenUp, Target
from automedbench.base.endpoint.faults import Fault, retry_after
from automedbench.base.endpoint.limiter import DEAD_AFTER_S, LOCK_DEAD_S, Limiter, Queue, _QueueFile
from automedbench.base.endpoint.rate_headers import RateLimits, ReportedLimits, duration_s, read_rate_limits
from automedbench.base.endpoint.replies import read_completion
from automedbench.base.records import Tokens
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer, completion

# --- what providers tell ----------------------------------------------------------------------------------------


def rate(requests: float | None = None, tokens: float | None = None) -> RateLimits:
    return RateLimits(requests_per_minute=requests, tokens_per_minute=tokens)


def xrate(kind: str, limit: float, left: float, reset: str) -> dict[str, str]:
    return {
        f"x-ratelimit-limit-{kind}": f"{limit:g}",
        f"x-ratelimit-remaining-{kind}": f"{left:g}",
        f"x-ratelimit-reset-{kind}": reset,
    }


ANTHROPIC = {
    "anthropic-ratelimit-requests-limit": "1000",
    "anthropic-ratelimit-requests-remaining": "999",
    "anthropic-ratelimit-requests-reset": "2025-08-21T12:40:59Z",
    "anthropic-ratelimit-tokens-limit": "96000",
    "anthropic-ratelimit-tokens-remaining": "40000",
    "anthropic-ratelimit-input-tokens-limit": "80000",
}
# Shapes as the providers' public documentation gives them; per minute by hand.
HEADERS: dict[str, tuple[dict[str, str], ReportedLimits]] = {
    "nothing": ({"content-type": "application/json"}, ReportedLimits()),
    "OpenAI": (
        xrate("requests", 500, 499, "120ms") | xrate("tokens", 30000, 29000, "2s"),
        ReportedLimits(rate(500, 30000)),
    ),
    "half of it used": (xrate("tokens", 30000, 15000, "30s"), ReportedLimits(rate(None, 30000), pressing=True)),
    # 30 of 14,400 a day are missing and back in 180 s; the 14,370 others may go at once, in these three minutes.
    "a limit per day, full": (xrate("requests", 14400, 14370, "3m0s"), ReportedLimits(rate(4790))),
    # All used, full again after a day: 14,400 / 1,440 minutes.
    "a limit per day, used": (xrate("requests", 14400, 0, "24h0m0s"), ReportedLimits(rate(10), pressing=True)),
    "Anthropic": (ANTHROPIC, ReportedLimits(rate(1000, 96000), pressing=True, cached_free=True)),
    "Mistral": (
        {
            "x-ratelimit-limit-tokens-minute": "5000000",
            "x-ratelimit-remaining-tokens-minute": "4999911",
            "x-ratelimit-limit-req-minute": "720",
            "x-ratelimit-remaining-req-minute": "717",
        },
        ReportedLimits(rate(720, 5000000)),
    ),
    "nonsense": (xrate("requests", 0, -1, "soon") | {"x-ratelimit-limit-tokens": "many"}, ReportedLimits()),
    "infinite": ({"x-ratelimit-limit-requests": "inf", "x-ratelimit-limit-tokens": "nan"}, ReportedLimits()),
}
GEMINI = """[{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [
  {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [
    {"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "quotaValue": "10"},
    {"quotaId": "GenerateContentInputTokensPerModelPerMinute-FreeTier", "quotaValue": "250000"},
    {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "250"}]},
  {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]}}]"""


@pytest.mark.parametrize(("headers", "expected"), HEADERS.values(), ids=HEADERS.keys())
def test_headers_are_read(headers: dict[str, str], expected: ReportedLimits) -> None:
    assert read_rate_limits(headers) == expected


def test_a_refusal_of_gemini_is_read() -> None:
    assert read_rate_limits({}, GEMINI).rate == rate(10, 250000)
    assert retry_after({}, body=GEMINI) == 34.5
    for broken in (GEMINI[:200], "quotaId", '{"quotaId": [' * 2000, '{"quotaId": 5}'):
        assert read_rate_limits({}, broken) == ReportedLimits()


def test_what_is_asked_to_wait() -> None:
    """Milliseconds are finer than the seconds beside them; what is told in headers counts before the body."""
    assert retry_after({"retry-after": "2", "retry-after-ms": "1250"}) == 1.25
    assert retry_after({"retry-after": "2"}, body=GEMINI) == 2
    assert retry_after({"retry-after-ms": "nan", "retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, 1767268800) == 30


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("6m0s", 360), ("120ms", 0.12), ("1h2m3.5s", 3723.5), ("7", 7), ("", None), ("2025-08-21T12:40:59Z", None)],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert duration_s(text) == (None if seconds is None else pytest.approx(seconds))


# --- turns ------------------------------------------------------------------------------------------------------


class Time:
    """A clock that moves when a driver sleeps, and what else happens meanwhile."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.meanwhile: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()

    def clock(self) -> float:
        return self.now


def driver(path: Path | None, time: Time, given: RateLimits | None = None) -> Limiter:
    return Limiter(path, given, sleep=time.sleep, clock=time.clock, jitter=lambda: 1.0)


def waits(one: Limiter, tokens: int = 0) -> float:
    return one.acquire(lambda: tokens).waited_s


REFUSED = Fault("rate_limit", 429, "")
AFTER_7 = Fault("rate_limit", 429, "", 7.0)


def test_nothing_known_nothing_written(tmp_path: Path) -> None:
    one = driver(tmp_path / "x.rate", Time())
    for _ in range(3):
        turn = one.acquire(lambda: pytest.fail("tokens are counted only where they are limited"))
        one.answered(turn, xrate("requests", 500, 400, "1s"), Tokens(prompt=5))
        assert turn.waited_s == 0
    assert list(tmp_path.iterdir()) == []


def test_given_requests(tmp_path: Path) -> None:
    """30 a minute: one every two seconds, whoever asks; the clocks of two machines have nothing in common.

    The other driver cannot know that the file is two seconds old, but comes no sooner than allowed.
    """
    one = driver(tmp_path / "x.rate", Time(), rate(30))
    assert [waits(one) for _ in range(3)] == pytest.approx([0, 2, 2])
    other = driver(tmp_path / "x.rate", Time(1e6), rate(30))
    assert waits(other) == pytest.approx(4)
    assert [path.name for path in tmp_path.iterdir()] == ["x.rate"]


def test_given_tokens(tmp_path: Path) -> None:
    """600 a minute are 10 a second; what a request used beyond its estimate is charged to the next one."""
    one = driver(tmp_path / "x.rate", Time(), rate(None, 600))
    turn = one.acquire(lambda: 100)
    one.answered(turn, {}, Tokens(prompt=120, completion=30))
    assert waits(one, 20) == pytest.approx(10)
    assert waits(one, 0) == pytest.approx((20 + 50) / 10)


def test_cached_tokens_are_free_where_the_provider_says_so() -> None:
    """Anthropic counts none; what was charged too much is given back."""
    one = driver(None, Time(), rate(None, 6000))
    one.answered(one.acquire(lambda: 1000), ANTHROPIC, Tokens(prompt=1000, cached=900))
    assert one.acquire(lambda: 1000).tokens == 100


def test_a_request_larger_than_a_minute_goes_through() -> None:
    one = driver(None, Time(), rate(None, 600))
    assert waits(one, 10**9) == 0
    assert waits(one, 1) == pytest.approx(60)


def test_told_limits_count_when_half_is_used(tmp_path: Path) -> None:
    one = driver(tmp_path / "x.rate", Time())
    one.answered(one.acquire(lambda: 0), xrate("requests", 60, 30, "30s"), None)
    assert [waits(one) for _ in range(3)] == pytest.approx([0, 1, 1])
    one.answered(one.acquire(lambda: 0), xrate("requests", 600, 599, "1s"), None)
    assert waits(one) <= 1
    assert waits(one) == pytest.approx(0.1)


def test_a_given_limit_is_never_exceeded() -> None:
    one = driver(None, Time(), rate(30))
    one.answered(one.acquire(lambda: 0), xrate("requests", 600, 10, "59s"), None)
    assert [waits(one) for _ in range(2)] == pytest.approx([2, 2])


def test_a_pause_that_is_asked_for_holds_for_all(tmp_path: Path) -> None:
    time = Time()
    one, other = (driver(tmp_path / "x.rate", time, rate(600)) for _ in range(2))
    one.refused(one.acquire(lambda: 0), {}, AFTER_7, 0.0)
    before = time.now
    assert waits(other) == pytest.approx(7, abs=0.2)
    assert waits(one) == pytest.approx(0.1, abs=0.1)
    assert time.now - before >= 7


def test_refusals_in_a_row_without_answer_wait_longer() -> None:
    """By hand with a jitter of 1: 2, 4, 8, then 15 s; an answer ends that."""
    one, found = driver(None, Time()), []
    for _ in range(5):
        turn = one.acquire(lambda: 0)
        found.append(turn.waited_s)
        one.refused(turn, {}, REFUSED, 0.0)
    found.append(waits(one))
    assert found == pytest.approx([0, 2, 4, 8, 15, 15], abs=0.1)


def test_refusals_slow_down_once_per_round() -> None:
    """Ten requests under way are refused together: that is one sign, not ten."""
    one = driver(None, Time(), rate(600))
    turns = [one.acquire(lambda: 0) for _ in range(10)]
    one.answered(turns[0], {}, None)
    for turn in turns[1:]:
        one.refused(turn, {}, REFUSED, 0.0)
    assert one._seen.speed == pytest.approx(0.9)


def test_endpoints_models_and_keys_are_kept_apart(tmp_path: Path) -> None:
    from automedbench.base.endpoint.client import _limiter_files

    target = Target("http://a.example/v1", "m", ("sk-canary-1", "sk-canary-2"), "KEYS")
    files = [
        *_limiter_files(target, tmp_path),
        *_limiter_files(Target("http://b.example/v1", "m", ("sk-canary-1",), "KEYS"), tmp_path),
        *_limiter_files(Target("http://a.example/v1", "n", ("sk-canary-1",), "KEYS"), tmp_path),
    ]
    assert len(set(files)) == 4
    assert files[0] == _limiter_files(Target("http://a.example/v1", "m", ("another",), "KEYS"), tmp_path)[0]
    one, other = driver(files[0], Time(), rate(1)), driver(files[1], Time(), rate(1))
    assert [waits(one), waits(other), waits(one)] == pytest.approx([0, 0, 60])


# --- what breaks ------------------------------------------------------------------------------------------------


def test_places_of_the_dead_are_given_away(tmp_path: Path) -> None:
    """Twenty drivers were killed while they waited: without them the twenty-first would wait 20 minutes."""
    path, time = tmp_path / "x.rate", Time()
    for _ in range(21):
        driver(path, time, rate(1)).join(lambda: 0)
    assert len(Queue.model_validate_json(path.read_bytes()).places) == 20
    assert waits(driver(path, time, rate(1))) <= DEAD_AFTER_S + 2 * 60


def test_the_living_keep_their_places(tmp_path: Path) -> None:
    """A driver that waits for ten minutes shows that it lives; the one behind it comes after it."""
    path, time = tmp_path / "x.rate", Time()
    first, second = driver(path, time, rate(1)), driver(path, time, rate(1))
    for _ in range(10):
        driver(path, time, rate(1)).join(lambda: 0)
    first.join(lambda: 0)
    second.join(lambda: 0)
    time_left = {}
    while not {"first", "second"} <= time_left.keys():
        time.now += 5
        for name, one in (("first", first), ("second", second)):
            one.look(time.now)
            if one.left() <= 0:
                time_left.setdefault(name, time.now)
    assert time_left["second"] - time_left["first"] == pytest.approx(60, abs=6)
    assert time_left["second"] <= DEAD_AFTER_S + 3 * 60


def test_a_lock_of_the_dead_is_removed(tmp_path: Path) -> None:
    time = Time()
    (tmp_path / "x.lock").write_text("")
    assert waits(driver(tmp_path / "x.rate", time, rate(60))) == 0
    assert time.now == pytest.approx(LOCK_DEAD_S, abs=0.5)
    assert [path.name for path in tmp_path.iterdir()] == ["x.rate"]


def test_a_lock_that_is_used_is_let_be(tmp_path: Path) -> None:
    """Others come and go: the file behind the lock changes, so no one is dead."""
    path, time = tmp_path / "x.rate", Time()
    lock, numbers = tmp_path / "x.lock", itertools.count(1)
    lock.write_text("")

    def others() -> None:
        path.write_text(Queue(writes=next(numbers)).model_dump_json())
        if time.now > 60:
            lock.unlink(missing_ok=True)

    time.meanwhile = others
    waits(driver(path, time, rate(60)))
    assert time.now > 60


@pytest.mark.parametrize("content", [b"", b"{", b'{"speed": "fast"}', b'{"another": 1}'])
def test_a_damaged_file_stops_no_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.rate"
    one = driver(path, Time(), rate(60))
    waits(one)
    path.write_bytes(content)
    assert waits(one) <= 2
    assert waits(one) == pytest.approx(1)


def test_a_folder_that_cannot_be_used_limits_this_driver_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    one = driver(tmp_path / "file" / "x.rate", Time(), rate(60))
    assert [waits(one) for _ in range(3)] == pytest.approx([0, 1, 1])
    one.refused(one.acquire(lambda: 0), {}, AFTER_7, 0.0)
    assert waits(one) == pytest.approx(7, abs=0.1)


# --- in requests ------------------------------------------------------------------------------------------------


def client(url: str, time: Time, **options: Any) -> Client:
    target = Target(url, "m", ("sk-key",), "K", **options)
    return Client(target, sleep=time.sleep, clock=time.clock, jitter=lambda: 1.0)


BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def test_a_request_outlives_many_refusals() -> None:
    """More than any other fault is repeated; all of the waiting is the provider's."""
    time = Time()
    answers = [*[Answer(429, {})] * 30, Answer(body=completion())]
    with ScriptedServer(answers=answers) as server, client(server.url, time) as one:
        found = one.ask(BODY, read_completion)
    assert found.retry_s == pytest.approx(time.now)
    assert found.retry_s == pytest.approx(2 + 4 + 8 + 27 * 15, abs=1)


def test_headers_of_answers_arrive() -> None:
    time = Time()
    headers = xrate("requests", 60, 20, "40s")
    with (
        ScriptedServer(answers=[Answer(body=completion(), headers=headers)]) as server,
        client(server.url, time) as one,
    ):
        retries = [one.ask(BODY, read_completion).retry_s for _ in range(4)]
    assert retries == pytest.approx([0, 0, 1, 1], abs=0.01)


def test_anyones_answer_is_a_sign(tmp_path: Path) -> None:
    """This driver is refused for hours, but another one is answered."""
    path, time = tmp_path / "x.rate", Time()
    one, other = driver(path, time, rate(60)), driver(path, time, rate(60))
    for minute in range(300):
        one.refused(one.acquire(lambda: 0), {}, Fault("rate_limit", 429, "", 60.0), 0.0)
        if minute < 200:
            other.answered(other.acquire(lambda: 0), {}, None)
            assert one.is_patient(1800.0)
    assert not one.is_patient(1800.0)


def test_a_refusal_without_end_is_given_up() -> None:
    time = Time()
    server = ScriptedServer(answers=[Answer(429, {}, {"retry-after": "300"})])
    with server, client(server.url, time) as one, pytest.raises(GivenUp, match="rate_limit, status 429"):
        one.ask(BODY, read_completion)
    assert time.now == pytest.approx(1800, abs=1)


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
        return answered, xrate("requests", per_minute, int(self.level), "1s") if self.tells else {}


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


def slow_files(stage: Stage, dice: random.Random) -> type[_QueueFile]:
    """Files on a busy server: lock, read, write and rename take their time, and who has the lock keeps it for that."""

    class SlowFile(_QueueFile):
        def read(self) -> Queue:
            stage.spend(dice.uniform(*OPERATION_S))
            return super().read()

        def _write(self, path: Path, queue: Queue) -> None:
            stage.spend(dice.uniform(*OPERATION_S) + dice.uniform(*OPERATION_S))
            super()._write(path, queue)

        def _lock(self) -> float | None:
            since = super()._lock()
            stage.spend(dice.uniform(*OPERATION_S))
            return since

    return SlowFile


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
        one = Limiter(path, given, sleep=oversleep, clock=stage.clock, jitter=dice.random)
        stage.spend(dice.uniform(*START_S))
        while stage.now < end_s:
            turn = one.acquire(lambda: 0)
            answered, headers = bucket.ask(stage.now)
            counts[number] += answered
            if answered:
                stage.spend(dice.uniform(*ANSWER_S))
                one.answered(turn, headers, None)
            else:
                one.refused(turn, headers, REFUSED, 0.0)

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
    """Sixty drivers that ask without a break; the bar is 95 % of what is allowed and an index of 0.95."""
    bucket, given, warm_s, end_s = STORMS[name]
    stage = Stage()
    monkeypatch.setattr("automedbench.base.endpoint.limiter._QueueFile", slow_files(stage, random.Random(2)))
    random.seed(3)
    used, jain = storm(stage, tmp_path / "x.rate", bucket, 60, given, warm_s, end_s)
    assert used >= 0.95, used
    assert jain >= 0.95, jain
    assert bucket.refused <= 60
