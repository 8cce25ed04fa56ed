"""Loop of a command-line agent: its command runs once in the container, its model answers over the bridge.

Rules: docs/specification.md, 8.4 (limits) and 8.5 (faults of the endpoint). The command is one code call as long
as the run. Every limit ends it from outside; provider errors are waited out on this side and not charged.

The program runs its tools itself; we see only what it tells its model. So a call of this kind is the program's own
report, while changed files are seen from outside. Both go where judge and reader look for them.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from automedbench.agent.budget.ledger import CompletingModel
from automedbench.agent.budget.limits import Ending
from automedbench.agent.command.bridge import Bridge, ProgramRequest, Refused, upstream_body
from automedbench.agent.log import Dialogue
from automedbench.agent.models.chat import (
    ChatMessage,
    ContextOverflow,
    EndpointError,
    ProviderRefusal,
    Reply,
    ReplyTimeout,
    RequestFailed,
    ToolCall,
    distinct_calls,
    estimate_tokens,
)
from automedbench.agent.toolbox import LISTED_CHANGES, Toolbox, recorded_call
from automedbench.agent.tools import SUMMARY_LENGTH, CodeRequest, repair_arguments
from automedbench.agent.workspace import NAMED_FILES, CallEvidence, Snapshot, stage_of, take_snapshot
from automedbench.base.endpoint.completion import clean_text
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import sha256_bytes
from automedbench.base.records import CodeCall, Finding, Outcome, Stage, Totals
from automedbench.campaign.agents import Agent
from automedbench.sandbox.container.process import CodeResult, Stop

LOOK_S = 5.0
"""Seconds between two looks at the workspace while the command runs."""

BUSY_S = 3.0
"""How long the container lives on without a word from here while a reply is waited for at the end of the time."""

COMMAND = 1
"""Number of the command's own call; calls that the program reports follow."""


@dataclass
class Desk:
    """Answers the program's requests within the run's budget; the bridge calls it from its threads."""

    agent: Agent
    model: CompletingModel
    toolbox: Toolbox
    traffic: Traffic
    before_request: Callable[[], None]
    ending: Ending | None = None
    failure: BaseException | None = None
    busy: bool = False
    told: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: ProgramRequest) -> Reply:
        """The model's reply to one request; raises Refused when there is none, and notes why the run must end."""
        with self.lock:
            self._admit()
            self.busy = True
            try:
                return self._ask(request)
            except Refused:
                raise
            except BaseException as failure:
                # It must end the run in the main thread; here it would only end a connection.
                self.failure = failure
                raise Refused(503, "server_error", None, "the model does not answer; the run ends here") from failure
            finally:
                self.busy = False

    def refused(self, refusal: Refused) -> None:
        """Note a request that would have made the provider go out; one finding for each way."""
        if refusal.rule is None or refusal.rule in self.told:
            return
        self.told.add(refusal.rule)
        finding = Finding.of(
            refusal.rule, "egress", "network", "notice", "medium", f"refused: {refusal}", place="bridge", blocked=True
        )
        with self.lock:
            turn = self.toolbox.budget.turns
            self.toolbox.log.event("finding", turn, finding=finding.model_dump(mode="json"))

    def _admit(self) -> None:
        """Refuse what the run has no budget for."""
        if self.ending is None and self.failure is None:
            self.ending = self.toolbox.budget.exceeded()
        if self.ending is not None or self.failure is not None:
            why = self.ending.detail if self.ending else "the model does not answer"
            raise Refused(429, "insufficient_quota", "insufficient_quota", f"the run is over: {why}")

    def _ask(self, request: ProgramRequest) -> Reply:
        budget, log, messages = self.toolbox.budget, self.toolbox.log, request.chat
        self.traffic.received(messages)
        self.before_request()
        log.event(
            "api_request", budget.turns + 1, n_messages=len(messages), est_tokens=estimate_tokens(messages), bridge=True
        )
        try:
            reply = self.model.complete(upstream_body(self.agent, request), messages, budget.reply_timeout_s())
        except RequestFailed as failure:
            budget.spend(failure.spent, retry_s=failure.retry_s)
            self._refuse(failure)
            raise
        budget.spend(reply.spent, reply.api_s, reply.retry_s)
        budget.last_prompt = reply.usage.prompt
        budget.turns += 1
        told = Reply(
            content=reply.content,
            calls=distinct_calls(reply.calls, budget.turns),
            finish_reason=reply.finish_reason,
            usage=reply.usage,
            opaque=reply.opaque,
        )
        log.reply(budget.turns, reply, n_calls=len(reply.calls))
        self.traffic.replied(told, budget.turns)
        return told

    def _refuse(self, failure: RequestFailed) -> None:
        """Raise Refused where the run goes on or ends as the loop's would; nonsense of the program's is its own."""
        if isinstance(failure, ContextOverflow):
            raise Refused(400, "invalid_request_error", "context_length_exceeded", str(failure)) from failure
        if isinstance(failure, (ProviderRefusal, ReplyTimeout)):
            outcome: Outcome = "refused" if isinstance(failure, ProviderRefusal) else "time_limit"
            self.ending = Ending(outcome, f"{failure}"[:300])
            raise Refused(400, "invalid_request_error", "content_filter", str(failure)) from failure
        if isinstance(failure, EndpointError) and failure.kind == "bad_request":
            raise Refused(400, "invalid_request_error", None, "the endpoint refuses this request") from failure


@dataclass
class CommandLoop:
    """One attempt of a command-line agent; same surface as ``AgentLoop``."""

    agent: Agent
    model: CompletingModel
    bridge: Bridge
    dialogue: Dialogue
    toolbox: Toolbox
    before_request: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._traffic = Traffic(self.dialogue, self.toolbox, snapshot=self.toolbox.snapshot)
        self._desk = Desk(self.agent, self.model, self.toolbox, self._traffic, self.before_request)
        self._look_at = 0.0

    def run(self) -> Ending:
        """Run the command to its end; raises InfrastructureError when the machine or the endpoint fails."""
        toolbox = self.toolbox
        kills = toolbox.oom_kills()
        toolbox.sandbox.ends_in(toolbox.budget.remaining_s)
        self._traffic.look()
        with self.bridge.serving(self._desk.answer, self._desk.refused):
            code, result = self._run_command()
        with self._desk.lock:
            # A request that was on its way when the command ended is answered and counted.
            self._book(code, result)
        if self._desk.failure is not None:
            raise self._desk.failure
        if result.status == "harness_error":
            raise InfrastructureError(f"The sandbox failed: {result.stderr[-300:] or 'no message'}")
        toolbox.add_gpu_use(toolbox.sandbox.drain_gpu_use())
        toolbox.out_of_memory = result.status != "ok" and toolbox.oom_kills() > kills
        ending = toolbox.ending or self._desk.ending or self._ending_of(result)
        if ending.outcome == "submitted":
            toolbox.submitted, toolbox.summary = True, toolbox.log.mask(self._traffic.last_words[:SUMMARY_LENGTH])
        toolbox.ending = ending
        toolbox.end_of_sandbox()
        return toolbox.ending

    def totals(self) -> Totals:
        """What the run has used so far; valid at any time."""
        return self.toolbox.totals()

    # --- the command ------------------------------------------------------------------------------------------

    def _run_command(self) -> tuple[str, CodeResult]:
        sandbox, log = self.toolbox.sandbox, self.toolbox.log
        code = f"exec {self.bridge.command_line(sandbox.workspace_dir, sandbox.data_dir)}\n"
        log.event("exec_start", 0, call=COMMAND, language="bash", lines=1, command=self.agent.command)
        result = sandbox.run_code(
            "bash", code, call=COMMAND, turn=0, log=log.exec_folder, timeout_s=float("inf"), watch=self._watch
        )
        return code, result

    def _watch(self) -> Stop | None:
        """Why the command must end; asked about once a second. Time that a provider loses is not charged."""
        desk, toolbox = self._desk, self.toolbox
        self._prolong()
        if desk.failure is not None:
            return Stop("the model does not answer")
        if desk.lock.acquire(blocking=False):
            try:
                desk.ending = desk.ending or toolbox.budget.out_of_time()
                self._look()
            finally:
                desk.lock.release()
        ending = toolbox.ending or desk.ending
        return None if ending is None or desk.busy else Stop(f"the run is over: {ending.detail}")

    def _prolong(self) -> None:
        """Tell the sandbox the time that is left; a reply that is waited for may turn out not to be charged."""
        remaining = self.toolbox.budget.remaining_s
        if remaining is not None:
            self.toolbox.sandbox.ends_in(max(remaining, BUSY_S) if self._desk.busy else remaining)

    def _look(self) -> None:
        """Note changed files and findings; a look takes at most a twentieth of the time."""
        begin = time.monotonic()
        if begin < self._look_at:
            return
        toolbox = self.toolbox
        changed = self._traffic.look()
        if changed:
            toolbox.log.event("files", toolbox.budget.turns, changed=changed[:200], count=len(changed))
        end = time.monotonic()
        self._look_at = end + max(LOOK_S, 20 * (end - begin))

    def _book(self, code: str, result: CodeResult) -> None:
        """The command as the first call, and what the program reported behind it."""
        toolbox, log = self.toolbox, self.toolbox.log
        self._traffic.look()
        budget = toolbox.budget
        budget.exec_s = max(0.0, result.elapsed_s - budget.api_s - budget.retry_s)
        whole = self._traffic.whole_command(recorded_call(log, 0, COMMAND, "bash", code, result, "S1"))
        toolbox.calls[:] = [whole, *self._traffic.calls]
        toolbox.n_exec = len(toolbox.calls)
        toolbox.n_exec_failed = sum(call.status != "ok" for call in toolbox.calls)
        log.event(
            "exec_end",
            budget.turns,
            call=COMMAND,
            exit_code=result.exit_code,
            status=result.status,
            elapsed_s=result.elapsed_s,
            out_chars=len(result.stdout),
            err_chars=len(result.stderr),
            stage=whole.stage,
            new_files=whole.new_files,
        )

    def _ending_of(self, result: CodeResult) -> Ending:
        """How a command has ended that this process did not end; the supervisor may have, in time."""
        if result.status != "ok" and (late := self.toolbox.budget.out_of_time()) is not None:
            return late
        if (over := self.toolbox.budget.out_of_disk(self._traffic.workspace_bytes)) is not None:
            return over
        if result.status == "ok":
            contract = self.toolbox.contract
            told = contract.told(len(contract.missing_in(self.toolbox.workspace)))
            return Ending("submitted", f"the command ended with exit code 0; {told}")
        if self.toolbox.out_of_memory:
            return Ending("out_of_memory", "the command ran out of memory")
        said = " ".join(result.stderr.split())[-160:]
        how = f"exit code {result.exit_code}" if result.status == "error" else result.status
        return Ending("stopped", f"the command ended with {how}: {said or 'it said nothing'}")


MAX_MESSAGE, MAX_TRANSCRIPT = 1_000_000, 16_000_000
"""Characters of one message and of all messages of a run that are kept; the endpoint gets all of them."""

KEPT_HEAD, KEPT_TAIL = 2048, 8192
"""Characters of a reported output that are kept, as of any call's (docs/specification.md, 8.4)."""

_CODE_KEYS = ("code", "command", "cmd", "script", "source", "input")
_PYTHON = re.compile(r"py|jupyter|notebook|interpreter", re.IGNORECASE)
_SHELL = re.compile(r"bash|shell|\bsh\b|term|command|cmd|exec|run", re.IGNORECASE)
_FENCE = re.compile(r"```(bash|sh|shell|python|py)?[ \t]*")
_EXIT = re.compile(r"(?:exit[ _]?(?:code|status)|return[ _]?code)\W{1,4}(-?\d{1,3})\b", re.IGNORECASE)
_EXIT_KEYS = ("exit_code", "exitCode", "returncode", "return_code", "exit_status", "status")


@dataclass(frozen=True)
class _Pending:
    """A call whose result the program has not told yet."""

    turn: int
    program: CodeRequest
    since: float


@dataclass
class Traffic:
    """Conversation, reported calls and changed files of one command."""

    dialogue: Dialogue
    toolbox: Toolbox
    clock: Callable[[], float] = time.monotonic
    calls: list[CodeCall] = field(default_factory=list)
    last_words: str = ""
    _known: Counter[str] = field(default_factory=Counter)
    _pending: dict[str, _Pending] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)
    _cache_growth: int = 0
    _stage: Stage = "S1"
    snapshot: Snapshot = field(default_factory=Snapshot)
    _room: int = MAX_TRANSCRIPT

    def received(self, messages: Sequence[ChatMessage]) -> None:
        """Keep what is new in a request: a program sends its whole conversation each time, and may shorten it."""
        seen: Counter[str] = Counter()
        new = []
        for message in messages:
            digest = _digest(message)
            seen[digest] += 1
            if seen[digest] > self._known[digest]:
                new.append(message)
        self._known |= seen
        if new:
            self.look()
        results = {id(message): message for message in new if self._is_result(message)}
        last = next(reversed(results), None)
        for message in new:
            if id(message) in results:
                self._finish(message, last=id(message) == last)
            self._keep(message)

    def _keep(self, message: ChatMessage) -> None:
        """Put a message into the transcript while that has room; a very long one loses its middle."""
        if self._room < 0:
            return
        kept = bounded(message)
        self._room -= len(kept.content) + sum(len(call.name) + len(call.arguments) for call in kept.calls)
        if self._room >= 0:
            self.dialogue.add(kept)
        else:
            self.toolbox.log.event("transcript_full", self.toolbox.budget.turns, characters=MAX_TRANSCRIPT)

    def replied(self, reply: Reply, turn: int) -> None:
        """Keep a reply, and the code that it asks for until the program tells what came of it."""
        self.dialogue.turn = turn
        message = ChatMessage("assistant", clean_text(reply.content), reply.calls, opaque=reply.opaque)
        self._known[_digest(message)] += 1
        self.dialogue.add(bounded(message))
        self.last_words = message.content or self.last_words
        for call in reply.calls:
            program = program_of(call)
            if program is not None:
                self._pending[call.id] = _Pending(turn, program, self.clock())
        self._pending.pop("", None)
        fenced = None if reply.calls else fenced_program(reply.content)
        if fenced is not None:
            self._pending[""] = _Pending(turn, fenced, self.clock())

    def look(self) -> list[str]:
        """Files that changed since the last look; they belong to the next call that is reported."""
        before, self.snapshot = self.snapshot, take_snapshot(self.toolbox.workspace)
        changed = list(self.snapshot.since(before).changed)
        if len(self._changed) < 2 * NAMED_FILES:
            self._changed.update(changed)
        self._cache_growth += max(0, self.snapshot.cache_bytes - before.cache_bytes)
        return changed

    def whole_command(self, call: CodeCall) -> CodeCall:
        """The command itself as a call: the files that no reported call accounts for are its own."""
        changed, stage = self._take("" if self.calls else call.code, "S1")
        return call.model_copy(update={"stage": stage, "new_files": changed})

    @property
    def workspace_bytes(self) -> int:
        """Size of the workspace at the last look."""
        return self.snapshot.total_bytes

    # --- reported calls ---------------------------------------------------------------------------------------

    def _is_result(self, message: ChatMessage) -> bool:
        if message.role == "tool":
            return message.call_id in self._pending
        return message.role == "user" and "" in self._pending

    def _finish(self, message: ChatMessage, *, last: bool) -> None:
        """A reported call; files that changed meanwhile belong to the last one of several."""
        pending = self._pending.pop(message.call_id or "" if message.role == "tool" else "", None)
        if pending is None:
            return
        number, log = len(self.calls) + 2, self.toolbox.log
        changed: list[str] = []
        if last:
            changed, self._stage = self._take(pending.program.code, self._stage)
        output, exit_code = outcome_of(message.content)
        elapsed = round(self.clock() - pending.since, 3)
        self.calls.append(
            CodeCall(
                turn=pending.turn,
                call=number,
                language=pending.program.language,
                code=log.mask(pending.program.code),
                status="ok" if exit_code in (0, None) else "error",
                exit_code=exit_code,
                elapsed_s=elapsed,
                stdout=log.mask(shortened(output)),
                stderr="",
                stage=self._stage,
                new_files=changed,
            )
        )
        log.event(
            "reported_call",
            pending.turn,
            call=number,
            language=pending.program.language,
            sha256=sha256_bytes(clean_text(pending.program.code).encode()),
            exit_code=exit_code,
            elapsed_s=elapsed,
            stage=self._stage,
            new_files=changed,
        )

    def _take(self, code: str, previous: Stage) -> tuple[list[str], Stage]:
        """The changes that no call accounts for yet, and the stage that they and the code speak for."""
        contract = self.toolbox.contract
        changed, growth = sorted(self._changed), self._cache_growth
        self._changed, self._cache_growth = set(), 0
        evidence = CallEvidence(
            code=code,
            changed_files=changed,
            cases_written=contract.cases_in(changed),
            n_cases=contract.n_cases,
            cache_growth=growth,
            all_outputs_exist=not contract.missing_in(self.toolbox.workspace),
        )
        masked = [self.toolbox.log.mask(path) for path in changed[:LISTED_CHANGES]]
        return masked, stage_of(evidence, previous)


def program_of(call: ToolCall) -> CodeRequest | None:
    """The code of a tool call that runs some; None for other tools. Told by the tool's name and its arguments."""
    arguments = repair_arguments(call.arguments or "{}")
    if arguments is None:
        return None
    code = next((text for key in _CODE_KEYS if (text := _as_code(arguments.get(key)))), None)
    if code is None:
        return None
    language = str(arguments.get("language") or arguments.get("lang") or call.name)[:80]
    if _PYTHON.search(language):
        return CodeRequest("python", code)
    return CodeRequest("bash", code) if _SHELL.search(language) or _SHELL.search(call.name[:80]) else None


def fenced_program(text: str) -> CodeRequest | None:
    """The code of a reply that holds exactly one fenced block of Python or shell; None else."""
    blocks: list[CodeRequest] = []
    name, begin, at = "", 0, 0
    for line in text.split("\n"):
        fence = _FENCE.fullmatch(line)
        if fence and name and not fence[1]:
            blocks.append(CodeRequest("python" if name.startswith("py") else "bash", text[begin:at]))
            name = ""
        elif fence and fence[1] and not name:
            name, begin = fence[1], at + len(line) + 1
        at += len(line) + 1
    return blocks[0] if len(blocks) == 1 else None


def _as_code(value: Any) -> str | None:
    """Code as text; some programs take a command as a list of words."""
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return value[-1] if value[0] in ("bash", "sh") and len(value) > 2 else " ".join(value)
    return value if isinstance(value, str) and value.strip() else None


def outcome_of(content: str) -> tuple[str, int | None]:
    """Output and exit code as the program reports them; the code is None where nothing of the kind is said."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        codes = [value[key] for key in _EXIT_KEYS if isinstance(value.get(key), int)]
        parts = [str(value[key]) for key in ("output", "stdout", "stderr", "error") if value.get(key)]
        return "\n".join(parts) or content, int(codes[0]) if codes else None
    found = _EXIT.search(content[:400]) or _EXIT.search(content[-400:])
    return content, int(found[1]) if found else None


def shortened(text: str) -> str:
    """Head and tail of an output, as of any call's."""
    if len(text) <= KEPT_HEAD + KEPT_TAIL:
        return text
    left_out = len(text) - KEPT_HEAD - KEPT_TAIL
    return f"{text[:KEPT_HEAD]}\n[… {left_out} characters left out …]\n{text[-KEPT_TAIL:]}"


def bounded(message: ChatMessage) -> ChatMessage:
    """The message as a transcript keeps it: texts of more than a million characters lose their middle."""
    sizes = [len(message.content), *(len(call.arguments) for call in message.calls)]
    if max(sizes) <= MAX_MESSAGE:
        return message
    calls = tuple(replace(call, arguments=_short(call.arguments)) for call in message.calls)
    return replace(message, content=_short(message.content), calls=calls)


def _short(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else shortened(text)


def _digest(message: ChatMessage) -> str:
    """Identity of a message as it is sent back and forth: ids and blanks may change."""
    calls = [[call.name, _in_order(call.arguments)] for call in message.calls]
    return sha256_bytes(json.dumps([message.role, message.content.strip(), calls]).encode())


def _in_order(arguments: str) -> str:
    """Arguments with their keys in order; as they are where they are no object, or nested too deeply."""
    try:
        return json.dumps(repair_arguments(arguments or "{}") or arguments, sort_keys=True)
    except RecursionError:
        return arguments
