"""The circuit breaker that processes share: when it opens, who probes, who waits, and for how long."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from automedbench.agent.models.endpoint import EndpointModel
from automedbench.agent.models.model import ChatMessage, EndpointError, Reply
from automedbench.base.endpoint import client
from automedbench.base.endpoint.client import (
    DEAD_AFTER_S,
    OPEN_AFTER,
    Admission,
    Attempt,
    EndpointDown,
    EndpointHealth,
    probe_after_s,
)
from automedbench.campaign.agents import Agent
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer, completion

URL = "https://host.example/v1"
GOOD = Answer(body=completion())
HELLO = [ChatMessage("user", "hello")]


class Time:
    """A clock that moves when somebody sleeps, and whatever else happens meanwhile."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meanwhile: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()

    def clock(self) -> float:
        return self.now


def process(folder: Path, time: Time | None = None) -> EndpointHealth:
    """The breaker as another process sees it; its clock starts anywhere."""
    time = time or Time()
    return EndpointHealth(folder, URL, sleep=time.sleep, clock=time.clock)


def fail(folder: Path, times: int = OPEN_AFTER) -> None:
    """Failures of several processes, one each."""
    for _ in range(times):
        process(folder).report(alive=False)


def test_nothing_known_nothing_waited(tmp_path: Path) -> None:
    assert process(tmp_path).admit(0.0) == Admission()
    assert list(tmp_path.iterdir()) == []


def test_failures_of_all_processes_open_it(tmp_path: Path) -> None:
    fail(tmp_path, OPEN_AFTER - 1)
    assert process(tmp_path).admit(0.0) == Admission()
    fail(tmp_path, 1)
    with pytest.raises(EndpointDown, match=r"host\.example/v1 has been down for 0 min"):
        process(tmp_path).admit(0.0)


def test_a_good_answer_starts_the_count_anew(tmp_path: Path) -> None:
    fail(tmp_path, OPEN_AFTER - 1)
    process(tmp_path).report(alive=True)
    fail(tmp_path, OPEN_AFTER - 1)
    assert process(tmp_path).admit(0.0) == Admission()


def test_endpoints_are_kept_apart(tmp_path: Path) -> None:
    fail(tmp_path)
    assert EndpointHealth(tmp_path, "https://host.example/v2").admit(0.0) == Admission()


def test_one_probes_the_others_wait(tmp_path: Path) -> None:
    fail(tmp_path)
    time = Time()
    one, other = process(tmp_path, time), process(tmp_path, time)
    admitted = one.admit(1000)
    assert admitted.probe
    assert admitted.waited_s == pytest.approx(probe_after_s(0), abs=1)
    with pytest.raises(EndpointDown) as caught:
        other.admit(100)
    assert caught.value.waited_s == pytest.approx(100, abs=1)


def test_a_probe_that_succeeds_lets_all_go_on(tmp_path: Path) -> None:
    fail(tmp_path)
    one = process(tmp_path)
    assert one.admit(1000).probe
    time = Time()
    time.meanwhile = lambda: one.report(alive=True) if time.now > 20 else None
    assert process(tmp_path, time).admit(1000) == Admission(waited_s=21.0)
    assert process(tmp_path).admit(0.0) == Admission()
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_probes_become_rarer(tmp_path: Path) -> None:
    """5, 10, 20, … s apart, at most 300."""
    fail(tmp_path)
    time = Time()
    health = process(tmp_path, time)
    waits = []
    for _ in range(8):
        waits.append(health.admit(10_000).waited_s)
        health.report(alive=False)
    assert waits == pytest.approx([5, 10, 20, 40, 80, 160, 300, 300], abs=1)


def test_a_newcomer_tries_soon(tmp_path: Path) -> None:
    """The state may be of yesterday: whoever starts the command again does not wait minutes."""
    fail(tmp_path)
    health = process(tmp_path)
    for _ in range(8):
        health.admit(10_000)
        health.report(alive=False)
    assert process(tmp_path).admit(1000).waited_s == pytest.approx(5, abs=1)


def test_a_prober_that_died_is_replaced(tmp_path: Path) -> None:
    """Its claim stays behind; nothing but the watcher's own clock decides."""
    fail(tmp_path)
    assert process(tmp_path).admit(1000).probe
    admitted = process(tmp_path).admit(10_000)
    assert admitted.probe
    assert admitted.waited_s == pytest.approx(5 + DEAD_AFTER_S + probe_after_s(1), abs=5)


def test_a_late_failure_is_no_probe(tmp_path: Path) -> None:
    """An attempt that began before the outage was known must not move the probes on."""
    fail(tmp_path)
    before = process(tmp_path).state()
    process(tmp_path).report(alive=False)
    assert process(tmp_path).state() == before


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[:30]),
    "another version": lambda path: path.write_text(json.dumps({"failures": "many"})),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_stops_nobody(tmp_path: Path, damage: Callable[[Path], Any]) -> None:
    fail(tmp_path)
    damage(next(tmp_path.glob("*.json")))
    assert process(tmp_path).admit(0.0) == Admission()
    fail(tmp_path)
    with pytest.raises(EndpointDown):
        process(tmp_path).admit(0.0)


def test_an_unusable_folder_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    health = process(tmp_path / "file")
    for _ in range(OPEN_AFTER + 1):
        health.report(alive=False)
    assert health.admit(0.0) == Admission()


# --- in requests -----------------------------------------------------------------------------------------------


def model(url: str, folder: Path, time: Time, attempts: list[Attempt] | None = None) -> EndpointModel:
    agent = Agent(provider="openai", model="m", base_url=url, api_key_env="K")
    return EndpointModel(
        agent,
        ["sk-key"],
        health=EndpointHealth(folder, url, sleep=time.sleep, clock=time.clock),
        on_attempt=(attempts if attempts is not None else []).append,
        sleep=time.sleep,
        clock=time.clock,
        jitter=lambda: 1.0,
    )


def reply(one: EndpointModel) -> Reply:
    with one:
        return one.reply(HELLO, [], 3600)


def test_a_request_survives_an_outage(tmp_path: Path) -> None:
    """Twelve failures are more than any request's attempts; all waiting counts as the provider's."""
    down = [Answer(503, {}) for _ in range(12)]
    time, attempts = Time(), list[Attempt]()
    with ScriptedServer(answers=[*down, GOOD]) as server:
        found = reply(model(server.url, tmp_path, time, attempts))
    assert [attempt.kind for attempt in attempts] == ["server"] * 12 + ["ok"]
    assert found.retry_s == pytest.approx(time.now)
    # By hand: pauses 2, 4, 8, 16, 32, 60 until the breaker opens, then probes after 5, 10, 20, 40, 80, 160, 300.
    assert time.now == pytest.approx(122 + 615, abs=8)


def test_waiting_is_bounded(tmp_path: Path) -> None:
    time = Time()
    with ScriptedServer(answers=[Answer(503, {})]) as server, pytest.raises(EndpointError) as caught:
        reply(model(server.url, tmp_path, time))
    assert "has been down for" in str(caught.value) and "probes failed" in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3
    assert caught.value.retry_s == pytest.approx(client.PATIENCE_S + 122, rel=0.2)


@pytest.mark.parametrize("status", [400, 401, 404, 429])
def test_an_endpoint_that_answers_is_not_down(tmp_path: Path, status: int) -> None:
    """Refusing one agent, or asking for patience, says that somebody is there."""
    with ScriptedServer(answers=[Answer(status, {})]) as server:
        for _ in range(OPEN_AFTER if status != 429 else 1):  # which one request meets more than a hundred times
            with pytest.raises(EndpointError):
                reply(model(server.url, tmp_path, Time()))
        assert EndpointHealth(tmp_path, server.url).state().outage is None


def test_the_end_of_a_run_is_no_outage(tmp_path: Path) -> None:
    """What timed out was the run's own time."""
    with ScriptedServer(answers=[Answer(body=completion(), delay_s=30)]) as server:
        for _ in range(OPEN_AFTER):
            with model(server.url, tmp_path, Time()) as one, pytest.raises(Exception, match="the run's time"):
                one.reply(HELLO, [], 0.05)
        assert EndpointHealth(tmp_path, server.url).state().failures == 0


PROGRAM = """
import sys
from automedbench.agent.models.model import ChatMessage
from automedbench.agent.models.endpoint import EndpointModel
from automedbench.campaign.agents import Agent
from automedbench.base.endpoint import client as health
from automedbench.base.endpoint.client import EndpointHealth
from pathlib import Path
health.FIRST_PROBE_S, health.LONGEST_PROBE_S, health.POLL_S = 0.1, 0.2, 0.05
url, folder = sys.argv[1:]
agent = Agent(provider="openai", model="m", base_url=url, api_key_env="K")
with EndpointModel(agent, ["sk-key"], health=EndpointHealth(Path(folder), url), jitter=lambda: 0.01) as model:
    print(model.reply([ChatMessage("user", "hello")], [], 600).content)
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
        said = [program.communicate(timeout=300)[0].strip() for program in programs]
        assert server.count() == 40 + 4
        assert EndpointHealth(tmp_path, server.url).state().failures == 0
    assert said == ["hi"] * 4
