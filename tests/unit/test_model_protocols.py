"""The test server in four protocols, read by the package's own reader, which recorded answers of providers vouch for
(tests/contract/test_recorded_answers.py), and by OpenAI's SDK.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from protocol_client import answered, echo_of, path_of

from automedbench.agent.models.scripted import CodeStep, ScriptedTurn, SubmitStep
from automedbench.agent.protocols import read_reply
from automedbench_rehearsal.model_server.program import command_of, example, filled
from automedbench_rehearsal.model_server.server import ScriptedServer, usage_rule

PYTHON = CodeStep(tool="execute_code", language="python", code="print('EOF')\nprint('$HOME')")
LIST = CodeStep(tool="execute_code", language="bash", code="ls -l")
SUBMIT = SubmitStep(tool="submit_results", summary="All is written.")
TURNS = [
    ScriptedTurn(content="I look first."),
    ScriptedTurn(content="Now I compute." + " And so on." * 50, calls=[PYTHON, LIST]),
    ScriptedTurn(calls=[LIST, SUBMIT]),
]
SHELL = {
    "type": "object",
    "properties": {"command": {"type": "string"}, "description": {"type": "string"}},
    "required": ["command", "description"],
}
ROOT = Path(__file__).resolve().parents[2]
PROTOCOLS = ("chat", "responses", "messages", "gemini")


@dataclass
class Got:
    """A reply put together: thinking, text, calls as (id, name, arguments), usage, and what goes back unchanged."""

    thinking: str = ""
    text: str = ""
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    usage: Mapping[str, Any] = field(default_factory=dict)
    echo: list[Any] = field(default_factory=list)


# --- requests and replies ---------------------------------------------------------------------------------------


def body_of(protocol: str, history: Sequence[Any], tools: Mapping[str, Any], stream: bool = False) -> dict[str, Any]:
    """A request with these tools (name → schema of arguments)."""
    if protocol == "gemini":
        declared = [{"name": name, "parametersJsonSchema": schema} for name, schema in tools.items()]
        return {"contents": list(history)} | ({"tools": [{"functionDeclarations": declared}]} if tools else {})
    common = {"model": "m", "stream": stream}
    if protocol == "messages":
        offered = [{"name": name, "input_schema": schema} for name, schema in tools.items()]
        return common | {"max_tokens": 500, "messages": list(history), "tools": offered}
    flat = [{"type": "function", "name": name, "parameters": schema} for name, schema in tools.items()]
    if protocol == "responses":
        return common | {"input": list(history), "tools": flat}
    nested = [{"type": "function", "function": {"name": name, "parameters": tools[name]}} for name in tools]
    given = {"tools": nested} if nested else {}
    return common | given | {"messages": list(history), "stream_options": {"include_usage": True}}


def first(protocol: str, text: str = "Begin.") -> list[Any]:
    if protocol == "gemini":
        return [{"role": "user", "parts": [{"text": text}]}]
    return [{"role": "user", "content": text}]


def read(protocol: str, data: bytes) -> Got:
    """The reply in a body, whole or streamed."""
    reply = read_reply(protocol, data, [])  # type: ignore[arg-type]
    calls = [(call.id, call.name, json.loads(call.arguments)) for call in reply.calls]
    usage: Any = reply.body.get("usageMetadata" if protocol == "gemini" else "usage") or {}
    return Got(reply.reasoning, reply.content, calls, usage, echo_of(protocol, reply.body))


def events(data: str) -> list[Any]:
    """The JSON of server-sent events, each with the name of its line ``event:`` checked."""
    found = []
    for block in data.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines())
        if lines and lines["data"] != "[DONE]":
            found.append(json.loads(lines["data"]))
            assert lines.get("event") in (None, found[-1].get("type"))
    return found


HEADERS = {"anthropic-version": "2023-06-01"}
CLIENT = httpx2.Client(timeout=30, verify=False, trust_env=False)


def post(server: ScriptedServer, path: str, body: Any, **headers: str) -> httpx2.Response:
    return CLIENT.post(server.root + path, json=body, headers=HEADERS | headers)


def ask(
    server: ScriptedServer, protocol: str, history: Sequence[Any], tools: Mapping[str, Any], stream: bool = False
) -> Got:
    response = post(server, path_of(protocol, stream), body_of(protocol, history, tools, stream))
    assert response.status_code == 200, response.text
    return read(protocol, response.content)


def session(server: ScriptedServer, protocol: str, tools: Mapping[str, Any], stream: bool = False) -> Iterator[Got]:
    """Replies until one calls nothing."""
    history = first(protocol)
    while True:
        got = ask(server, protocol, history, tools, stream)
        yield got
        if not got.calls:
            return
        history += answered(protocol, got.echo)


# --- sessions --------------------------------------------------------------------------------------------------

HEREDOC = "python3 - <<'EOF_'\nprint('EOF')\nprint('$HOME')\nEOF_"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_session_through_a_shell(protocol: str, stream: bool) -> None:
    """Text waits for the next call, parallel calls stay together, submitting is a plain text; thinking is demanded."""
    with ScriptedServer(TURNS, demand=True, usage=usage_rule) as server:
        replies = list(session(server, protocol, {"read_file": {}, "bash": SHELL}, stream))
        turns = [(exchange.turn, exchange.protocol) for exchange in server.exchanges]
    assert turns == [(1, protocol), (2, protocol), (3, protocol)]
    assert [reply.text for reply in replies] == [
        "I look first.\n\n" + TURNS[1].content,
        "",
        "All is written.",
    ]
    commands = [[(name, arguments) for _, name, arguments in reply.calls] for reply in replies]
    assert commands == [
        [("bash", {"command": command, "description": "step"}) for command in (HEREDOC, "ls -l")],
        [("bash", {"command": "ls -l", "description": "step"})],
        [],
    ]
    assert all(reply.thinking for reply in replies)
    assert len({name for reply in replies for name, _, _ in reply.calls}) == 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_our_own_tools_are_called_by_their_names(protocol: str) -> None:
    """With execute_code on offer every turn is told as the script has it; a text alone is a turn."""
    history, own = first(protocol), {"execute_code": {}, "submit_results": {}, "bash": SHELL}
    with ScriptedServer(TURNS) as server:
        got = ask(server, protocol, history, own)
        assert (got.text, got.calls) == ("I look first.", [])
        history += answered(protocol, got.echo)[: 1 if protocol != "responses" else None] + first(protocol, "Go on.")
        got = ask(server, protocol, history, own)
        assert [(name, arguments) for _, name, arguments in got.calls] == [
            ("execute_code", {"language": step.language, "code": step.code}) for step in (PYTHON, LIST)
        ]
        last = ask(server, protocol, history + answered(protocol, got.echo), own)
    assert [(name, arguments) for _, name, arguments in last.calls] == [
        ("execute_code", {"language": "bash", "code": "ls -l"}),
        ("submit_results", {"summary": "All is written."}),
    ]


def test_a_stream_of_messages_tells_its_tokens_twice() -> None:
    """The first event has what was read and one token of output, the last one the whole."""
    with ScriptedServer(TURNS, usage=usage_rule) as server:
        body = body_of("messages", first("messages"), {"bash": SHELL}, True)
        told = events(post(server, "/v1/messages?beta=true", body).text)
    kinds = [event["type"] for event in told]
    assert kinds[:3] == ["message_start", "ping", "content_block_start"]
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert told[0]["message"]["usage"]["output_tokens"] == 1 and told[0]["message"]["content"] == []
    assert told[-2]["usage"]["output_tokens"] == 101 and told[-2]["delta"]["stop_reason"] == "tool_use"


def test_the_sdk_reads_responses() -> None:
    import openai

    tools: Any = [{"type": "function", "name": "shell", "parameters": SHELL, "strict": False}]
    with (
        ScriptedServer(TURNS, demand=True) as server,
        openai.OpenAI(api_key="x", base_url=server.url, max_retries=0) as client,
    ):
        with client.responses.stream(model="m", input="Begin.", tools=tools) as stream:
            kinds = [event.type for event in stream]
            found = stream.get_final_response()
        results: Any = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "ok"}
            for item in found.output
            if item.type == "function_call"
        ]
        later = client.responses.create(model="m", input=results, previous_response_id=found.id, tools=tools)
        conversations = {exchange.conversation for exchange in server.exchanges}
    assert kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] == "response.completed"
    assert [item.type for item in found.output] == ["reasoning", "message", "function_call", "function_call"]
    # The earlier response is named only: turn and conversation are read from its id.
    assert [item.type for item in later.output] == ["reasoning", "function_call"]
    assert len(conversations) == 1


def test_results_between_the_calls_of_one_response() -> None:
    """A program may tell call, result, call, result: the ids hold the reply together."""
    with ScriptedServer(TURNS) as server:
        got = ask(server, "responses", first("responses"), {"shell": SHELL})
        message, *calls = got.echo
        results = answered("responses", got.echo)[len(got.echo) :]
        mixed = [message, *(item for pair in zip(calls, results, strict=True) for item in pair)]
        later = ask(server, "responses", [*first("responses"), *mixed], {"shell": SHELL})
    assert [arguments["command"] for _, _, arguments in later.calls] == ["ls -l"]


# --- what must come back ---------------------------------------------------------------------------------------

REFUSED = {
    "chat": ("reasoning_content", "not valid"),
    "responses": ("without its required 'reasoning' item", "could not be verified"),
    "messages": ("Expected `thinking` or `redacted_thinking`, but found `tool_use`", "Invalid `signature`"),
    "gemini": ("missing a thought_signature", "signature is not valid"),
}


def spoilt(echo: list[Any], drop: bool) -> list[Any]:
    """A reply without its proofs, or with others."""
    names = {"signature", "thoughtSignature", "encrypted_content", "thought_signature"}
    if drop:
        kept = [item for item in echo if item.get("type") not in ("thinking", "reasoning")]
        return [
            {key: value for key, value in item.items() if key not in names | {"reasoning_content"}} for item in kept
        ]
    text = json.dumps(echo)
    for name in names:
        text = text.replace(f'"{name}": "', f'"{name}": "AAAA')
    return list(json.loads(text))


@pytest.mark.parametrize("drop", [True, False], ids=["dropped", "changed"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_thinking_is_demanded_back(protocol: str, drop: bool) -> None:
    history = first(protocol)
    with ScriptedServer(TURNS, demand=True) as server:
        got = ask(server, protocol, history, {"bash": SHELL})
        got.echo = spoilt(got.echo, drop)
        history += answered(protocol, got.echo)
        refused = post(server, path_of(protocol), body_of(protocol, history, {"bash": SHELL}))
    assert refused.status_code == 400
    assert REFUSED[protocol][0 if drop else 1] in refused.json()["error"]["message"]


def test_thinking_of_a_finished_exchange_is_not_demanded() -> None:
    """After the next message of the user, earlier thinking may be left out (as Anthropic's and Google's rules say)."""
    for protocol in PROTOCOLS:
        with ScriptedServer(TURNS, demand=True) as server:
            got = ask(server, protocol, first(protocol), {"bash": SHELL})
            got.echo = spoilt(got.echo, drop=True)
            history = first(protocol) + answered(protocol, got.echo) + first(protocol, "Go on.")
            assert ask(server, protocol, history, {"bash": SHELL}).calls, protocol


def test_limits_and_versions_that_are_demanded() -> None:
    body = body_of("messages", first("messages"), {})
    with ScriptedServer(TURNS) as server:
        bare = CLIENT.post(server.url + "/messages", json=body)
        unlimited = post(server, "/v1/messages", {key: value for key, value in body.items() if key != "max_tokens"})
        both = body_of("chat", first("chat"), {}) | {"max_tokens": 5, "max_completion_tokens": 5}
        small = body_of("responses", first("responses"), {}) | {"max_output_tokens": 4}
        told = [bare, unlimited, post(server, path_of("chat"), both), post(server, path_of("responses"), small)]
    assert [response.status_code for response in told] == [400] * 4
    assert [response.json()["error"]["message"].split()[0] for response in told] == [
        "anthropic-version:",
        "max_tokens:",
        "Setting",
        "Invalid",
    ]


# --- programs --------------------------------------------------------------------------------------------------


def properties(**kinds: Any) -> dict[str, Any]:
    """A schema that demands its first property."""
    about = {name: kind if isinstance(kind, dict) else {"type": kind} for name, kind in kinds.items()}
    return {"type": "object", "properties": about, "required": [next(iter(about))]}


WORDS = {"type": "array", "items": {"type": "string"}}
POLL = {"chars": "", "yield_time_ms": 300_000}
MILLISECONDS = {"type": "number", "description": "Timeout in milliseconds"}
# The tools as these programs offer them (names and properties from their requests).
TOOLS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "Claude Code": ("Bash", properties(command="string", timeout=MILLISECONDS), {"command": "ls", "timeout": 600_000}),
    "Codex": ("exec_command", properties(cmd="string", yield_time_ms="number"), {"cmd": "ls", "yield_time_ms": 30_000}),
    "older Codex": ("shell", properties(command=WORDS, workdir="string"), {"command": ["bash", "-lc", "ls"]}),
    "Gemini CLI": ("run_shell_command", properties(command="STRING", dir_path="STRING"), {"command": "ls"}),
    "OpenHands": (
        "execute_bash",
        properties(command="string") | {"required": ["command", "security_risk"]},
        {"command": "ls", "security_risk": "step"},
    ),
    "unknown name": ("do_it", properties(script="string"), {"script": "ls"}),
}


@pytest.mark.parametrize("program", TOOLS)
def test_shell_tools_are_known_by_their_schema(program: str) -> None:
    name, schema, arguments = TOOLS[program]
    editor = properties(command={"type": "string", "enum": ["view", "create"]}, path="string")
    turns = [ScriptedTurn(calls=[CodeStep(tool="execute_code", language="bash", code="ls")])]
    with ScriptedServer(turns) as server:
        got = ask(server, "chat", first("chat"), {"editor": editor, name: schema})
    assert [call[1:] for call in got.calls] == [(name, arguments)]


def test_local_shell_of_responses() -> None:
    body = body_of("responses", first("responses"), {}) | {"tools": [{"type": "local_shell"}]}
    with ScriptedServer(TURNS) as server:
        calls = post(server, "/v1/responses", body).json()["output"][1:]
    assert [(call["type"], call["action"]["command"][:2]) for call in calls] == [
        ("local_shell_call", ["bash", "-lc"])
    ] * 2


def test_a_command_that_runs_on_is_waited_for() -> None:
    """Codex tells the session of a command that lasts longer than a call; the turn goes on until it has ended."""
    wait = properties(session_id="number", chars="string", yield_time_ms="number")
    tools = {"exec_command": properties(cmd="string"), "write_stdin": wait}
    history = first("responses")
    with ScriptedServer([ScriptedTurn(calls=[LIST]), ScriptedTurn(calls=[SUBMIT])], demand=True) as server:
        for output in (
            "Process running with session ID 41",
            "Process running with session ID 41",
            "exited with code 0",
        ):
            got = ask(server, "responses", history, tools)
            history += answered("responses", got.echo)
            history[-1]["output"] = output
            said = [call[1:] for call in got.calls]
            assert said in ([("exec_command", {"cmd": "ls -l"})], [("write_stdin", {"session_id": 41} | POLL)])
        assert ask(server, "responses", history, tools).text == "All is written."
        assert [exchange.turn for exchange in server.exchanges] == [1, 1, 1, 2]
    assert len({item["call_id"] for item in history if item.get("type") == "function_call"}) == 3


def test_calls_come_one_by_one_where_a_program_wants_that() -> None:
    body = body_of("chat", first("chat"), {"bash": SHELL}) | {"parallel_tool_calls": False}
    with ScriptedServer(TURNS) as server:
        assert len(read("chat", post(server, path_of("chat"), body).content).calls) == 1


def test_a_tool_for_submitting_is_used() -> None:
    with ScriptedServer([ScriptedTurn(calls=[LIST]), ScriptedTurn(calls=[SUBMIT])]) as server:
        tools = {"bash": SHELL, "finish": properties(message="string")}
        replies = session(server, "messages", tools)
        assert [next(replies).calls[0][1:] for _ in range(2)][1] == ("finish", {"message": "All is written."})


SIDE: dict[str, tuple[str, dict[str, Any]]] = {
    "quota": ("messages", {"max_tokens": 1}),
    "title by Claude Code": ("messages", {"system": "Write a title for this session."}),
    "title by OpenCode": ("chat", {"messages": [{"role": "system", "content": "You are a title generator."}]}),
    "summary": ("gemini", {}),
    "memory": ("responses", {"tools": [{"type": "web_search"}]}),
}


@pytest.mark.parametrize("kind", SIDE)
def test_requests_beside_the_work_are_no_turns(kind: str) -> None:
    protocol, more = SIDE[kind]
    with ScriptedServer(TURNS, demand=True) as server:
        got = read(protocol, post(server, path_of(protocol), body_of(protocol, first(protocol), {}) | more).content)
        assert (got.text, got.calls, got.thinking, server.exchanges[0].turn) == ("ok", [], "", 0)
        assert ask(server, protocol, first(protocol), {"bash": SHELL}).calls
        assert server.exchanges[1].turn == 1


def test_a_request_for_a_form_gets_it() -> None:
    """Gemini CLI asks who speaks next: the first word of the enumeration, by the schema of its request."""
    speaker = {"type": "OBJECT", "properties": {"next_speaker": {"type": "STRING", "enum": ["user", "model"]}}}
    body = body_of("gemini", first("gemini"), {}) | {"generationConfig": {"responseSchema": speaker}}
    with ScriptedServer(TURNS) as server:
        assert json.loads(read("gemini", post(server, path_of("gemini"), body).content).text) == {
            "next_speaker": "user"
        }


def test_examples_follow_their_schema() -> None:
    schema = properties(a="integer", b="boolean", c={"anyOf": [{"type": "string"}, {"type": "null"}]}, d=WORDS)
    schema["required"] = list("abcd")
    assert example(schema) == {"a": 1, "b": False, "c": "step", "d": []}
    assert filled(schema, {"a": 5, "unknown": 1}) == {"a": 5, "b": False, "c": "step", "d": []}


def test_python_runs_as_a_here_document(tmp_path: Path) -> None:
    """Nothing of the code is expanded, and its own end marks do not end it."""
    done = subprocess.run(["bash", "-c", command_of(PYTHON)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "EOF\n$HOME\n"


MINI = "Reply with one ```mswea_bash_command block. End with `echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT`."
LISTING = "You MUST use this *file listing* format"
BLOCKS = "Use *SEARCH/REPLACE* blocks"
TEXTS = {
    MINI: [
        "(step 2)\n\n```mswea_bash_command\nls -l\n```",
        "```mswea_bash_command\necho COMPLETE_TASK_AND_SUBMIT_FINAL",
    ],
    LISTING: ["(step 2)\n\nstep_2.sh\n```\nls -l\n```", "All is written."],
    BLOCKS: ["step_2.sh\n```\n<<<<<<< SEARCH\n=======\nls -l\n>>>>>>> REPLACE\n```", "All is written."],
}


@pytest.mark.parametrize("brief", TEXTS)
def test_programs_without_tools_get_text(brief: str) -> None:
    """Turns are counted by the step that a reply names: replies of the program's own making are none."""
    history: list[Any] = [{"role": "system", "content": brief}, *first("chat"), {"role": "assistant", "content": "Ok."}]
    said = []
    with ScriptedServer(TURNS) as server:
        for _ in range(4):
            said.append(ask(server, "chat", history, {}).text)
            history += [{"role": "assistant", "content": said[-1]}, *first("chat", "result")]
    assert "<<'EOF_'" in said[0]
    assert [part in text for part, text in zip(TEXTS[brief], said[1::2], strict=True)] == [True, True]


def test_a_program_that_runs_one_file_gets_the_script_as_one() -> None:
    """Our recipe for Aider runs ``run.py`` after each edit and ends when that succeeds."""
    told = (ROOT / "config/agents/aider/how-it-runs.md").read_text()
    history = [{"role": "system", "content": LISTING}, *first("chat", told), *first("chat")]
    with ScriptedServer(TURNS) as server:
        text = ask(server, "chat", history, {}).text
        later = ask(server, "chat", [*history, {"role": "assistant", "content": text}, *first("chat")], {}).text
    code = f"{PYTHON.code}\n\nimport subprocess\n\nsubprocess.run(['bash', '-c', 'ls -l'], check=True)"
    assert f"run.py\n```\n{code}" in text
    assert later == "All is written."


# --- keys and lists --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "header", "query"),
    [
        ("chat", {"Authorization": "Bearer sk-right"}, ""),
        ("messages", {"x-api-key": "sk-right"}, ""),
        ("gemini", {"x-goog-api-key": "sk-right"}, ""),
        ("gemini", {}, "?key=sk-right"),
    ],
)
def test_keys_and_lists(protocol: str, header: dict[str, str], query: str) -> None:
    body = body_of(protocol, first(protocol), {"bash": SHELL})
    with ScriptedServer(TURNS, keys=["sk-right"]) as server:
        refused = post(server, path_of(protocol), body)
        assert post(server, path_of(protocol) + query, body, **header).status_code == 200
        version = "v1beta" if protocol == "gemini" else "v1"
        told = HEADERS if protocol == "messages" else {}
        models = CLIENT.get(f"{server.root}/{version}/models{query}", headers=told | header).json()
        counting = {"messages": "/v1/messages/count_tokens", "gemini": "/v1beta/models/m:countTokens"}.get(protocol)
        counted = post(server, counting + query, body, **header).json() if counting else {"n": 1}
        assert server.count() == 2
        assert CLIENT.post(server.root + "/v1/embeddings", json={}).status_code == 404
        assert server.refused_paths == ["/v1/embeddings"]
    assert refused.status_code == (400 if protocol == "gemini" else 401)
    entry = models["models"][0] if protocol == "gemini" else models["data"][0]
    assert "scripted" in (entry.get("name", ""), entry.get("id", "")) or entry["name"] == "models/scripted"
    assert next(iter(counted.values())) > 0
