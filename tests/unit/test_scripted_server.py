"""The test server: real HTTP on loopback, turns from the conversation, faults on demand, and a program."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from automedbench.agent.models.scripted import load_turns
from automedbench.base.errors import ConfigError
from automedbench_rehearsal.model_server.faults import FaultMix, FaultPlan, ServerFault, load_faults
from automedbench_rehearsal.model_server.server import ScriptedServer

SCRIPT = """
- content: I look first.
- content: Now I compute.
  calls:
    - {tool: execute_code, language: python, code: "print('ü')"}
    - {tool: submit_results, summary: finished}
"""
TOOLS = [{"type": "function", "function": {"name": "execute_code"}}]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "careful.yaml"
    path.write_text(SCRIPT)
    return path


class Got:
    """A raw answer."""

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.status, self.data = status, data
        self.headers = {name.lower(): value for name, value in headers.items()}

    @property
    def body(self) -> Any:
        return json.loads(self.data)

    @property
    def message(self) -> Any:
        return self.body["choices"][0]["message"]


def send(url: str, body: Any, path: str = "/chat/completions", key: str = "", timeout: float = 30) -> Got:
    """One POST without any client library in between."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=timeout)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request("POST", place.path + path, data, {"Authorization": f"Bearer {key}"} if key else {})
        response = connection.getresponse()
        return Got(response.status, dict(response.headers), response.read())
    finally:
        connection.close()


def request(turn: int, *, model: str = "m", task: str = "do it", **options: Any) -> dict[str, Any]:
    """A request for the ``turn``-th turn of a conversation."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "s"}, {"role": "user", "content": task}]
    for number in range(1, turn):
        messages += [{"role": "assistant", "content": str(number)}, {"role": "user", "content": "go on"}]
    return {"model": model, "messages": messages, "tools": TOOLS} | options


# --- turns -----------------------------------------------------------------------------------------------------


def test_turns_follow_the_conversation(script: Path) -> None:
    """Any order, any repetition: the request says which turn it wants; after the last one comes 'done'."""
    with ScriptedServer(script) as server:
        second, first, again, third = (send(server.url, request(turn)) for turn in (2, 1, 2, 3))
    assert first.message["content"] == "I look first."
    assert second.message == again.message
    assert [call["function"]["name"] for call in second.message["tool_calls"]] == ["execute_code", "submit_results"]
    arguments = second.message["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"language": "python", "code": "print('ü')"}
    assert second.body["choices"][0]["finish_reason"] == "tool_calls"
    assert third.message["content"] == "done"


def test_a_shortened_conversation_keeps_its_turn(script: Path) -> None:
    """Compaction leaves out messages; the ids of the calls that are left tell how far it was (here: turn 1)."""
    said = {"role": "assistant", "content": "", "tool_calls": [{"id": "call_1_1", "function": {"name": "x"}}]}
    earlier = {"model": "m", "tools": TOOLS, "messages": [{"role": "user", "content": "summary"}, said]}
    later = json.loads(json.dumps(earlier).replace("call_1_1", "call_2_1"))
    with ScriptedServer(script) as server:
        assert send(server.url, earlier).message["content"] == "Now I compute."
        assert send(server.url, later).message["content"] == "done"


def test_a_request_without_tools_gets_calls_as_text(script: Path) -> None:
    from automedbench.agent.tools import TOOL_NAMES, recover_calls

    with ScriptedServer(script) as server:
        message = send(server.url, {key: part for key, part in request(2).items() if key != "tools"}).message
    assert "tool_calls" not in message
    calls = recover_calls(message["content"], TOOL_NAMES).calls
    assert [(call.name, call.closed) for call in calls] == [("execute_code", True), ("submit_results", True)]
    assert calls[0].arguments == {"language": "python", "code": "print('ü')"}


def test_several_scripts_by_model(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(f"- content: I am {name}.")
    with ScriptedServer({name: tmp_path / f"{name}.yaml" for name in ("one", "two")}) as server:
        assert send(server.url, request(1, model="two")).message["content"] == "I am two."
        unknown = send(server.url, request(1, model="three"))
    assert (unknown.status, unknown.body["error"]["message"]) == (404, "no model 'three'; known: one, two")


def test_requests_are_counted_by_conversation_and_turn(script: Path) -> None:
    with ScriptedServer(script) as server:
        for turn, task in [(1, "a"), (2, "a"), (2, "a"), (1, "b")]:
            send(server.url, request(turn, task=task))
        exchanges = server.exchanges
        one, other = exchanges[0].conversation, exchanges[3].conversation
        assert one != other
        assert (server.count(), server.count(one), server.count(one, 2), server.count(other, 2)) == (4, 3, 2, 0)
        assert [exchange.asked for exchange in exchanges] == [1, 1, 2, 1]


def test_many_at_once(script: Path) -> None:
    """Forty conversations side by side, each gets its own turns in order."""
    wrong: list[str] = []

    def converse(task: str) -> None:
        said = [send(server.url, request(turn, task=task)).message["content"] for turn in (1, 2, 3)]
        if said != ["I look first.", "Now I compute.", "done"]:
            wrong.append(task)

    with ScriptedServer(script, keep=False) as server:
        threads = [threading.Thread(target=converse, args=(f"task {number}",)) for number in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (wrong, server.count(), server.requests) == ([], 120, [])
        assert len({exchange.conversation for exchange in server.exchanges}) == 40


def test_usage_is_counted_or_fixed(script: Path) -> None:
    with ScriptedServer(script) as server:
        usage = send(server.url, request(1)).body["usage"]
    # By hand: "I look first." has 13 characters, and 13 // 4 = 3.
    assert usage["completion_tokens"] == 3
    assert usage["prompt_tokens"] == len(json.dumps(request(1)["messages"])) // 4
    with ScriptedServer(script, usage=(7, 2)) as server:
        assert send(server.url, request(1)).body["usage"] == {
            "prompt_tokens": 7,
            "completion_tokens": 2,
            "total_tokens": 9,
        }


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"model": "m"}', b'{"messages": [1]}'])
def test_no_chat_request(script: Path, body: bytes) -> None:
    with ScriptedServer(script) as server:
        assert send(server.url, body).status == 400
        assert send(server.url, request(1), path="/embeddings").status == 404
        assert server.count() == 0


# --- streams ---------------------------------------------------------------------------------------------------


def test_the_sdk_reads_the_stream(script: Path) -> None:
    import openai

    with (
        ScriptedServer(script) as server,
        openai.OpenAI(api_key="x", base_url=server.url, max_retries=0) as client,
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}], stream=True) as stream,
    ):
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text == "I look first."


# --- faults ----------------------------------------------------------------------------------------------------


def faulty(script: Path, kind: str, turn: int = 2, timeout: float = 30) -> Got:
    plan = FaultPlan(requests={1: ServerFault(kind=kind, seconds=0.2)})
    with ScriptedServer(script, faults=plan) as server:
        return send(server.url, request(turn), timeout=timeout)


def test_shapes_of_faults(script: Path) -> None:
    """Each fault is what its name says; by hand from the protocol."""
    assert faulty(script, "message_null").message is None
    assert faulty(script, "usage_null").body["usage"] is None
    assert "usage" not in faulty(script, "usage_missing").body
    assert faulty(script, "usage_wrong_types").body["usage"]["prompt_tokens"] == "many"
    assert isinstance(faulty(script, "arguments_object").message["tool_calls"][0]["function"]["arguments"], dict)
    parts = faulty(script, "content_parts").message["content"]
    assert "".join(part["text"] for part in parts) == "Now I compute."
    assert {call["id"] for call in faulty(script, "empty_ids").message["tool_calls"]} == {""}
    assert {call["id"] for call in faulty(script, "repeated_ids").message["tool_calls"]} == {"call_2_0"}
    cut = faulty(script, "length_cut")
    assert cut.body["choices"][0]["finish_reason"] == "length"
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(cut.message["tool_calls"][-1]["function"]["arguments"])
    assert faulty(script, "filter_finish").body["choices"][0]["finish_reason"] == "content_filter"
    assert json.loads(gzip.decompress(faulty(script, "gzip").data))["choices"]
    assert faulty(script, "wrong_content_type").headers["content-type"] == "text/plain"
    assert faulty(script, "rate_limit_seconds").headers["retry-after"] == "0.2"
    assert faulty(script, "rate_limit_date").headers["retry-after"].endswith("GMT")
    assert "retry-after" not in faulty(script, "rate_limit").headers
    assert len(faulty(script, "too_large").data) > 64 * 1024 * 1024


def test_silences_last_as_long_as_asked(script: Path) -> None:
    """A client that waits less than the server's silence gives up; the server still ends at once."""
    for kind in ("timeout", "body_timeout"):
        plan = FaultPlan(requests={1: ServerFault(kind=kind)})
        with ScriptedServer(script, faults=plan) as server, pytest.raises(TimeoutError):
            send(server.url, request(1), timeout=0.3)


def test_faults_by_turn_come_first_then_a_good_answer(script: Path) -> None:
    plan = FaultPlan.model_validate({"turns": {2: ["status_503", "not_json"]}})
    with ScriptedServer(script, faults=plan) as server:
        assert [send(server.url, request(turn)).status for turn in (1, 2, 2, 2)] == [200, 503, 200, 200]
        assert [exchange.fault for exchange in server.exchanges] == ["", "status_503", "not_json", ""]
        assert send(server.url, request(2, task="another")).status == 503


def test_a_mix_is_the_same_whatever_the_order() -> None:
    plan = FaultPlan(seed=3, mix=FaultMix(share=0.3))
    places = [(f"c{number}", turn) for number in range(200) for turn in range(1, 11)]
    drawn = {place: plan.choose(1, *place, 1) for place in places}
    again = {place: plan.choose(9, *place, 1) for place in reversed(places)}
    assert drawn == {place: again[place] for place in places}
    # 2000 draws of 0.3: 600 on average, standard deviation sqrt(2000 * 0.3 * 0.7) = 20.5; five of them are 103.
    assert 497 < sum(fault is not None for fault in drawn.values()) < 703
    kinds = {fault.kind for fault in drawn.values() if fault}
    assert len(kinds) == 5
    assert drawn != {place: FaultPlan(seed=4, mix=FaultMix(share=0.3)).choose(1, *place, 1) for place in places}


def test_a_mix_lets_a_turn_succeed_in_the_end() -> None:
    plan = FaultPlan(mix=FaultMix(share=1.0, in_a_row=2))
    assert [plan.choose(1, "c", 1, asked) is None for asked in (1, 2, 3, 4)] == [False, False, True, True]


PROBLEMS = {
    "unknown fault": ("requests: {1: message_nul}", ["unknown fault (did you mean 'message_null'?)"]),
    "several": (
        "mix: {share: 2, kindz: 3}\nturns: {2: [nonsense]}",
        ["turns.2.0.kind: unknown fault; known: ", "mix.share: ", "mix.kindz: unknown key (did you mean 'kinds'?)"],
    ),
    "no weight": ("mix: {share: 0.1, kinds: {drip: 0}}", ["mix.kinds: weights are 0 or more"]),
}


@pytest.mark.parametrize(("text", "lines"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_problems_of_a_faults_file(tmp_path: Path, text: str, lines: list[str]) -> None:
    (tmp_path / "faults.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_faults(tmp_path / "faults.yaml")
    assert len(caught.value.problems) == len(lines)
    assert all(line in problem for line, problem in zip(lines, caught.value.problems, strict=True))


# --- the program -----------------------------------------------------------------------------------------------


def start(*words: str | Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "automedbench_rehearsal.model_server", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_the_program_serves_and_ends(script: Path, tmp_path: Path, number: int) -> None:
    """Its first line is the URL; a signal ends it without a word, even in the middle of a silent answer."""
    (tmp_path / "faults.yaml").write_text("turns: {2: timeout}")
    record = tmp_path / "requests.jsonl"
    options = ("--key-env", "TEST_KEY", "--faults", tmp_path / "faults.yaml", "--record", record)
    with start(script, *options, TEST_KEY="sk-canary-of-the-program") as program:
        assert program.stdout is not None
        url = program.stdout.readline().strip()
        assert send(url, request(1)).status == 401
        assert send(url, request(1), key="sk-canary-of-the-program").message["content"] == "I look first."
        with pytest.raises(TimeoutError):
            send(url, request(2), key="sk-canary-of-the-program", timeout=0.3)
        program.send_signal(number)
        assert program.communicate(timeout=60) == ("", "")
        assert program.returncode == 0
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [(line["number"], line["turn"], line["status"], line["fault"]) for line in lines] == [
        (1, 1, 401, ""),
        (2, 1, 200, ""),
        (3, 2, 200, "timeout"),
    ]
    assert "canary" not in record.read_text()


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text("turns: 1")
    (tmp_path / "faults.yaml").write_text("mixx: 1")
    words = (tmp_path / "nowhere.yaml", f"b={tmp_path / 'script.yaml'}")
    with start(*words, "--faults", tmp_path / "faults.yaml", "--key-env", "UNSET_KEY") as program:
        out, errors = program.communicate(timeout=60)
    assert (program.returncode, out) == (2, "")
    assert len(errors.splitlines()) == 4
    for words_of_a_line in ("does not exist", "a script is a list", "did you mean 'mix'", "UNSET_KEY is not set"):
        assert words_of_a_line in errors


def test_a_port_in_use(script: Path) -> None:
    with (
        ScriptedServer(load_turns(script)) as server,
        start(script, "--port", server.url.split(":")[2][:-3]) as program,
    ):
        _, errors = program.communicate(timeout=60)
    assert program.returncode == 2
    assert len(errors.splitlines()) == 1 and "in use" in errors
