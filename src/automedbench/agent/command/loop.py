"""Loop of a command-line agent: its command runs once in the container, its model answers over the bridge.

Rules: docs/specification.md, 8.4 (limits) and 8.5 (faults of the endpoint). The command is one code call as long
as the run. Every limit ends it from outside; provider errors are waited out on this side and not charged.

The program runs its tools itself; only its requests to the model are visible here. So a call of this kind is the
program's own report, while changed files are seen from outside. Both go where judge and reader look for them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from automedbench.agent.budget.ledger import MeteredModel
from automedbench.agent.budget.limits import Ending
from automedbench.agent.command.bridge import Bridge
from automedbench.agent.command.traffic import Traffic
from automedbench.agent.durable.attempts import DEATHS
from automedbench.agent.log import Dialogue
from automedbench.agent.loop import make_failure_ending
from automedbench.agent.models.model import (
    ContextOverflow,
    EndpointError,
    LimitReached,
    Reply,
    RequestFailed,
    RequestRejected,
    distinct_calls,
    estimate_tokens,
)
from automedbench.agent.protocols import PROTOCOLS
from automedbench.agent.protocols.common import ProgramRequest, RequestRefused
from automedbench.agent.toolbox import Toolbox, find_ending, make_death_ending, record_call
from automedbench.agent.tools import SUMMARY_LENGTH, CodeRequest
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Finding, Outcome, Totals
from automedbench.campaign.agents import Agent
from automedbench.campaign.recipes import protocol_mismatch
from automedbench.sandbox.container.process import CodeResult, Stop

LOOK_S = 5.0
"""Seconds between two looks at the workspace while the command runs."""

BUSY_S = 3.0
"""Seconds that the container lives on without a new deadline while a reply is pending at the end of the time."""

CHECK = (
    "Check its settings: base URL, protocol, key and model come from variables (docs/command-line-agents.md).\n"
    "Run `automedbench agents check`: a program that asks its model there is not taken for misconfigured any more."
)
COMMAND = 1
"""Number of the command's own call; calls that the program reports follow."""


@dataclass
class RequestHandler:
    """Answers the program's requests within the run's budget; the bridge calls it from its threads."""

    agent: Agent
    model: MeteredModel
    toolbox: Toolbox
    traffic: Traffic
    before_request: Callable[[], None]
    ending: Ending | None = None
    failure: BaseException | None = None
    served: int = 0
    """Requests that the endpoint answered, be it with an error that is the request's own."""
    refusal: str = ""
    """Why the last request got none."""
    is_cut: bool = False
    """The last reply ended at the ``max_tokens`` of the agent's entry, where the program allowed it as much or more."""
    busy: bool = False
    noted: set[str] = field(default_factory=set)
    """Rules with a finding so far."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: ProgramRequest) -> Reply:
        """The model's reply to one request; raises RequestRefused without one, and notes why the run must end."""
        with self.lock:
            self._admit()
            self.busy = True
            try:
                return self._ask(request)
            except RequestRefused as refusal:
                self.refusal = str(refusal)
                raise
            except BaseException as failure:
                # It must end the run in the main thread; here it would only end a connection.
                self.failure = failure
                raise RequestRefused(
                    503, "server_error", None, "the model does not answer; the run ends here"
                ) from failure
            finally:
                self.busy = False

    def note_refusal(self, refusal: RequestRefused) -> None:
        """Note a request that would have made the provider go out; one finding for each way."""
        if refusal.rule is None or refusal.rule in self.noted:
            return
        self.noted.add(refusal.rule)
        finding = Finding.of(
            refusal.rule, "egress", "network", "notice", "medium", f"refused: {refusal}", place="bridge", blocked=True
        )
        with self.lock:
            turn = self.toolbox.budget.turns
            self.toolbox.log.event("finding", turn, finding=finding.model_dump(mode="json"))

    def _admit(self) -> None:
        """Refuse what the run has no budget for."""
        if self.ending is None and self.failure is None:
            self.ending = self.toolbox.budget.check_limits()
        if self.ending is not None or self.failure is not None:
            why = self.ending.detail if self.ending else "the model does not answer"
            raise RequestRefused(429, "insufficient_quota", "insufficient_quota", f"the run is over: {why}")

    def _ask(self, request: ProgramRequest) -> Reply:
        budget, log, messages = self.toolbox.budget, self.toolbox.log, request.chat
        body, first = self._upstream(request), not self.served
        self.traffic.record_request(messages, tools=bool(request.fields.get("tools")))
        self.before_request()
        log.event(
            "api_request", budget.turns + 1, n_messages=len(messages), est_tokens=estimate_tokens(messages), bridge=True
        )
        try:
            reply = self.model.complete(body, messages, budget.reply_timeout_s())
        except RequestFailed as failure:
            budget.spend(failure.spent, retry_s=failure.retry_s)
            if isinstance(failure, EndpointError):
                raise
            self.served += 1
            raise self._refuse(failure) from failure
        try:
            budget.book(reply)
        except InfrastructureError as unpriced:
            raise self._end_unless(first, "cost_limit", unpriced) from unpriced
        budget.turns += 1
        adjusted = replace(reply, calls=distinct_calls(reply.calls, budget.turns))
        self.served += 1
        limit = self.agent.max_tokens
        self.is_cut = reply.finish_reason == "length" and limit is not None and (request.max_tokens or limit) >= limit
        log.reply(budget.turns, reply, n_calls=len(reply.calls))
        self.traffic.record_reply(adjusted, budget.turns)
        if (overlong := self.toolbox.check_reply_length(reply)) is not None:
            raise self._end_unless(first, "token_limit", overlong)
        return adjusted

    def _end_unless(self, first: bool, outcome: Outcome, fault: InfrastructureError) -> Exception:
        """The fault of a run's ``first`` request, which its entry can mend; of a later one the program's choices led
        there, and its run ends.
        """
        if first:
            return fault
        self.ending = Ending(outcome, f"{fault}"[:300])
        return RequestRefused(429, "insufficient_quota", "insufficient_quota", f"the run is over: {fault}")

    def _upstream(self, request: ProgramRequest) -> dict[str, Any]:
        """The body for the endpoint; raises RequestRefused for another protocol than the endpoint's."""
        if problem := protocol_mismatch(request.protocol, self.agent.protocol):
            raise RequestRefused(400, "invalid_request_error", None, f"No request was sent to the endpoint: {problem}")
        return PROTOCOLS[request.protocol].upstream_body(self.agent, request)

    def _refuse(self, failure: RequestFailed) -> RequestRefused:
        """The error for the program, as its provider's; the run goes on, or ends as our own loop's would."""
        if isinstance(failure, ContextOverflow):
            return RequestRefused(400, "invalid_request_error", "context_length_exceeded", str(failure))
        if isinstance(failure, RequestRejected):
            kinds = {429: "rate_limit_error"}
            kind = "server_error" if failure.status >= 500 else kinds.get(failure.status, "invalid_request_error")
            return RequestRefused(failure.status, kind, None, f"the endpoint fails at this request: {failure}")
        self.ending = make_failure_ending(failure)
        if isinstance(failure, LimitReached):
            return RequestRefused(429, "insufficient_quota", "insufficient_quota", f"the run is over: {failure}")
        return RequestRefused(400, "invalid_request_error", "content_filter", str(failure))


@dataclass
class CommandLoop:
    """One attempt of a command-line agent; same surface as ``AgentLoop``.

    ``checked``: a check saw this program ask its model, so that its silence is its own.
    """

    agent: Agent
    model: MeteredModel
    bridge: Bridge
    dialogue: Dialogue
    toolbox: Toolbox
    before_request: Callable[[], None] = lambda: None
    checked: bool = False

    def __post_init__(self) -> None:
        self._traffic = Traffic(self.dialogue, self.toolbox, snapshot=self.toolbox.snapshot)
        self._handler = RequestHandler(self.agent, self.model, self.toolbox, self._traffic, self.before_request)
        self._look_at = 0.0

    def run(self) -> Ending:
        """Run the command to its end; raises InfrastructureError when the machine or the endpoint fails."""
        toolbox = self.toolbox
        if toolbox.deaths("") >= DEATHS:
            toolbox.ending = make_death_ending("the command")
            toolbox.end_of_sandbox()
            return toolbox.ending
        kills = toolbox.oom_kills()
        toolbox.take_turn()
        toolbox.sandbox.set_deadline(toolbox.budget.remaining_s)
        self._traffic.look()
        with self.bridge.serving(self._handler.answer, self._handler.note_refusal):
            code, result = self._run_command()
        with self._handler.lock:
            # A request that was on its way when the command ended is answered and counted.
            self._book(code, result)
        if self._handler.failure is not None:
            raise self._handler.failure
        if result.status == "harness_error":
            raise InfrastructureError(f"The sandbox failed: {result.stderr[-300:] or 'no message'}")
        toolbox.add_gpu_use(toolbox.sandbox.drain_gpu_use())
        toolbox.out_of_memory = toolbox.is_over_memory(result, kills)
        found = toolbox.ending or find_ending(result)
        if not (self._handler.served or self.checked or found):
            raise InfrastructureError(f"{self._describe_silence(result)}\n{CHECK}")
        ending = toolbox.ending or self._handler.ending or found or self._make_ending(result)
        if ending.outcome == "submitted":
            toolbox.submitted, toolbox.summary = True, toolbox.log.mask(self._traffic.last_text[:SUMMARY_LENGTH])
        toolbox.ending = ending
        toolbox.end_of_sandbox()
        return toolbox.ending

    def totals(self) -> Totals:
        return self.toolbox.totals()

    # --- the command ------------------------------------------------------------------------------------------

    def _run_command(self) -> tuple[str, CodeResult]:
        sandbox, log = self.toolbox.sandbox, self.toolbox.log
        code = self.bridge.program.start
        lines, command = code.count("\n"), self.bridge.program.command
        log.event("exec_start", 0, call=COMMAND, language="bash", lines=lines, command=command)
        result = sandbox.run_code(
            "bash", code, call=COMMAND, turn=0, log=log.exec_folder, timeout_s=float("inf"), watch=self._watch
        )
        self.toolbox.leave_out_wait()
        return code, result

    def _watch(self) -> Stop | None:
        """Reason to stop the command, polled about once a second. Time that a provider loses is not charged."""
        handler, toolbox = self._handler, self.toolbox
        toolbox.leave_out_wait()
        self._prolong()
        if handler.failure is not None:
            return Stop("the model does not answer")
        if handler.lock.acquire(blocking=False):
            try:
                handler.ending = handler.ending or toolbox.budget.check_time()
                self._look()
            finally:
                handler.lock.release()
        if reason := toolbox.explain_full_disk():
            return Stop(reason)
        ending = toolbox.ending or handler.ending
        return None if ending is None or handler.busy else Stop(f"the run is over: {ending.detail}")

    def _prolong(self) -> None:
        """Tell the sandbox the time that is left; a reply that is waited for may turn out not to be charged."""
        remaining = self.toolbox.budget.remaining_s
        if remaining is not None:
            self.toolbox.sandbox.set_deadline(max(remaining, BUSY_S) if self._handler.busy else remaining)

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
        whole = self._traffic.whole_command(record_call(log, 0, COMMAND, CodeRequest("bash", code), result, "S1"))
        toolbox.calls[:] = [whole, *self._traffic.calls]
        toolbox.help_used[:] = self._traffic.help_used
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

    def _describe_silence(self, result: CodeResult) -> str:
        """What a program did that never reached its model: its requests, and its last output."""
        requested = ", ".join(f"{request} ({times} times)" for request, times in self.bridge.requested.most_common(5))
        refusal = f", the last one refused: {self._handler.refusal}" if self._handler.refusal else ""
        return (
            f"No request of the program reached its model. Its requests: {requested or 'none'}{refusal}.\n"
            f"It ended with {result.status}, exit code {result.exit_code}. Its last output: "
            f"{self._quote_end(result)}"
        )

    def _make_ending(self, result: CodeResult) -> Ending:
        """Ending of a command that this process did not stop; the supervisor may have stopped it at its time limit.

        Raises InfrastructureError where it failed after a reply that the agent's entry cut.
        """
        if result.status != "ok" and (late := self.toolbox.budget.check_time()) is not None:
            return late
        if (over := self.toolbox.budget.check_disk(self._traffic.snapshot.total_bytes)) is not None:
            return over
        if not self._handler.served:
            return Ending("stopped", f"{self._describe_silence(result)} In its check it asked."[:600])
        if result.status == "ok":
            contract = self.toolbox.contract
            completeness = contract.describe(len(contract.find_missing(self.toolbox.workspace)))
            return Ending("submitted", f"the command ended with exit code 0; {completeness}")
        if self.toolbox.out_of_memory:
            return Ending("out_of_memory", "the command ran out of memory")
        if result.status == "error" and self._handler.is_cut:
            raise InfrastructureError(
                f"The command ended with exit code {result.exit_code} after a reply that was cut at the "
                f"{self.agent.max_tokens} tokens of max_tokens in its entry: {self._quote_end(result)}\n"
                "This is no result of the agent. Raise max_tokens, or leave it out, then run the same command again."
            )
        how = f"exit code {result.exit_code}" if result.status == "error" else result.status
        return Ending("stopped", f"the command ended with {how}: {self._quote_end(result)}")

    def _quote_end(self, result: CodeResult) -> str:
        """Last lines of both outputs, each from its begin: a program may print the reason on either."""
        return quote_end(*map(self.toolbox.log.mask, (result.stdout, result.stderr)))


def quote_end(stdout: str, stderr: str) -> str:
    """Begin and end of the last three lines of both outputs, at most 183 characters of each; ``no output`` for none."""
    texts = (" ".join(" ".join(text.strip().splitlines()[-3:]).split()) for text in (stdout, stderr))
    return (
        " | ".join(f"{text[:120]} … {text[-60:]}" if len(text) > 180 else text for text in texts if text) or "no output"
    )
