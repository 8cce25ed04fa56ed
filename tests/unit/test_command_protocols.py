"""Four protocols through the bridge: golden conversations against a model server that demands its thinking back.

The server (``automedbench_rehearsal.model_server``) is an independent witness: it shares no code with the bridge.
Answers are read by the package's own reader, for which recorded answers of providers vouch
(tests/contract/test_recorded_answers.py).
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import pytest
import test_command_loop
from protocol_client import HISTORY, answered, echo_of, path_of
from test_allow_lists import HOSTILE as HOSTILE_REQUESTS
from test_bridge import SOCKET, Connection, agent
from test_command_loop import Bench, Client

from automedbench.agent.command import bridge as bridge_module
from automedbench.agent.command.reported import read_tool_call
from automedbench.agent.command.traffic import _digest
from automedbench.agent.models.model import Reply, ToolCall
from automedbench.agent.models.scripted import ScriptedTurn
from automedbench.agent.protocols import PROTOCOLS, find_call, read_reply
from automedbench.agent.protocols.common import RequestRefused
from automedbench.base.endpoint.usage import asked_tokens
from automedbench.base.errors import InfrastructureError
from automedbench_rehearsal.model_server.faults import FaultPlan
from automedbench_rehearsal.model_server.server import ScriptedServer, usage_rule

make = test_command_loop.make
Body = dict[str, Any]
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="


class Form:
    """How a program of one protocol asks, and how it reads what comes."""

    name: ClassVar[str]

    def target(self, stream: bool) -> str:
        return path_of(self.name, stream)

    def then(self, body: Body, answer: Body) -> Body:
        key = HISTORY[self.name]
        return body | {key: [*body[key], *answered(self.name, echo_of(self.name, answer))]}


class Chat(Form):
    name = "chat"

    def first(self) -> Body:
        url = f"data:image/png;base64,{PICTURE}"
        user = [{"type": "text", "text": "Begin."}, {"type": "image_url", "image_url": {"url": url}}]
        tool = {"type": "function", "function": {"name": "bash", "description": "run", "parameters": SCHEMA}}
        messages = [{"role": "developer", "content": "Be good."}, {"role": "user", "content": user}]
        return {"model": "mine", "messages": messages, "tools": [tool], "temperature": 2}

    def streamed(self, body: Body) -> Body:
        return body | {"stream": True, "stream_options": {"include_usage": True}}

    def error(self, answer: Body) -> str:
        return str(answer["error"]["message"])


class Responses(Form):
    name = "responses"

    def first(self) -> Body:
        picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"}
        function = {"type": "function", "name": "bash", "description": "run", "parameters": SCHEMA, "strict": False}
        grammar = {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}
        return {
            "model": "mine",
            "instructions": "Be good.",
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "Begin."}, picture]}],
            "tools": [function, {"type": "custom", "name": "apply_patch", "description": "patch", "format": grammar}],
            "store": True,
            "include": ["reasoning.encrypted_content", "web_search_call.action.sources"],
            "client_metadata": {"x": "y"},
        }

    def streamed(self, body: Body) -> Body:
        return body | {"stream": True}

    def error(self, answer: Body) -> str:
        return str((answer.get("error") or answer["response"]["error"])["message"])


class Messages(Form):
    name = "messages"

    def target(self, stream: bool) -> str:
        return f"{super().target(stream)}?beta=true"

    def first(self) -> Body:
        source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
        user = [{"type": "text", "text": "Begin."}, {"type": "image", "source": source}]
        return {
            "model": "mine",
            "max_tokens": 32_000,
            "system": [{"type": "text", "text": "Be good.", "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": user}, {"role": "system", "content": "Mind the gap."}],
            "tools": [{"name": "bash", "description": "run", "input_schema": SCHEMA}],
            "thinking": {"type": "enabled", "budget_tokens": 31_999},
            "metadata": {"user_id": "tracked"},
            "context_management": {"edits": []},
        }

    def streamed(self, body: Body) -> Body:
        return body | {"stream": True}

    def error(self, answer: Body) -> str:
        assert answer["type"] == "error" and answer["error"]["type"].endswith("_error")
        return str(answer["error"]["message"])


class Gemini(Form):
    name = "gemini"

    def first(self) -> Body:
        picture = {"inlineData": {"mimeType": "image/png", "data": PICTURE}}
        return {
            "systemInstruction": {"parts": [{"text": "Be good."}], "role": "user"},
            "contents": [{"role": "user", "parts": [{"text": "Begin."}, picture]}],
            "tools": [
                {"functionDeclarations": [{"name": "bash", "description": "run", "parametersJsonSchema": SCHEMA}]}
            ],
            "generation_config": {"temperature": 1, "top_p": 0.95},
            "labels": {"x": "y"},
        }

    def streamed(self, body: Body) -> Body:
        return body

    def error(self, answer: Body) -> str:
        assert isinstance(answer["error"]["code"], int) and answer["error"]["status"].isupper()
        return str(answer["error"]["message"])


FORMS: Mapping[str, Any] = {form.name: form for form in (Chat(), Responses(), Messages(), Gemini())}


def reply_in(form: Any, data: bytes) -> Reply:
    """The reply in a body, whole or streamed."""
    return read_reply(form.name, data, [])


def post(client: Client, target: str, body: Any, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """A request with the token where its protocol has it."""
    with contextlib.closing(Connection(client.folder / SOCKET, timeout_s=180)) as connection:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", target, data, headers or {"x-api-key": client.token})
        response = connection.getresponse()
        return response.status, response.read()


def events_in(data: bytes) -> list[Body]:
    """Objects of a stream; comments, pings and empty lines say nothing."""
    found: list[Body] = []
    for block in data.decode().split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith((":", "event: "))]
        if lines:
            text = "".join(line.removeprefix("data: ") for line in lines)
            found.append({"done": True} if text == "[DONE]" else json.loads(text))
    return [event for event in found if event.get("type") != "ping"]


def call(code: str) -> Body:
    return {"tool": "execute_code", "language": "bash", "code": code}


TURNS = [
    ScriptedTurn.model_validate({"content": "First.", "calls": [call("echo 1"), call("echo 2")]}),
    ScriptedTurn.model_validate({"content": "Then.", "calls": [call("echo 'ä\\n'")]}),
    ScriptedTurn.model_validate({"content": "Done."}),
]


@pytest.fixture
def serve(make: Callable[..., Bench]) -> Iterator[Callable[..., Bench]]:
    """Like ``make``, for an endpoint of any protocol that follows a script."""
    with contextlib.ExitStack() as stack:

        def build(program: Any, protocol: str, *, demand: bool = True, **more: Any) -> Bench:
            server = ScriptedServer(TURNS, usage=usage_rule, demand=demand, faults=more.pop("faults", None))
            stack.enter_context(server)
            root = server.url if protocol == "chat" else server.root
            settings = {"protocol": protocol, "base_url": root, "temperature": None, **more.pop("settings", {})}
            return make(program, server=server, settings=settings, **more)

        yield build


@pytest.mark.parametrize("name", FORMS)
def test_a_conversation(serve: Callable[..., Bench], name: str) -> None:
    """Text, parallel calls, pictures, thinking with its signature, cache, whole and streamed: all comes as it went.

    By hand (usage_rule): turn n has 10 + n tokens of input, 1000 (n - 1) read from and 200 written to the cache,
    100 + n of output. Gemini does not tell what was written.
    """
    form = FORMS[name]
    replies: list[Reply] = []

    def program(client: Client) -> int:
        body = form.first()
        for turn in (1, 2, 3):
            stream = turn > 1
            status, data = post(client, form.target(stream), form.streamed(body) if stream else body)
            assert status == 200, data
            if stream and name == "responses":
                numbers = [event["sequence_number"] for event in events_in(data)]
                assert numbers == list(range(len(numbers)))
            replies.append(reply_in(form, data))
            body = form.then(body, replies[-1].body)
        return 0

    bench = serve(program, name)
    assert bench.loop.run().outcome == "submitted"
    assert [reply.content for reply in replies] == ["First.", "Then.", "Done."]
    codes = [[json.loads(call.arguments)["command"] for call in reply.calls] for reply in replies]
    assert codes == [["echo 1", "echo 2"], ["echo 'ä\\n'"], []]
    assert [reply.usage.prompt for reply in replies] == [211, 1212, 2213]
    assert {reply.model for reply in replies} == {"mine"}
    totals = bench.loop.totals()
    assert (totals.turns, totals.tokens.prompt, totals.tokens.completion) == (3, 3636, 306)
    written = 0 if name == "gemini" else 600
    assert (totals.tokens.cached, totals.tokens.cache_write, totals.tokens.reasoning) == (3000, written, 120)
    assert [call.code for call in bench.toolbox.calls[1:]] == ["echo 1", "echo 2", "echo 'ä\\n'"]
    roles = [message.role for message in bench.loop.dialogue.records()[2:]]
    assert roles.count("assistant") == 3 and roles.count("tool") == 3


@pytest.mark.parametrize("name", FORMS)
def test_what_the_endpoint_gets(serve: Callable[..., Bench], name: str) -> None:
    """Model, limits and sampling are the agent's; what the endpoint may not know stays here."""

    def program(client: Client) -> int:
        assert post(client, FORMS[name].target(False), FORMS[name].first())[0] == 200
        return 0

    bench = serve(program, name, settings={"max_tokens": 2000, "temperature": 0.5})
    bench.loop.run()
    (sent,) = bench.server.requests  # type: ignore[attr-defined]
    assert sent.get("model", "real-model") == "real-model"
    assert {"metadata", "context_management", "client_metadata", "labels", "stream", "user"} & set(sent) == set()
    if name == "messages":
        # Thinking must be shorter than the reply and bears no temperature; roles are those of the protocol.
        assert (sent["max_tokens"], sent["thinking"]["budget_tokens"]) == (2000, 1024)
        assert "temperature" not in sent and [turn["role"] for turn in sent["messages"]] == ["user", "user"]
        assert sent["system"][0]["cache_control"] == {"type": "ephemeral"}
    elif name == "gemini":
        assert sent["generationConfig"] == {"maxOutputTokens": 2000, "temperature": 0.5, "topP": 0.95}
    elif name == "responses":
        assert (sent["max_output_tokens"], sent["temperature"], sent["store"]) == (2000, 0.5, False)
        assert sent["include"] == ["reasoning.encrypted_content"]
        assert sent["tools"][1]["format"]["syntax"] == "lark"
    else:
        assert (sent["max_tokens"], sent["temperature"]) == (2000, 0.5)


@pytest.mark.parametrize("name", FORMS)
def test_replies_are_as_long_as_the_program_asks(serve: Callable[..., Bench], name: str) -> None:
    """Without ``max_tokens`` in the entry nothing cuts them, and nothing is made up where the program says nothing."""
    asked = FORMS[name].first()

    def program(client: Client) -> int:
        assert post(client, FORMS[name].target(False), asked)[0] == 200
        return 0

    bench = serve(program, name)
    bench.loop.run()
    (sent,) = bench.server.requests  # type: ignore[attr-defined]
    assert asked_tokens(sent) == asked_tokens(asked)


@pytest.mark.parametrize("name", FORMS)
def test_a_request_that_makes_the_provider_go_out_is_a_finding(serve: Callable[..., Bench], name: str) -> None:
    """One for each way; which requests are such, says test_allow_lists.py."""
    form = FORMS[name]

    def program(client: Client) -> int:
        for change, _ in HOSTILE_REQUESTS[form.name]:
            status, data = post(client, form.target(False), form.first() | change)
            assert status == 200 or form.error(json.loads(data)), change
        return 0 if post(client, form.target(False), form.first())[0] == 200 else 1

    bench = serve(program, name)
    assert bench.loop.run().outcome == "submitted"
    rules = [event["finding"]["rule"] for event in bench.events("finding")]
    assert sorted(rules) == ["net.provider_tool", "net.remote_content"]
    assert "evil" not in json.dumps(bench.server.requests)  # type: ignore[attr-defined]


def check(form: Any, body: Any) -> None:
    """Read a request as the bridge does."""
    asked = find_call("POST", form.target(False))
    assert asked is not None
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    PROTOCOLS[asked.protocol].parse_request(asked, data)


@pytest.mark.parametrize("name", FORMS)
def test_faults_of_the_provider(serve: Callable[..., Bench], name: str) -> None:
    """429 and a cut stream are waited out here; what the program asked wrongly is told in its words; policy ends it."""
    form, told = FORMS[name], []

    def program(client: Client) -> int:
        for stream in (False, True, False, True):
            body = form.streamed(form.first()) if stream else form.first()
            told.append(post(client, form.target(stream), body))
        return 0

    faults = FaultPlan.model_validate(
        {
            "requests": {
                1: "rate_limit_headers",
                2: "stream_cut",
                3: "stream_error",
                5: "status_400",  # 6 is a plain request of the driver's own
                7: "status_400",
                8: "context_400",
                9: "filter_status",
                10: "filter_status",  # asked twice
            }
        }
    )
    bench = serve(program, name, faults=faults, settings={"stream": True})
    assert bench.loop.run().outcome == "refused"
    assert [status for status, _ in told] == [200, 400, 400, 400]
    words = [form.error(json.loads(data)) for _, data in told[1:]]
    assert words[0].startswith("the endpoint fails at this request")
    assert name in ("chat", "responses") or ("prompt is too long" in words[1] or "exceeds the maximum" in words[1])


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("fault", [None, "status_400"])
def test_a_stream_that_is_waited_for_lives(
    serve: Callable[..., Bench], name: str, fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signs of life come first, then the answer, or the error in the form that a stream has."""
    monkeypatch.setattr(bridge_module, "ALIVE_S", 0.05)
    form, told = FORMS[name], []

    def program(client: Client) -> int:
        told.append(post(client, form.target(True), form.streamed(form.first())))
        return 0 if post(client, form.target(False), form.first())[0] == 200 else 1

    bench = serve(
        program, name, before=lambda: time.sleep(0.3), faults=FaultPlan(requests={1: fault, 3: fault} if fault else {})
    )
    assert bench.loop.run().outcome == "submitted"
    ((status, data),) = told
    assert status == 200 and data.startswith(PROTOCOLS[form.name].KEEP_ALIVE)
    if fault is None:
        assert reply_in(form, data).content == "First."
    else:
        (event,) = events_in(data)
        assert form.error(event).startswith("the endpoint fails at this request")


def test_tokens_are_counted_here(serve: Callable[..., Bench]) -> None:
    """An estimate that asks no endpoint; a run that only counted got no answer."""

    def program(client: Client) -> int:
        counted = json.loads(post(client, "/v1/messages/count_tokens", FORMS["messages"].first())[1])
        again = json.loads(post(client, "/v1beta/models/m:countTokens", FORMS["gemini"].first())[1])
        assert 50 < counted["input_tokens"] < 500 and 50 < again["totalTokens"] < 500
        return 0

    bench = serve(program, "messages")
    with pytest.raises(InfrastructureError, match="count_tokens 200"):
        bench.loop.run()
    assert bench.server.requests == []  # type: ignore[attr-defined]


def test_the_token_is_taken_where_programs_put_it(serve: Callable[..., Bench]) -> None:
    def program(client: Client) -> int:
        form, token = FORMS["gemini"], client.token
        for headers in ({"x-goog-api-key": token}, {"x-api-key": token}, {"Authorization": f"bearer {token}"}):
            assert post(client, form.target(False), form.first(), headers)[0] == 200
        nothing = {"Authorization": "Basic eA=="}
        assert post(client, f"{form.target(False)}?key={token}", form.first(), nothing)[0] == 200
        for wrong in (f"?key={token[:-1]}", "?key=", f"?other={token}", "?" + "a=b&" * 100):
            assert post(client, form.target(False) + wrong, form.first(), nothing)[0] == 401
        return 0

    assert serve(program, "gemini", demand=False).loop.run().outcome == "submitted"


@pytest.mark.parametrize("name", FORMS)
def test_a_stream_that_broke_is_not_paid_again_as_a_whole(serve: Callable[..., Bench], name: str) -> None:
    """Programs fall back from a stream to a whole answer; the reply is the one that was on its way."""
    form, begun, gone = FORMS[name], threading.Event(), threading.Event()

    def program(client: Client) -> int:
        data = json.dumps(form.streamed(form.first())).encode()
        head = f"POST {form.target(True)} HTTP/1.1\r\nx-api-key: {client.token}\r\nContent-Length: {len(data)}\r\n\r\n"
        with socket.socket(socket.AF_UNIX) as impatient:
            impatient.connect(str(client.folder / SOCKET))
            impatient.sendall(head.encode() + data)
            assert begun.wait(20)
        gone.set()
        return 0 if post(client, form.target(False), form.first())[0] == 200 else 1

    def before() -> None:
        begun.set()
        assert gone.wait(20)

    bench = serve(program, name, before=before)
    assert bench.loop.run().outcome == "submitted"
    assert len(bench.server.requests) == 1  # type: ignore[attr-defined]


# --- hostile bodies ---------------------------------------------------------------------------------------------

HOSTILE: tuple[Any, ...] = (
    *(None, True, 0, -1, 1e300, "", "x", [], {}, [[]], [{}], [None], {"": None}, {"type": []}, {"type": {}}),
    *({"type": "text"}, {"type": "tool_result", "content": 3}, {"role": []}, {"type": "image", "source": []}),
    *({"type": "namespace", "name": "n", "tools": 3}, {"functionCall": 3}, {"functionResponse": [], "text": {}}),
    *("\\" * 32_768, "[" * 32_768, '{"a":' * 8192, "</parameter>" * 4096, '"' * 32_768, ", " * 16_384, "a\ud800"),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Ways to every value in a body."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(inner, (*path, key))


def with_value(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = with_value(value[path[0]], path[1:], new)
    return changed


@pytest.mark.parametrize("name", FORMS)
def test_hostile_bodies_are_read_or_refused(name: str) -> None:
    """Every value of a body replaced by every hostile one: only RequestRefused is raised, within seconds."""
    form, chance = FORMS[name], random.Random(0)
    asked = find_call("POST", form.target(False))
    assert asked is not None
    protocol, read = PROTOCOLS[asked.protocol], 0
    body = form.first()
    begin = time.process_time()
    for path in places(body):
        for new in HOSTILE:
            data = json.dumps(with_value(body, path, new)).encode()
            with contextlib.suppress(RequestRefused):
                request = protocol.parse_request(asked, data)
                protocol.upstream_body(agent(protocol=name), request)
                read += 1
                if chance.random() < 0.1:
                    for message in request.chat:
                        _digest(message)
    assert read > 50
    assert time.process_time() - begin < 60


def test_the_calls_and_results_of_a_conversation_are_bounded() -> None:
    """One message may hold hundreds of thousands: 20,000 of them (0.8 MB) took 44 s, and 16 MiB would take hours."""
    for results, calls in ((10_000, 1), (1, 10_000)):
        asked = [{"type": "tool_use", "id": "x", "name": "bash", "input": {}}] * calls
        told = [{"type": "tool_result", "tool_use_id": "x"}] * results
        messages = [{"role": "assistant", "content": asked}, {"role": "user", "content": told}]
        with pytest.raises(RequestRefused, match="10002 messages, calls and results"):
            check(FORMS["messages"], {"messages": messages})


@pytest.mark.parametrize("text", [text for text in HOSTILE if isinstance(text, str)])
def test_arguments_are_read_in_linear_time(text: str) -> None:
    """32 KB of backslashes once took 20 s, with the interpreter's lock; a program may send 16 MB."""
    begin = time.process_time()
    for arguments in (text, json.dumps({"command": text}), f'{{"command": "{text}'):
        read_tool_call(ToolCall("i", "bash", arguments * 8))
    assert time.process_time() - begin < 5


# --- another protocol than the endpoint's -----------------------------------------------------------------------


def test_a_program_that_speaks_another_protocol_is_refused_before_anything_is_paid(
    serve: Callable[..., Bench],
) -> None:
    def program(client: Client) -> int:
        assert post(client, FORMS["messages"].target(False), FORMS["messages"].first())[0] == 400
        return 0

    bench = serve(program, "chat")
    with pytest.raises(InfrastructureError, match=r"'messages', the endpoint 'chat'.*\n.*gateway.*docs/serving.md"):
        bench.loop.run()
    assert bench.server.requests == []  # type: ignore[attr-defined]


def test_another_protocol_after_an_answer_is_the_programs_mistake(serve: Callable[..., Bench]) -> None:
    status = []

    def program(client: Client) -> int:
        status.extend(post(client, FORMS[name].target(False), FORMS[name].first())[0] for name in ("chat", "messages"))
        return 0

    assert serve(program, "chat").loop.run().outcome == "submitted"
    assert status == [200, 400]
