"""The loop of a command-line agent: a real bridge and a real endpoint on loopback; only the container is a thread."""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from test_bridge import ask

from automedbench.agent.budget.ledger import MeteredModel
from automedbench.agent.budget.limits import Budget, Ending
from automedbench.agent.command import loop as command_loop
from automedbench.agent.command import traffic as command_traffic
from automedbench.agent.command.bridge import Bridge
from automedbench.agent.command.loop import CommandLoop, quote_end
from automedbench.agent.command.reported import read_code_blocks, read_tool_call
from automedbench.agent.durable.attempts import Journal
from automedbench.agent.log import Dialogue, Masker, RunLog
from automedbench.agent.models.endpoint import EndpointModel
from automedbench.agent.models.model import EndpointError, ToolCall
from automedbench.agent.models.scripted import ScriptedTurn
from automedbench.agent.toolbox import Contract, Toolbox
from automedbench.agent.tools import CodeRequest
from automedbench.base.cards import Limits, OutputFile
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Enforced, Finding, Process
from automedbench.campaign.agents import Agent
from automedbench.sandbox.container.process import CodeResult, Stop
from automedbench.sandbox.evidence.policy import Strikes
from automedbench.sandbox.evidence.trace import TracedProgram
from automedbench_rehearsal.model_server.chat import Chat
from automedbench_rehearsal.model_server.faults import ServerFault, apply_fault
from automedbench_rehearsal.model_server.meter import TokenMeter
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer, completion

KEY = "sk-outside-1234567890"
OUTPUT = OutputFile(path="{case}/out.json", format="json", max_bytes=100, description="a file")
PRICING = {"input": "10", "output": "100", "as_of": "2026-01-01", "source": "made up"}

Program_ = Callable[["Client"], int]


@dataclass
class Client:
    """What a program inside has: the bridge's socket, its token, the workspace; ``killed`` stands for a signal."""

    folder: Path
    token: str
    workspace: Path
    killed: threading.Event

    def ask(self, *messages: Mapping[str, Any], **fields: Any) -> tuple[int, dict[str, Any]]:
        """One request; status and body."""
        if self.killed.is_set():
            raise ConnectionError("killed")
        status, data = ask(self.folder, self.token, {"messages": list(messages), **fields})
        return status, json.loads(data)

    def write(self, *cases: str) -> None:
        for case in cases:
            path = self.workspace / f"agents_outputs/{case}/out.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}")


class ThreadSandbox:
    """The command is a Python function in a thread; ``watch`` is asked as the real one does, only more often."""

    data_dir, workspace_dir = "/data/public", "/workspace"
    enforced = Enforced(backend="apptainer", network="sealed")

    def __init__(self, program: Program_) -> None:
        self.program = program
        self.client: Client | None = None
        self.findings: list[Finding] = []
        self.inside: list[TracedProgram] = []
        self.opened: list[Process] = []
        self.code = ""
        self.killed = threading.Event()

    def drain_findings(self) -> list[Finding]:
        drained, self.findings = self.findings, []
        return drained

    def take_turn(self) -> float:
        return 0.0

    def drain_gpu_wait(self) -> float:
        return 0.0

    def drain_gpu_use(self) -> None:
        return None

    def drain_processes(self) -> list[Process] | None:
        """Those of ``opened``, once."""
        taken, self.opened = self.opened, []
        return taken

    def programs(self) -> list[TracedProgram]:
        """Those of ``inside``, once."""
        taken, self.inside = self.inside, []
        return taken

    def end(self) -> None:
        self.ended = True

    def set_deadline(self, seconds: float | None) -> None:
        self.left_s = seconds

    def frozen(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def run_code(
        self,
        language: str,
        code: str,
        *,
        call: int,
        turn: int,
        log: Path,
        timeout_s: float,
        watch: Callable[[], Stop | None] | None = None,
    ) -> CodeResult:
        assert watch is not None and self.client is not None
        self.code = code
        done: list[int] = []
        begin = time.monotonic()

        def target() -> None:
            with contextlib.suppress(ConnectionError):
                done.append(self.program(client))

        client = self.client
        thread = threading.Thread(target=target, daemon=True)
        thread.start()
        reason = None
        while thread.is_alive() and reason is None:
            thread.join(0.02)
            reason = watch()
        elapsed = time.monotonic() - begin
        if reason is not None:
            self.killed.set()
            thread.join(10)
            return self._result("killed", None, elapsed, f"[SANDBOX] {reason.reason}")
        return self._result("ok" if done == [0] else "error", done[0] if done else 1, elapsed, "")

    def _result(self, status: Any, exit_code: int | None, elapsed: float, said: str) -> CodeResult:
        return CodeResult(status=status, exit_code=exit_code, stdout="out", stderr=said, elapsed_s=elapsed)


@dataclass
class Bench:
    """A loop with all its parts, and how it ended."""

    loop: CommandLoop
    sandbox: ThreadSandbox
    log: Path

    @property
    def toolbox(self) -> Toolbox:
        return self.loop.toolbox

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = (self.log / "events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["type"] == kind]

    def said(self) -> list[tuple[int, str, str]]:
        """Turn, role, content of what was said after the brief."""
        return [(message.turn, message.role, message.content) for message in self.loop.dialogue.records()[2:]]


class Clock:
    """The real time, and all that was slept."""

    slept_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.slept_s

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Bench]]:
    monkeypatch.setattr(command_loop, "LOOK_S", 0.05)
    with contextlib.ExitStack() as stack:

        def build(
            program: Program_,
            *answers: Answer,
            limits: Mapping[str, Any] | None = None,
            before: Any = None,
            server: ScriptedServer | None = None,
            settings: Mapping[str, Any] | None = None,
            checked: bool = False,
        ) -> Bench:
            if server is None:
                server = stack.enter_context(ScriptedServer(answers=list(answers) or [Answer(body=completion("hi"))]))
            entry = {
                "provider": "command",
                "model": "real-model",
                "base_url": server.url,
                "api_key_env": "KEY",
                "command": ["prog", "{brief}"],
                "pricing": PRICING,
            }
            agent = Agent.model_validate(entry | dict(settings or {}))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="b-")))
            log = stack.enter_context(RunLog(tmp_path / "log", Masker([KEY])))
            journal = stack.enter_context(Journal(tmp_path / "log/journal.jsonl", log))
            bridge = stack.enter_context(Bridge(agent, folder, brief="brief"))
            clock = Clock()
            model = MeteredModel(agent, "a/t/lite/r1", "0001")
            hooks = {"on_attempt": model.note_attempt, "on_send": model.admit_attempt}
            endpoint = EndpointModel(agent, (KEY,), **hooks, sleep=clock.sleep, clock=clock)
            model.meter(stack.enter_context(endpoint))
            workspace = tmp_path / "workspace"
            workspace.mkdir()
            sandbox = ThreadSandbox(program)
            sandbox.client = Client(folder, bridge.token, workspace, sandbox.killed)
            cases = ["c1", "c2", "c3", "c4"]
            expected = {f"{case}/out.json": OUTPUT for case in cases}
            toolbox = Toolbox(
                sandbox=sandbox,
                workspace=workspace,
                log=log,
                journal=journal,
                budget=Budget(Limits.model_validate(limits or {}), agent.pricing),
                contract=Contract(expected, {path: path.split("/")[0] for path in expected}, len(cases)),
                strikes=Strikes(1),
            )
            model.limits = toolbox.budget
            dialogue = Dialogue("system", "kickoff", log, agent.context_tokens)
            loop = CommandLoop(
                agent=agent,
                model=model,
                bridge=bridge,
                dialogue=dialogue,
                toolbox=toolbox,
                before_request=before or (lambda: None),
                checked=checked,
            )
            built = Bench(loop, sandbox, tmp_path / "log")
            built.server = server  # type: ignore[attr-defined]
            return built

        yield build


USER = {"role": "user", "content": "Begin."}
ASKED = {"max_tokens": 8192}


def called(code: str, name: str = "bash", key: str = "command", ident: str = "c1") -> Answer:
    """A reply with one call of a program's own tool."""
    function = {"name": name, "arguments": json.dumps({key: code})}
    calls = [{"id": ident, "type": "function", "function": function}]
    return Answer(body=completion("I run it.", finish="tool_calls", tool_calls=calls))


def work(client: Client) -> int:
    """Ask, run what was called, tell the result, end."""
    _, first = client.ask(USER)
    message = first["choices"][0]["message"]
    client.write("c1", "c2", "c3", "c4")
    client.ask(USER, message, {"role": "tool", "tool_call_id": "c1", "content": '{"exit_code": 0, "stdout": "done"}'})
    return 0


def test_a_whole_run(make: Callable[..., Bench]) -> None:
    bench = make(work, called("python3 predict.py"), Answer(body=completion("All four are written.")))
    ending = bench.loop.run()
    toolbox, totals = bench.toolbox, bench.loop.totals()
    assert ending == Ending("submitted", "the command ended with exit code 0; every expected file exists")
    assert toolbox.submitted and toolbox.summary == "All four are written."
    assert bench.sandbox.code.endswith("\nexec prog /run/services/brief.md < /run/services/brief.md\n")
    # By hand: two replies of 3 and 2 tokens at 10 and 100 USD per million.
    assert (totals.turns, totals.tokens.prompt, totals.tokens.completion, totals.cost_usd) == (2, 6, 4, "0.00046")
    assert bench.said() == [
        (0, "user", "Begin."),
        (1, "assistant", "I run it."),
        (1, "tool", '{"exit_code": 0, "stdout": "done"}'),
        (2, "assistant", "All four are written."),
    ]
    command, reported = toolbox.calls
    assert (command.call, command.turn, command.status, command.new_files) == (1, 0, "ok", [])
    assert (reported.call, reported.turn, reported.code, reported.stdout) == (2, 1, "python3 predict.py", "done")
    assert (reported.stage, len(reported.new_files), reported.exit_code) == ("S4", 4, 0)
    assert (totals.n_exec, totals.n_exec_failed) == (2, 0)


def test_a_program_that_took_its_driver_with_it_is_not_started_again(make: Callable[..., Bench]) -> None:
    bench = make(work)
    bench.toolbox.deaths = lambda _about: 3
    assert bench.loop.run().outcome == "out_of_memory"
    assert bench.server.requests == []  # type: ignore[attr-defined]


def test_a_program_that_the_sandbox_ended_for_its_memory(make: Callable[..., Bench]) -> None:
    """Without a control group no kernel counts kills; the sandbox's own note tells."""

    def program(client: Client) -> int:
        client.ask(USER)
        return 137

    bench = make(program)
    result = CodeResult(status="killed", exit_code=137, stdout="", stderr="[SANDBOX] memory limit: 9 GB", elapsed_s=1)
    run = bench.sandbox.run_code
    bench.sandbox.run_code = lambda *words, **options: run(*words, **options) and result  # type: ignore[method-assign]
    assert bench.loop.run() == Ending("out_of_memory", "the command ran out of memory")


def test_the_key_is_outside_and_the_model_is_the_agents(make: Callable[..., Bench]) -> None:
    def program(client: Client) -> int:
        client.ask(USER, model="another", temperature=2)
        return 0

    bench = make(program)
    bench.loop.run()
    (sent,) = bench.server.requests  # type: ignore[attr-defined]
    (headers,) = bench.server.headers  # type: ignore[attr-defined]
    assert (sent["model"], sent["temperature"], headers["authorization"]) == ("real-model", 0.0, f"Bearer {KEY}")
    assert bench.loop.bridge.token not in json.dumps([sent, headers])
    assert all(KEY not in path.read_text() for path in bench.log.rglob("*") if path.is_file())


def test_missing_files_are_noted(make: Callable[..., Bench]) -> None:
    def program(client: Client) -> int:
        client.ask(USER)
        client.write("c1")
        return 0

    ending = make(program).loop.run()
    assert ending == Ending("submitted", "the command ended with exit code 0; 3 of 4 expected files are missing")


def test_another_exit_code_is_no_submission(make: Callable[..., Bench]) -> None:
    bench = make(lambda client: 7 if client.ask(USER) else 0)
    ending = bench.loop.run()
    assert (ending.outcome, bench.toolbox.submitted) == ("stopped", False)
    assert "exit code 7" in ending.detail


@pytest.mark.parametrize("settings, asked", [({}, None), (ASKED, 4096), (ASKED, 8192), (ASKED, None)])
def test_a_failure_after_a_reply_that_the_entry_cut_is_no_result(
    make: Callable[..., Bench], settings: Mapping[str, Any], asked: int | None
) -> None:
    """What the program itself limited, or the model's own end, is the agent's."""
    cut = Answer(body=completion("hi", finish="length"))
    bench = make(
        lambda client: client.ask(USER, **({"max_tokens": asked} if asked else {})) and 7, cut, settings=settings
    )
    if settings and asked != 4096:
        with pytest.raises(InfrastructureError, match="cut at the 8192 tokens of max_tokens in its entry"):
            bench.loop.run()
    else:
        assert bench.loop.run().outcome == "stopped"


def test_files_without_a_reported_call_are_the_commands(make: Callable[..., Bench]) -> None:
    """A program that tells nothing still leaves files: they count for the command as a whole."""

    def program(client: Client) -> int:
        client.ask(USER)
        client.write("c1", "c2", "c3")
        time.sleep(0.3)
        client.write("c4")
        return 0

    bench = make(program)
    bench.loop.run()
    (command,) = bench.toolbox.calls
    assert (command.stage, len(command.new_files)) == ("S4", 4)
    assert bench.events("files")[0]["count"] == 3


# --- limits -----------------------------------------------------------------------------------------------------


def ask_for_ever(client: Client) -> int:
    """A program that never ends by itself and takes no hint."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        client.ask(USER)
        time.sleep(0.01)
    return 0


COUNTED = {"prompt_tokens": 300, "completion_tokens": 10, "total_tokens": 310}


@pytest.mark.parametrize(
    ("limits", "outcome", "n_replies"),
    [
        ({"max_turns": 3}, "turn_limit", 3),
        # By hand: 38 + 2 bytes, 1000 that a provider may add, and the reply: 1050 at most, then 310 as counted.
        ({"max_total_tokens": 1060}, "token_limit", 3),
        # 11 400 µUSD at most, then 4000 each: 4000 + 4000 + 4000 > 11 500.
        ({"max_cost_usd": 0.0115}, "cost_limit", 2),
    ],
    ids=["turns", "tokens", "cost"],
)
def test_a_limit_ends_the_command(
    make: Callable[..., Bench], limits: dict[str, Any], outcome: str, n_replies: int
) -> None:
    answer = Answer(body=completion("hi", usage=COUNTED))
    bench = make(ask_for_ever, answer, limits=limits, settings={"max_tokens": 10})
    ending = bench.loop.run()
    assert (ending.outcome, bench.loop.totals().turns) == (outcome, n_replies)
    assert len(bench.server.requests) == n_replies  # type: ignore[attr-defined]
    assert not bench.toolbox.submitted


def test_requests_at_the_same_time_do_not_go_beyond_a_limit(make: Callable[..., Bench]) -> None:
    """Twelve at once: the first is taken for 1040 tokens and 20 more, 0.0124 USD; all are charged 0.00314 USD, as the
    second and later ones are taken for: nine of them fit.
    """
    meter, prices = TokenMeter(), PRICING | {"cache_write": "10"}

    def program(client: Client) -> int:
        asking = [threading.Thread(target=client.ask, args=(USER,)) for _ in range(12)]
        for each in asking:
            each.start()
        for each in asking:
            each.join()
        return 0

    with ScriptedServer([ScriptedTurn(content="hi")], usage=meter) as server:
        bench = make(
            program, server=server, limits={"max_cost_usd": 0.03}, settings={"max_tokens": 20, "pricing": prices}
        )
        assert bench.loop.run().outcome == "cost_limit"
    assert [each.prompt * 10 + each.output * 100 for each in meter.charged] == [3140] * 9


def test_a_prompt_that_fits_no_window_is_told_in_the_providers_words(make: Callable[..., Bench]) -> None:
    """More than 16 characters for each of its 1000 tokens: nothing is sent, and the program may shorten it."""
    told: list[tuple[int, dict[str, Any]]] = []

    def program(client: Client) -> int:
        told.append(client.ask(USER | {"content": "x" * 16_016}))
        return 0 if client.ask(USER)[0] == 200 else 1

    bench = make(program, settings={"context_tokens": 1000})
    assert bench.loop.run().outcome == "submitted"
    assert [status for status, _ in told] == [400]
    assert told[0][1]["error"]["code"] == "context_length_exceeded"
    assert len(bench.server.requests) == 1  # type: ignore[attr-defined]


def test_an_endpoint_that_ignores_max_tokens(make: Callable[..., Bench]) -> None:
    """Of 8192 tokens asked for 20 000 came: the first such reply is paid for, and no second is asked for."""
    bench = make(ask_for_ever, Answer(body=completion("hi", usage=LONG)), settings=ASKED)
    with pytest.raises(InfrastructureError, match="wrote 20000 tokens where at most 8192 were requested"):
        bench.loop.run()
    assert len(bench.server.requests) == 1  # type: ignore[attr-defined]
    # By hand: 3 × 10 + 20 000 × 100 millionths.
    assert bench.loop.totals().cost_usd == "2.00003"


LONG = {"prompt_tokens": 3, "completion_tokens": 20_000, "total_tokens": 20_003}
LATER = {
    "far more tokens than it asked for": (completion("hi", usage=LONG), "token_limit", "wrote 20000 tokens"),
    "a price that the entry lacks": (completion("hi") | {"service_tier": "flex"}, "cost_limit", "service_tiers.flex"),
}


@pytest.mark.parametrize(("answer", "outcome", "detail"), LATER.values(), ids=LATER.keys())
def test_what_the_entry_did_not_foresee_ends_a_later_request(
    make: Callable[..., Bench], answer: Any, outcome: str, detail: str
) -> None:
    """At the first request it is the entry's, and no result; a program that chooses to go there ends its run."""
    limits = {"max_cost_usd": 100, "max_total_tokens": None}
    bench = make(ask_for_ever, Answer(body=completion("hi")), Answer(body=answer), settings=ASKED, limits=limits)
    ending = bench.loop.run()
    assert ending.outcome == outcome and detail in ending.detail


def test_a_program_is_told_that_its_budget_is_used_up(make: Callable[..., Bench]) -> None:
    told: list[tuple[int, dict[str, Any]]] = []

    def program(client: Client) -> int:
        client.ask(USER)
        told.append(client.ask(USER))
        return 0

    make(program, limits={"max_turns": 1}).loop.run()
    status, body = told[0]
    assert (status, body["error"]["code"], body["error"]["type"]) == (429, "insufficient_quota", "insufficient_quota")


def test_the_time_limit_ends_a_silent_command(make: Callable[..., Bench]) -> None:
    bench = make(lambda client: 0 if client.ask(USER) and client.killed.wait(20) else 1, limits={"time_limit_s": 0.3})
    ending = bench.loop.run()
    assert ending.outcome == "time_limit"
    assert bench.toolbox.calls[0].status == "killed"


def test_waiting_for_the_provider_is_not_charged(make: Callable[..., Bench]) -> None:
    """Two answers of 0.4 s that say 503 take longer than the run has; the third one counts and the run goes on."""
    down = Answer(status=503, body={"error": "busy"}, delay_s=0.4)
    bench = make(
        lambda client: 0 if client.ask(USER)[0] == 200 else 1,
        down,
        down,
        Answer(body=completion("hi")),
        limits={"time_limit_s": 0.7},
    )
    assert bench.loop.run().outcome == "submitted"
    assert bench.loop.totals().api_retry_s >= 0.8


# --- faults -----------------------------------------------------------------------------------------------------


PROVOKE = {"role": "user", "content": "PROVOKE"}
TOLD: dict[str, int] = {
    **{f"status_{code}": code for code in (400, 401, 402, 403, 404, 422, 408, 409, 500, 502, 503, 504, 520, 529)},
    **dict.fromkeys(("timeout", "body_timeout", "cut_at_once", "cut_body", "stream_cut"), 502),
    **dict.fromkeys(("not_json", "empty_body", "not_object", "no_choices", "message_null"), 502),
    **dict.fromkeys(("error_in_200", "rate_limit_in_200", "redirect", "broken_gzip"), 502),
    "stream_error": 500,
    "rate_limit": 429,
    "key_echoed": 400,
}
"""Fault of the server → status that the program gets: the server's own, 502 where there was no error's."""


class Trap(ScriptedServer):
    """Fails at requests that say PROVOKE, or ``always``; all others are answered."""

    def __init__(self, kind: str, *, always: bool = False) -> None:
        super().__init__(answers=[Answer(body=completion("hi"))])
        self.kind, self.always = kind, always

    def _post(self, target: str, headers: Mapping[str, str], data: bytes) -> Answer:
        answer = super()._post(target, headers, data)
        if not self.always and PROVOKE["content"].encode() not in data:
            return answer
        if self.kind == "key_echoed":
            return Answer(400, {"error": {"message": "Invalid value: 'api_key_invalid'."}})
        return apply_fault(ServerFault(kind=self.kind, seconds=5), answer, Chat())


def provoke(make: Callable[..., Bench], kind: str, asked: list[Mapping[str, Any]], **server: Any) -> tuple[Any, Any]:
    """How a run ends whose program makes these requests, or the fault of ours; the statuses that it was told."""
    told: list[int] = []

    def program(client: Client) -> int:
        told.extend(client.ask(message)[0] for message in asked)
        return 0

    with Trap(kind, **server) as trap:
        bench = make(program, server=trap, settings={"request_timeout_s": 0.5})
        try:
            return bench.loop.run().outcome, told
        except InfrastructureError as error:
            return type(error), told


@pytest.mark.parametrize("kind", TOLD)
def test_a_fault_that_the_program_provokes_is_its_own(make: Callable[..., Bench], kind: str) -> None:
    """It is told, and goes on; the driver's own request was answered."""
    assert provoke(make, kind, [USER, PROVOKE, USER]) == ("submitted", [200, TOLD[kind], 200])


@pytest.mark.parametrize("kind", TOLD)
def test_a_fault_of_the_endpoint_is_nobodys_result(make: Callable[..., Bench], kind: str) -> None:
    """The driver's own request fails as well, before and after an answer."""
    outcome, told = provoke(make, kind, [USER], always=True)
    assert (outcome, told) == (EndpointError, [503])


def test_a_program_that_only_provokes_is_a_result(make: Callable[..., Bench]) -> None:
    assert provoke(make, "status_500", [PROVOKE] * 3) == ("submitted", [500] * 3)


def test_the_drivers_own_request_is_paid_and_rare(make: Callable[..., Bench]) -> None:
    """One plain request speaks for the faults of the next minute."""
    with Trap("status_400") as trap:
        bench = make(lambda client: [client.ask(PROVOKE) for _ in range(20)] and 0, server=trap)
        bench.loop.run()
    plain = [request for request in trap.requests if request["messages"][-1]["content"] != "PROVOKE"]
    # By hand: each of the 20 twice, and the plain one between the first two.
    assert (len(plain), len(trap.requests)) == (1, 41)
    # 3 tokens at 10 and 2 at 100 USD per million.
    assert (bench.loop.totals().cost_usd, bench.loop.totals().turns) == ("0.00023", 0)


def test_an_endpoint_that_takes_no_tools_is_misconfigured(make: Callable[..., Bench]) -> None:
    """Until a request was answered the driver's own offers a tool where the program's does."""

    class Toolless(ScriptedServer):
        def _post(self, target: str, headers: Mapping[str, str], data: bytes) -> Answer:
            answer = super()._post(target, headers, data)
            return Answer(400, {"error": {"message": "no tool parser"}}) if b'"tools"' in data else answer

    tool = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}
    with Toolless(answers=[Answer(body=completion("hi"))]) as server:
        bench = make(lambda client: client.ask(USER, tools=[tool])[0], server=server)
        with pytest.raises(EndpointError, match="no tool parser"):
            bench.loop.run()


SILENT: dict[str, Callable[[Client], int]] = {
    "nothing asked": lambda client: 0,
    "wrong paths": lambda client: ask(client.folder, client.token, {}, "/v1/completions?key=secret")[0],
    "wrong token": lambda client: ask(client.folder, "wrong", {}, "/v1/messages")[0],
    "another protocol": lambda client: ask(client.folder, client.token, {"messages": [USER]}, "/v1/messages")[0],
    "nonsense": lambda client: client.ask()[0],
    "refused tools": lambda client: client.ask(USER, tools=[{"type": "web_search"}])[0],
    "killed itself": lambda client: 137,
}


@pytest.mark.parametrize("name", SILENT)
def test_a_silent_program_is_a_result_once_it_was_checked(make: Callable[..., Bench], name: str) -> None:
    bench = make(SILENT[name], checked=True)
    ending = bench.loop.run()
    assert ending.outcome == "stopped" and "No request of the program reached its model" in ending.detail
    assert bench.server.requests == []  # type: ignore[attr-defined]


def test_a_silent_program_without_a_check_is_no_result(make: Callable[..., Bench]) -> None:
    """Paths, statuses, counts and the last reason stand in the message."""

    def program(client: Client) -> int:
        for _ in range(2):
            ask(client.folder, client.token, {}, "/v1/completions?key=secret")
        client.ask(USER, tools=[{"type": "web_search"}])
        return 41

    with pytest.raises(InfrastructureError) as raised:
        make(program).loop.run()
    first, second, *_, last = str(raised.value).split("\n")
    asked = "POST /v1/completions 404 (2 times), POST /v1/chat/completions 400 (1 times)"
    assert first == f"No request of the program reached its model. Its requests: {asked}."
    assert second == "It ended with error, exit code 41. Its last output: out"
    assert last.startswith("Run `automedbench agents check`")


def test_both_outputs_are_quoted_from_begin_to_end() -> None:
    """A cut tail of stderr alone hid a reason on stdout, and the kind of a long error."""
    said = quote_end("start\n\nError: no model\n1\n2\n\n\n\n", "RateLimit: " + 300 * "x" + " id 7\n")
    assert said == f"Error: no model 1 2 | RateLimit: {109 * 'x'} … {55 * 'x'} id 7"
    assert quote_end("\n", "") == "no output"


def test_a_tool_of_the_provider_is_one_finding(make: Callable[..., Bench]) -> None:
    def program(client: Client) -> int:
        assert [client.ask(USER, tools=[{"type": "web_search"}])[0] for _ in range(3)] == [400] * 3
        assert client.ask(USER)[0] == 200
        return 0

    bench = make(program)
    assert bench.loop.run().outcome == "submitted"
    (event,) = bench.events("finding")
    found = event["finding"]
    assert (found["rule"], found["severity"], found["blocked"]) == ("net.provider_tool", "notice", True)


def test_the_transcript_has_an_end(make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent reaches the model; long messages lose their middle, the last ones are not kept."""
    monkeypatch.setattr(command_traffic, "MAX_MESSAGE", 20_000)

    def program(client: Client) -> int:
        for number in range(4):
            assert client.ask({"role": "user", "content": str(number) * 30_000})[0] == 200
        return 0

    bench = make(program)
    bench.loop._traffic._room = 25_000
    assert bench.loop.run().outcome == "submitted"
    sizes = [len(text) for _, role, text in bench.said() if role == "user"]
    assert len(sizes) == 2 and all(10_000 < size < 11_000 for size in sizes)
    assert len(bench.events("transcript_full")) == 1


def test_a_conversation_that_is_too_long_is_the_programs_to_shorten(make: Callable[..., Bench]) -> None:
    told: list[str] = []

    def program(client: Client) -> int:
        told.append(client.ask(USER)[1]["error"]["code"])
        return 0 if client.ask(USER)[0] == 200 else 1

    long = Answer(status=400, body={"error": {"message": "maximum context length is 8192 tokens"}})
    assert make(program, long, Answer(body=completion("hi"))).loop.run().outcome == "submitted"
    assert told == ["context_length_exceeded"]


def test_a_refusal_of_the_provider_ends_the_run(make: Callable[..., Bench]) -> None:
    refusal = Answer(status=400, body={"error": {"message": "content policy violation"}})
    assert make(ask_for_ever, refusal).loop.run().outcome == "refused"


def test_a_lost_lease_ends_the_command(make: Callable[..., Bench]) -> None:
    def lost() -> None:
        raise InfrastructureError("the lease was taken")

    bench = make(ask_for_ever, before=lost)
    with pytest.raises(InfrastructureError, match="lease"):
        bench.loop.run()
    assert bench.server.requests == []  # type: ignore[attr-defined]


def test_findings_of_the_sandbox_count(make: Callable[..., Bench]) -> None:
    bench = make(lambda client: 0 if client.ask(USER) else 1)
    bench.sandbox.findings = [
        Finding(
            id="d",
            rule="decoy.open",
            source="tripwire",
            category="private_access",
            confidence="high",
            severity="disqualifying",
            call=1,
            evidence="/data/private/x",
        )
    ]
    assert bench.loop.run().outcome == "disqualified"


# --- what the traffic shows -------------------------------------------------------------------------------------


def test_a_conversation_that_is_sent_again_is_kept_once(make: Callable[..., Bench]) -> None:
    """Also where a program shortens its own history, repeats a message, or runs several conversations."""

    def program(client: Client) -> int:
        same = {"role": "user", "content": "go on"}
        client.ask(USER)
        client.ask(USER, {"role": "assistant", "content": "one"}, same)
        client.ask(USER, {"role": "assistant", "content": "one"}, same, {"role": "assistant", "content": "two"}, same)
        client.ask({"role": "system", "content": "summary"}, same)
        return 0

    bench = make(program, *[Answer(body=completion(text)) for text in ("one", "two", "three", "four")])
    bench.loop.run()
    assert bench.said() == [
        (0, "user", "Begin."),
        (1, "assistant", "one"),
        (1, "user", "go on"),
        (2, "assistant", "two"),
        (2, "user", "go on"),
        (3, "assistant", "three"),
        (3, "system", "summary"),
        (4, "assistant", "four"),
    ]


def test_code_in_a_fence_is_a_call_too(make: Callable[..., Bench]) -> None:
    """Programs without tools ask for one fenced block and tell its output as a user message."""
    reply = "I list.\n```bash\nls -l\n```\n"

    def program(client: Client) -> int:
        client.ask(USER)
        client.ask(USER, {"role": "assistant", "content": reply}, {"role": "user", "content": "exit code: 2\nno file"})
        return 0

    bench = make(program, Answer(body=completion(reply)), Answer(body=completion("done")))
    bench.loop.run()
    call = bench.toolbox.calls[1]
    assert (call.language, call.code, call.exit_code, call.status) == ("bash", "ls -l\n", 2, "error")


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("bash", {"command": "ls"}, CodeRequest("bash", "ls")),
        ("execute_code", {"language": "python", "code": "print()"}, CodeRequest("python", "print()")),
        ("execute_code", {"language": "bash", "code": "ls"}, CodeRequest("bash", "ls")),
        ("run_python", {"code": "1"}, CodeRequest("python", "1")),
        ("shell", {"command": ["bash", "-lc", "ls -l"]}, CodeRequest("bash", "ls -l")),
        ("shell", {"command": ["ls", "-l"]}, CodeRequest("bash", "ls -l")),
        ("terminal", {"cmd": "make"}, CodeRequest("bash", "make")),
        ("ipython_cell", {"source": "x"}, CodeRequest("python", "x")),
        ("read_file", {"path": "x y"}, CodeRequest("bash", "cat 'x y'\n")),
        ("write_file", {"path": "x", "content": "y"}, CodeRequest("bash", "cat > x <<'EOF'\ny\nEOF\n")),
        ("list_dir", {"path": "x"}, None),
        ("bash", {"command": ""}, CodeRequest("bash", "")),
        ("bash", {"code": ""}, None),
        ("bash", {"command": {"a": 1}}, None),
        ("search", {"input": "how to segment"}, None),
    ],
)
def test_code_is_known_by_tool_and_argument(name: str, arguments: dict[str, Any], expected: CodeRequest | None) -> None:
    asked = read_tool_call(ToolCall("i", name, json.dumps(arguments)))
    assert (asked and asked.program) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```python\nx = 1\n```", CodeRequest("python", "x = 1\n")),
        ("a\n```sh\nls\n```\nb", CodeRequest("bash", "ls\n")),
        ("```bash\nls\n```\n```bash\nrm\n```", None),
        ("```json\n{}\n```", None),
        ("```\nls\n```", None),
        ("no code", None),
    ],
)
def test_one_fenced_block(text: str, expected: CodeRequest | None) -> None:
    assert [asked.program for asked in read_code_blocks(text)] == ([expected] if expected else [])


def test_masked_like_all_else(make: Callable[..., Bench]) -> None:
    """A key in a reply or a result stands in no record."""

    def program(client: Client) -> int:
        message = client.ask(USER)[1]["choices"][0]["message"]
        client.ask(USER, message, {"role": "tool", "tool_call_id": "c1", "content": f"found {KEY}"})
        return 0

    bench = make(program, called(f"echo {KEY}"), Answer(body=completion("ok")))
    bench.loop.run()
    kept = [call.model_dump_json() for call in bench.toolbox.calls] + [str(bench.said())]
    assert not [text for text in kept if KEY in text]
    assert all(KEY not in path.read_text() for path in bench.log.rglob("*") if path.is_file())
