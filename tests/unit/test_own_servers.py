"""Own servers: what their file may hold, which one is asked, and how another is found when one goes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_for

from automedbench.agent.models.endpoint import EndpointModel
from automedbench.agent.models.model import ChatMessage, EndpointError, Reply
from automedbench.agent.models.scripted import ScriptedTurn
from automedbench.base.endpoint.client import Attempt
from automedbench.base.endpoint.http import EndpointHttp
from automedbench.base.endpoint.pacer import DOWN_AFTER, PATIENCE_S, Pace, list_outages
from automedbench.base.endpoint.servers import Servers, parse_file_url, read_servers
from automedbench.base.errors import ConfigError
from automedbench.campaign.agents import Agent, JudgeModel
from automedbench.judge.panel.member import JudgeEndpoint
from automedbench_rehearsal.model_server.http import HttpServer
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer, completion

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-canary-0123456789"


def listed(path: Path, *urls: str) -> Path:
    """The file with these URLs, written as ``profiles/slurm/serve.sbatch`` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.touch(0o600)
    new.write_text("".join(f"{url}\n" for url in urls))
    new.rename(path)
    return path


def agent_of(path: Path, **changes: Any) -> Agent:
    return Agent.model_validate(
        {"provider": "openai", "model": "m", "endpoint_file": str(path), "api_key_env": "K"} | changes
    )


class Clock:
    """A clock that moves when one sleeps; ``meanwhile`` happens then."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.now, self.meanwhile = 0.0, meanwhile
        self.attempts: list[Attempt] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()

    def model(self, agent: Agent, asker: str = "run", shared: Path | None = None) -> EndpointModel:
        return EndpointModel(
            agent,
            [KEY],
            on_attempt=self.attempts.append,
            shared=shared,
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


# --- the file ---------------------------------------------------------------------------------------------------


def test_urls_stand_one_a_line(tmp_path: Path) -> None:
    path = listed(tmp_path / "urls", "# two nodes", "http://10.0.0.7:8000/v1/", "", "  https://[fd00::1]/v1  ")
    assert read_servers(path) == ["http://10.0.0.7:8000/v1", "https://[fd00::1]/v1"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("node7:8000", "must be http"),
        ("file:///etc/passwd", "must be http"),
        ("http:///v1", "must be http"),
        ("http://me:word@node/v1", "without credentials"),
        ("http://node/v1?to=elsewhere", "no query"),
        ("http://node/v1 http://other/v1", "no spaces"),
        ("http://node:99999/v1", "is no URL"),
        ('{"schema": "automedbench/endpoint/1", "url": "http://node/v1"}', "must be http"),
    ],
)
def test_a_line_that_is_no_url_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    path = listed(tmp_path / "urls", "http://node/v1", line)
    with pytest.raises(ConfigError, match=f"urls: line 2 .*{problem}"):
        Clock().model(agent_of(path))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    """It was one before 0.2.0, with a file per server."""
    with pytest.raises(ConfigError, match="is a folder; name a file that holds the servers' URLs, one a line"):
        Clock().model(agent_of(tmp_path))


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = listed(tmp_path / "urls", "http://node/v1")
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"urls: is of user .* mode {mode:04o}; .*where the key is sent"):
        Clock().model(agent_of(path))


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = listed(tmp_path / "urls", "http://node/v1")
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(ConfigError, match="is of user"):
        read_servers(path)


def test_a_file_that_becomes_writable_for_others_ends_the_request(tmp_path: Path) -> None:
    path = listed(tmp_path / "urls", closed_port())
    clock = Clock(meanwhile=lambda: path.chmod(0o666))
    with clock.model(agent_of(path)) as model, pytest.raises(EndpointError, match="you alone may own"):
        ask(model)


def test_the_address_is_a_file_url(tmp_path: Path) -> None:
    path = tmp_path / "my model #1"
    assert parse_file_url(agent_of(path).address) == path
    assert parse_file_url("http://127.0.0.1:8000/v1") is None


# --- the choice -------------------------------------------------------------------------------------------------


def choices(path: Path, dead: str = "") -> dict[str, str]:
    """Runs, and the server that each begins with."""
    return {
        f"run-{number}": Servers(path, f"run-{number}").find(lambda url: "dead" if url == dead else "")
        for number in range(300)
    }


def test_runs_spread_and_stay(tmp_path: Path) -> None:
    """A server that goes, or is dead, moves its own runs only; one that comes takes its share from all."""
    four = [f"http://{name}:1" for name in "abcd"]
    path = listed(tmp_path / "urls", *four)
    first = choices(path)
    assert first == choices(path)
    # Binomial with n 300 and p 1/4: mean 75, standard deviation 7.5; four of them either way.
    assert set(first.values()) == set(four)
    assert all(45 <= count <= 105 for count in Counter(first.values()).values())
    without = choices(path, dead="http://a:1")
    assert {run for run in first if first[run] != without[run]} == {run for run in first if first[run] == "http://a:1"}
    listed(path, "http://e:1", *four)
    assert {url for run, url in choices(path).items() if url != first[run]} == {"http://e:1"}


# --- requests ---------------------------------------------------------------------------------------------------


def test_a_run_goes_on_with_another_server_and_finds_the_first_again(tmp_path: Path) -> None:
    """Killed, then back on another port: one failed attempt each time, no outage, and the key goes to these only."""
    path, clock, gone = tmp_path / "urls", Clock(), closed_port()
    with server("two") as two, clock.model(agent_of(path), shared=tmp_path / "endpoints") as model:
        with server("one") as one:
            listed(path, gone, one.url)
            assert ask(model).content == "one"
            listed(path, gone, two.url, one.url)
            assert ask(model).content == "one"
        assert ask(model).content == "two"
        assert [attempt.kind for attempt in clock.attempts] == ["ok", "ok", "network", "ok"]
        with server("three") as three:
            listed(path, two.url, three.url)
            assert ask(model).content == "two"
        assert one.headers[0]["authorization"] == f"Bearer {KEY}"
    assert list_outages(tmp_path / "endpoints") == []
    assert all('"failures":0' in file.read_text() for file in (tmp_path / "endpoints").iterdir())


def test_after_a_fault_the_others_come_first(tmp_path: Path) -> None:
    """A server that says it is well, and answers no request."""
    clock = Clock()
    with ScriptedServer(answers=[Answer(500, {})]) as bad, server() as good:
        path = listed(tmp_path / "urls", bad.url, good.url)
        first = [name for name in "stuvwxyz" if Servers(path, name).find(lambda _: "") == bad.url]
        with clock.model(agent_of(path), asker=first[0]) as model:
            assert ask(model).content == "done"
    assert [attempt.kind for attempt in clock.attempts] == ["server", "ok"]


def test_it_waits_for_the_first_server(tmp_path: Path) -> None:
    """It looks every 10 s; the file is there after 30 s. None of it is an attempt."""
    path = tmp_path / "served/urls"
    with server() as one:
        clock = Clock(lambda: listed(path, one.url) if clock.now >= 30 else None)
        with clock.model(agent_of(path)) as model:
            found = ask(model)
    assert (found.content, clock.now, found.retry_s) == ("done", 30.0, 30.0)
    assert [attempt.kind for attempt in clock.attempts] == ["ok"]


def test_waiting_is_bounded_and_says_what_was_there(tmp_path: Path) -> None:
    clock, url = Clock(), closed_port()
    path = listed(tmp_path / "urls", url)
    with clock.model(agent_of(path)) as model, pytest.raises(EndpointError) as caught:
        ask(model)
    text = str(caught.value)
    # The plain request waits two thirds of the time.
    assert f"None of the servers in {path} has answered for 20 min: {url} gives no answer (ConnectError)." in text
    assert len(text.splitlines()) == 2 and KEY not in text
    assert caught.value.retry_s == pytest.approx(PATIENCE_S, abs=15)
    for path, words in ((listed(tmp_path / "empty"), "it holds no URL"), (tmp_path / "none", "No such file")):
        with Clock().model(agent_of(path)) as model, pytest.raises(EndpointError, match=words):
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
        path = listed(tmp_path / "urls", url)
        with Clock().model(agent_of(path)) as model, pytest.raises(EndpointError, match=words):
            ask(model)
        with server() as well, Clock().model(agent_of(path)) as model:
            listed(path, url, well.url)
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
    try:
        with EndpointHttp("file:///served") as http:
            assert http.find_problem(f"http://127.0.0.1:{well.server_port}/v1", "m") == ""
    finally:
        well.stop()


def test_a_judge_asks_them_too(tmp_path: Path) -> None:
    judge = JudgeModel(model="m", endpoint_file=str(tmp_path / "urls"), api_key_env="K", structured="text")
    with server() as one, JudgeEndpoint("first", judge, environment={"K": KEY}) as endpoint:
        listed(tmp_path / "urls", one.url)
        assert endpoint.ask([{"role": "user", "content": "hello"}], {}).text == "done"


def test_a_refused_key_is_told_at_once(tmp_path: Path) -> None:
    with ScriptedServer({"m": [ScriptedTurn(content="x")]}, keys=["sk-another"]) as one:
        path, clock = listed(tmp_path / "urls", one.url), Clock()
        with clock.model(agent_of(path)) as model, pytest.raises(EndpointError, match="Check the key in K"):
            ask(model)
    assert clock.now == 0


def test_servers_that_fail_are_one_outage(tmp_path: Path) -> None:
    """Servers that answer with 503 are an outage of them all, known by the file and not by a URL."""
    with ScriptedServer(answers=[*[Answer(503, {})] * DOWN_AFTER, Answer(body=completion())]) as one:
        path, clock = listed(tmp_path / "urls", one.url), Clock()
        with clock.model(agent_of(path), shared=tmp_path / "e") as model:
            ask(model)
    (pace,) = (tmp_path / "e").iterdir()
    assert Pace.model_validate_json(pace.read_bytes()).failures == 0
    # By hand: pauses of 2, 4 and 8 s, of 2 s after the plain request, then a wait of 5 s.
    assert clock.now == pytest.approx(21, abs=2)


def test_no_proxy_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with server() as one, Clock().model(agent_of(listed(tmp_path / "urls", one.url))) as model:
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
        ({"endpoint_file": None}, "'endpoint_file'"),
        (
            {"endpoint_file": None, "base_url": "file:///srv/urls"},
            "use 'endpoint_file' with the servers' URLs",
        ),
    ],
)
def test_entries_that_cannot_be(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        agent_of(Path("a"), **changes)
    with pytest.raises(ValueError, match=words):
        JudgeModel.model_validate({"model": "j", "api_key_env": "K", "endpoint_file": "a"} | changes)


# --- the job that serves ----------------------------------------------------------------------------------------

STAND_IN = """#!/usr/bin/env bash
# vllm serve MODEL --host 0.0.0.0 --port PORT ...
trap 'cat results/served/m.txt > told; exit 7' TERM
touch up
while [ ! -e stop ]; do sleep 0.05; done
exit 3
"""


def served_by_job(folder: Path) -> subprocess.Popen[bytes]:
    """``profiles/slurm/serve.sbatch`` as the batch process of a job, with a stand-in for vLLM."""
    (folder / "vllm").write_text(STAND_IN)
    (folder / "vllm").chmod(0o755)
    command = ["bash", str(ROOT / "profiles/slurm/serve.sbatch"), "hub/m"]
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.Popen(command, cwd=folder, env=environment, process_group=0)


@pytest.mark.parametrize(("is_stopped", "code"), [(True, 7), (False, 3)], ids=["preempted", "ended"])
def test_a_job_lists_its_server_while_that_runs(tmp_path: Path, is_stopped: bool, code: int) -> None:
    """Its line goes before the server hears of the signal, and when the server ends; the lines of others stay."""
    place = listed(tmp_path / "results/served/m.txt", "http://other:1/v1")
    with served_by_job(tmp_path) as job:
        wait_for(lambda: (tmp_path / "up").exists() and len(read_servers(place)) == 2)
        other, mine = read_servers(place)
        assert other == "http://other:1/v1" and mine.startswith(f"http://{socket.gethostname()}:")
        assert place.stat().st_mode & 0o777 == 0o600
        if is_stopped:
            job.send_signal(signal.SIGTERM)
        else:
            (tmp_path / "stop").touch()
        assert job.wait(20) == code
    assert read_servers(place) == ["http://other:1/v1"]
    assert not is_stopped or (tmp_path / "told").read_text() == "http://other:1/v1\n"
    assert sorted(each.name for each in place.parent.iterdir()) == ["m.txt", "m.txt.lock"]


def test_jobs_that_begin_together_are_all_listed(tmp_path: Path) -> None:
    place = tmp_path / "results/served/m.txt"
    jobs = [served_by_job(tmp_path) for _ in range(4)]
    wait_for(lambda: place.exists() and len(read_servers(place)) == 4)
    (tmp_path / "stop").touch()
    assert [job.wait(20) for job in jobs] == [3] * 4
    assert read_servers(place) == []
