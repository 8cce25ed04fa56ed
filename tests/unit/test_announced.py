"""Own servers: what their files may say, which one is asked, and how another is found when one goes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from automedbench.agent.models.endpoint import EndpointModel
from automedbench.agent.models.model import ChatMessage, EndpointError, Reply
from automedbench.agent.models.scripted import ScriptedTurn
from automedbench.base.endpoint.announced import Announcement, Servers, announced_in, read_replicas
from automedbench.base.endpoint.client import OPEN_AFTER, PATIENCE_S, Attempt, EndpointHealth
from automedbench.base.endpoint.transport import Deadline, make_http_client, trouble_of
from automedbench.base.errors import ConfigError
from automedbench.base.files import write_record
from automedbench.base.records import now
from automedbench.campaign.agents import Agent, JudgeModel
from automedbench.judge.panel.member import JudgeEndpoint
from automedbench_rehearsal.model_server.http import HttpServer
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer, completion

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-canary-0123456789"


def announce(folder: Path, name: str, url: str, **told: Any) -> Path:
    path = folder / f"{name}.json"
    write_record(path, Announcement(url=url, started_at=now(), **told))
    path.chmod(0o600)
    return path


def agent_of(place: Path, **changes: Any) -> Agent:
    return Agent.model_validate(
        {"provider": "openai", "model": "m", "endpoint_file": str(place), "api_key_env": "K"} | changes
    )


class Clock:
    """A clock that moves when one sleeps; ``meanwhile`` happens then."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.now, self.meanwhile = 0.0, meanwhile
        self.attempts: list[Attempt] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()

    def model(self, agent: Agent, asker: str = "run", health: EndpointHealth | None = None) -> EndpointModel:
        return EndpointModel(
            agent,
            [KEY],
            on_attempt=self.attempts.append,
            health=health,
            asker=asker,
            sleep=self.sleep,
            clock=lambda: self.now,
            jitter=lambda: 1.0,
        )


def ask(model: EndpointModel) -> Reply:
    return model.reply([ChatMessage("user", "hello")], [], 3600)


def server(text: str = "done") -> ScriptedServer:
    """Says ``text`` and lists the model m; it has no /health."""
    return ScriptedServer({"m": [ScriptedTurn(content=text)] * 9})


def closed_port() -> str:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{tried.getsockname()[1]}/v1"


# --- files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is no announcement"),
        ({"url": "file:///etc/passwd"}, "must be http"),
        ({"url": "ftp://node/v1"}, "must be http"),
        ({"url": "http:///v1"}, "must be http"),
        ({"url": "http://me:word@node/v1"}, "without credentials"),
        ({"url": "http://node/v1?to=elsewhere"}, "no query"),
        ({"url": "http://node:99999/v1"}, "is no announcement"),
        ({"url": "http://node/v1", "key": "x"}, "is no announcement"),
        ({"url": "http://node/v1", "model": "n"}, "serves 'n'"),
        ({"url": "http://node/v1", "schema": "automedbench/endpoint/2"}, "is no announcement"),
        ("[" * 100_000, "is no announcement"),
    ],
)
def test_what_is_no_address_is_passed_over(tmp_path: Path, text: Any, problem: str) -> None:
    told = {"schema": "automedbench/endpoint/1", "started_at": "2026-01-01T00:00:00Z"}
    (tmp_path / "bad.json").write_text(text if isinstance(text, str) else json.dumps(told | text))
    (tmp_path / "bad.json").chmod(0o600)
    (tmp_path / ".half.json.1a2b3c4d.tmp").write_text("{")
    announce(tmp_path, "good", "http://10.0.0.7:8000/v1/", model="m")
    bad, good = read_replicas(tmp_path, "m")
    assert bad.url == "" and problem in bad.problem
    assert good.url == "http://10.0.0.7:8000/v1"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = announce(tmp_path, "a", "http://node/v1")
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"a.json: is of user .* mode {mode:04o}; .*where the key is sent"):
        Clock().model(agent_of(tmp_path))


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = announce(tmp_path, "a", "http://node/v1")
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(ConfigError, match="is of user"):
        read_replicas(path, "m")


def test_a_file_that_becomes_writable_for_others_ends_the_request(tmp_path: Path) -> None:
    path = announce(tmp_path, "a", closed_port())
    clock = Clock(meanwhile=lambda: path.chmod(0o666))
    with clock.model(agent_of(tmp_path)) as model, pytest.raises(EndpointError, match="you alone may own"):
        ask(model)


def test_the_place_is_a_file_url(tmp_path: Path) -> None:
    place = tmp_path / "my model #1"
    assert announced_in(agent_of(place).address) == place
    assert announced_in("http://127.0.0.1:8000/v1") is None


# --- the choice -------------------------------------------------------------------------------------------------


def choices(folder: Path, dead: str = "") -> dict[str, str]:
    """Runs, and the replica that each begins with."""
    return {
        f"run-{number}": Servers(folder, "m", f"run-{number}").find(lambda url: "dead" if url == dead else "")
        for number in range(300)
    }


def test_runs_spread_and_stay(tmp_path: Path) -> None:
    """A replica that goes, or is dead, moves its own runs only; one that comes takes its share from all."""
    for name in "abcd":
        announce(tmp_path, name, f"http://{name}:1")
    first = choices(tmp_path)
    assert first == choices(tmp_path)
    # Binomial with n 300 and p 1/4: mean 75, standard deviation 7.5; four of them either way.
    assert set(first.values()) == {f"http://{name}:1" for name in "abcd"}
    assert all(45 <= count <= 105 for count in Counter(first.values()).values())
    without = choices(tmp_path, dead="http://a:1")
    assert {run for run in first if first[run] != without[run]} == {run for run in first if first[run] == "http://a:1"}
    announce(tmp_path, "e", "http://e:1")
    five = choices(tmp_path)
    assert {url for run, url in five.items() if url != first[run]} == {"http://e:1"}
    announce(tmp_path, "a", "http://a:2")  # the same replica, started again on another port
    assert choices(tmp_path) == {run: url.replace("a:1", "a:2") for run, url in five.items()}


# --- requests ---------------------------------------------------------------------------------------------------


def test_a_run_goes_on_with_another_server_and_finds_the_first_again(tmp_path: Path) -> None:
    """Killed, then back on another port: one failed attempt each time, no outage, and the key goes to these only."""
    place, clock = tmp_path / "served", Clock()
    health = EndpointHealth(tmp_path / "endpoints", agent_of(place).address, sleep=clock.sleep, clock=lambda: clock.now)
    announce(place, "gone", closed_port())
    with server("two") as two, clock.model(agent_of(place), health=health) as model:
        with server("one") as one:
            announce(place, "a", one.url)
            assert ask(model).content == "one"
            announce(place, "b", two.url)
            assert ask(model).content == "one"
        assert ask(model).content == "two"
        assert [attempt.kind for attempt in clock.attempts] == ["ok", "ok", "network", "ok"]
        announce(place, "a", closed_port())
        assert ask(model).content == "two"
        assert one.headers[0]["authorization"] == f"Bearer {KEY}"
    assert health.state().failures == 0


def test_after_a_fault_the_others_come_first(tmp_path: Path) -> None:
    """A server that says it is well, and answers no request."""
    clock = Clock()
    with ScriptedServer(answers=[Answer(500, {})]) as bad, server() as good:
        announce(tmp_path, "a", bad.url)
        announce(tmp_path, "b", good.url)
        first = [name for name in "stuvwxyz" if Servers(tmp_path, "m", name).find(lambda _: "") == bad.url]
        with clock.model(agent_of(tmp_path), asker=first[0]) as model:
            assert ask(model).content == "done"
    assert [attempt.kind for attempt in clock.attempts] == ["server", "ok"]


def test_it_waits_for_the_first_server(tmp_path: Path) -> None:
    """By hand: looks after 1, 2, 4, 8, 15, 15 … s; the file is there after 30 s. None of it is an attempt."""
    place = tmp_path / "served"
    with server() as one:
        clock = Clock(lambda: announce(place, "a", one.url) if clock.now >= 30 else None)
        with clock.model(agent_of(place)) as model:
            found = ask(model)
    assert (found.content, clock.now, found.retry_s) == ("done", 30.0, 30.0)
    assert [attempt.kind for attempt in clock.attempts] == ["ok"]


def test_waiting_is_bounded_and_says_what_was_there(tmp_path: Path) -> None:
    clock, url = Clock(), closed_port()
    announce(tmp_path, "a", url)
    announce(tmp_path, "b", "http://node/v1", model="other")
    with clock.model(agent_of(tmp_path)) as model, pytest.raises(EndpointError) as caught:
        ask(model)
    text = str(caught.value)
    assert f"announced in {tmp_path} has answered for 30 min" in text
    assert f"a.json: {url} gives no answer (ConnectError)" in text and "b.json: http://node/v1 serves 'other'" in text
    assert len(text.splitlines()) == 2 and KEY not in text
    assert caught.value.retry_s == pytest.approx(PATIENCE_S, abs=15)
    with Clock().model(agent_of(tmp_path / "none")) as model, pytest.raises(EndpointError, match="there is no file"):
        ask(model)


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        ({"/health": 503, "/v1/models": 200}, "answers HTTP 503"),  # loads its weights, or its engine died
        ({"/health": 404, "/v1/models": 404}, "answers HTTP 404"),  # something else
        ({"/health": 200, "/v1/models": 500}, "answers HTTP 500"),
        ({"/health": 200, "/v1/models": 200}, "does not list 'm'"),  # another server has the port now
    ],
)
def test_a_server_that_is_not_well_is_passed_over(tmp_path: Path, paths: dict[str, int], words: str) -> None:
    others = {"data": [{"id": "other"}]}
    sick = HttpServer(0, lambda *_: (Answer(500), {}), lambda path, _: Answer(paths[path], others))
    sick.start()
    url = f"http://127.0.0.1:{sick.server_port}/v1"
    try:
        announce(tmp_path, "a", url)
        with Clock().model(agent_of(tmp_path)) as model, pytest.raises(EndpointError, match=words):
            ask(model)
        with server() as well, Clock().model(agent_of(tmp_path)) as model:
            announce(tmp_path, "b", well.url)
            assert ask(model).content == "done"
    finally:
        sick.stop()


@pytest.mark.parametrize("statuses", [(200, 404), (200, 200), (404, 200), (401, 429)])
def test_a_server_that_answers_in_its_own_way_is_well(statuses: tuple[int, int]) -> None:
    """Not every server has /health, a list of models, or the tag in their names."""
    paths = dict(zip(("/health", "/v1/models"), statuses, strict=True))
    well = HttpServer(
        0, lambda *_: (Answer(500), {}), lambda path, _: Answer(paths[path], {"data": [{"id": "m:latest"}]})
    )
    well.start()
    deadline = Deadline()
    try:
        with make_http_client("file:///served", None, deadline) as client:
            assert trouble_of(client, deadline, f"http://127.0.0.1:{well.server_port}/v1", "m") == ""
    finally:
        well.stop()


def test_a_judge_asks_them_too(tmp_path: Path) -> None:
    judge = JudgeModel(model="m", endpoint_file=str(tmp_path), api_key_env="K", structured="text")
    with server() as one, JudgeEndpoint("first", judge, environment={"K": KEY}) as endpoint:
        announce(tmp_path, "a", one.url)
        assert endpoint.ask([{"role": "user", "content": "hello"}], {}).text == "done"


def test_a_refused_key_is_told_at_once(tmp_path: Path) -> None:
    with ScriptedServer({"m": [ScriptedTurn(content="x")]}, keys=["sk-another"]) as one:
        announce(tmp_path, "a", one.url)
        clock = Clock()
        with clock.model(agent_of(tmp_path)) as model, pytest.raises(EndpointError, match="Check the key in K"):
            ask(model)
    assert clock.now == 0


def test_all_askers_share_one_breaker(tmp_path: Path) -> None:
    """Servers that answer with 503 are an outage of them all, known by the place and not by an address."""
    place = tmp_path / "served"
    with ScriptedServer(answers=[*[Answer(503, {})] * OPEN_AFTER, Answer(body=completion())]) as one:
        announce(place, "a", one.url)
        clock = Clock()
        health = EndpointHealth(tmp_path / "e", agent_of(place).address, sleep=clock.sleep, clock=lambda: clock.now)
        with clock.model(agent_of(place), health=health) as model:
            ask(model)
    assert len([path for path in (tmp_path / "e").iterdir() if "probe" not in path.name]) == 1
    # By hand: pauses of 2, 4, 8, 16, 32 and 60 s, then a probe after 5 s.
    assert clock.now == pytest.approx(127, abs=2)


def test_no_proxy_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with server() as one, Clock().model(agent_of(tmp_path)) as model:
        announce(tmp_path, "a", one.url)
        assert ask(model).content == "done"


# --- entries ----------------------------------------------------------------------------------------------------


def test_an_address_is_no_part_of_an_identity() -> None:
    judge = {"model": "j", "api_key_env": "K"}
    assert agent_of(Path("a")).digest() == agent_of(Path("b")).digest()
    assert (
        JudgeModel.model_validate(judge | {"endpoint_file": "a"}).digest()
        == JudgeModel.model_validate(judge | {"endpoint_file": "b"}).digest()
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"base_url": "http://node/v1"}, "'base_url' and 'endpoint_file' exclude each other"),
        ({"gateway": "campus"}, "'gateway' and 'endpoint_file' exclude each other"),
        ({"endpoint_file": None}, "'endpoint_file'"),
    ],
)
def test_entries_that_cannot_be(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        agent_of(Path("a"), **changes)
    with pytest.raises(ValueError, match=words):
        JudgeModel.model_validate({"model": "j", "api_key_env": "K", "endpoint_file": "a"} | changes)


# --- automedbench announce --------------------------------------------------------------------------------------

STAND_IN = """
import signal, sys, time
from pathlib import Path
from automedbench.agent.models.scripted import ScriptedTurn
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer, completion

def end(*_):
    Path(sys.argv[2]).write_text(f"told, with {len(list(Path(sys.argv[3]).glob('*.json')))} files")
    sys.exit(7)

signal.signal(signal.SIGTERM, end)
time.sleep(0.5)
with ScriptedServer({"m": [ScriptedTurn(content="done")]}, port=int(sys.argv[1])):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not Path(sys.argv[2]).exists():
        time.sleep(0.05)
sys.exit(3)
"""


def wrapper(folder: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "automedbench", "announce", "--folder", str(folder / "served"), *words]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=inherited | environment)


def wait_for(condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_server_is_announced_as_long_as_it_runs(tmp_path: Path) -> None:
    """Its file comes when it answers, comes back when it is deleted, and goes with the signal, which is passed on."""
    told, stop = tmp_path / "served/41-0.json", tmp_path / "stop"
    told.parent.mkdir()
    told.write_text("of the same job, before it was put back into the queue")
    options = (
        "--host",
        "127.0.0.1",
        "--model",
        "m",
        "--",
        sys.executable,
        "-c",
        STAND_IN,
        "{port}",
        str(stop),
        str(told.parent),
    )
    with wrapper(tmp_path, *options, SLURM_JOB_ID="41") as announced:
        wait_for(lambda: not told.exists())
        wait_for(told.exists)
        found = Announcement.model_validate_json(told.read_bytes())
        assert (found.job, found.model, told.stat().st_mode & 0o777) == ("41", "m", 0o600)
        with Clock().model(agent_of(told.parent)) as model:
            assert ask(model).content == "done"
        told.unlink()
        wait_for(told.exists)
        announced.send_signal(signal.SIGTERM)
        assert announced.wait(20) == 128 + signal.SIGTERM
    assert stop.read_text() == "told, with 0 files"
    assert list(told.parent.iterdir()) == []


def test_a_server_that_ends_is_withdrawn(tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    with wrapper(
        tmp_path, "--host", "127.0.0.1", "--name", "a", "--", sys.executable, "-c", STAND_IN, "{port}", str(stop)
    ) as announced:
        wait_for((tmp_path / "served/a.json").exists)
        stop.touch()
        assert announced.wait(20) == 3
    assert list((tmp_path / "served").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--url", "file:///etc"), "--url file:///etc: "),
        (("--name", "../a", "--port", "8000"), "--name ../a: "),
        (("--", "no-such-program", "{port}"), "no-such-program: cannot be started"),
        (("--", "sleep", "9"), "--port: is not given"),
    ],
)
def test_what_cannot_be_announced(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "automedbench", "announce", "--folder", str(tmp_path), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 1
    assert message in done.stderr and "Traceback" not in done.stderr
