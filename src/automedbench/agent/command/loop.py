"""Loop of a command-line agent: its command runs once in the container, its model answers over the bridge.

Rules: docs/specification.md, 8.4 (limits) and 8.5 (faults of the endpoint). The command is one code call as long
as the run. Every limit ends it from outside; provider errors are waited out on this side and not charged.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from automedbench.agent.budget.limits import Ending
from automedbench.agent.command.bridge import Bridge
from automedbench.agent.command.relay import ProgramRequest, Refused, upstream_body
from automedbench.agent.command.traffic import Traffic
from automedbench.agent.dialogue import Dialogue
from automedbench.agent.models.chat import (
    ChatMessage,
    ContextOverflow,
    EndpointError,
    ProviderRefusal,
    Reply,
    ReplyTimeout,
    RequestFailed,
    distinct_calls,
    estimate_tokens,
)
from automedbench.agent.toolbox import Toolbox
from automedbench.agent.tools import SUMMARY_LENGTH
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import CodeCall, Outcome, Totals
from automedbench.campaign.agents import Agent
from automedbench.sandbox import CodeResult

LOOK_S = 5.0
"""Seconds between two looks at the workspace while the command runs."""

COMMAND = 1
"""Number of the command's own call; calls that the program reports follow."""


class Endpoint(Protocol):
    """A model that takes a request's body as it is."""

    def complete(self, body: dict[str, Any], messages: Sequence[ChatMessage], timeout_s: float) -> Reply:
        """As ``ChatModel.reply``; ``messages`` only serve to estimate tokens."""
        ...


@dataclass
class Desk:
    """Answers the program's requests within the run's budget; the bridge calls it from its threads."""

    agent: Agent
    model: Endpoint
    toolbox: Toolbox
    traffic: Traffic
    before_request: Callable[[], None]
    ending: Ending | None = None
    failure: BaseException | None = None
    busy: bool = False
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
    model: Endpoint
    bridge: Bridge
    dialogue: Dialogue
    toolbox: Toolbox
    before_request: Callable[[], None] = lambda: None
    resumable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._traffic = Traffic(self.dialogue, self.toolbox)
        self._desk = Desk(self.agent, self.model, self.toolbox, self._traffic, self.before_request)
        self._look_at = 0.0

    def run(self) -> Ending:
        """Run the command to its end; raises InfrastructureError when the machine or the endpoint fails."""
        toolbox = self.toolbox
        kills = toolbox.oom_kills()
        self._traffic.look()
        with self.bridge.serving(self._desk.answer):
            code, result = self._run_command()
        with self._desk.lock:
            # A request that was on its way when the command ended is answered and counted.
            self._book(code, result)
        if self._desk.failure is not None:
            raise self._desk.failure
        if result.status == "harness_error":
            raise InfrastructureError(f"The sandbox failed: {result.stderr[-300:] or 'no message'}")
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
            "bash", code, call=COMMAND, turn=0, log=log.exec_folder, timeout_s=float("inf"), stop=self._stop
        )
        return code, result

    def _stop(self) -> str | None:
        """Why the command must end; asked about once a second. Time that a provider loses is not charged."""
        desk, toolbox = self._desk, self.toolbox
        if desk.failure is not None:
            return "the model does not answer"
        if desk.lock.acquire(blocking=False):
            try:
                desk.ending = desk.ending or toolbox.budget.out_of_time()
                self._look()
            finally:
                desk.lock.release()
        ending = toolbox.ending or desk.ending
        return None if ending is None or desk.busy else f"the run is over: {ending.detail}"

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
        whole = self._traffic.whole_command(
            CodeCall(
                turn=0,
                call=COMMAND,
                language="bash",
                code=log.mask(code),
                status=result.status,
                exit_code=result.exit_code,
                elapsed_s=result.elapsed_s,
                stdout=log.mask(result.stdout),
                stderr=log.mask(result.stderr),
                stage="S1",
            )
        )
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
        """How a command that nothing of ours ended has ended."""
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
