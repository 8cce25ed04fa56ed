"""Loop of all tracks: call the model, execute its tool calls, until the run ends.

Rules: docs/specification.md, 8.1 to 8.6. The loop runs outside the sandbox; every way a run can end is an
``Ending``, every fault of ours an InfrastructureError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import TypeAdapter

from automedbench.agent import tools
from automedbench.agent.budget.limits import Ending
from automedbench.agent.log import Dialogue
from automedbench.agent.models.model import (
    ChatMessage,
    ChatModel,
    ContextOverflow,
    CostLimit,
    EndpointError,
    LimitReached,
    ProviderRefusal,
    Reply,
    ReplyTimeout,
    RequestFailed,
    RequestRejected,
    TokenLimit,
    ToolCall,
    ToolSpec,
    distinct_calls,
)
from automedbench.agent.toolbox import Toolbox
from automedbench.agent.tools import (
    CONTINUE_EMPTY,
    CONTINUE_TEXT,
    FORMAT_FENCE,
    FORMAT_LENGTH,
    Recovery,
    recover_calls,
)
from automedbench.base.endpoint.usage import Billed
from automedbench.base.files import clean_text
from automedbench.base.records import Outcome, Totals

MAX_LENGTH_STOPS = 3
MAX_IDLE = 2
KEPT_OF_CUT_REPLY = 2000
BRIEF_FAILED = (
    "The endpoint answers a plain request, but not the brief, in which nothing is the agent's: {}.\n"
    "Check the agent's context_tokens against the model's real window, max_tokens and extra_body."
)
NO_ROOM = (
    "The run's limits leave no room for its first request: {}.\n"
    "Raise limits.max_cost_usd or limits.max_total_tokens, or lower the agent's max_tokens."
)

FailureKind = Literal["overflow", "refusal", "timeout", "rejected", "endpoint", "cost", "tokens"]


@dataclass(frozen=True)
class Failed:
    """A request that gave no reply."""

    kind: FailureKind
    message: str
    spent: tuple[Billed, ...]
    retry_s: float


@dataclass(frozen=True)
class ModelAnswer:
    """The outcome of a request as the journal keeps it: a reply, or the failure."""

    reply: Reply | None = None
    failure: Failed | None = None


_ERRORS: dict[FailureKind, type[RequestFailed]] = {
    "overflow": ContextOverflow,
    "refusal": ProviderRefusal,
    "timeout": ReplyTimeout,
    "rejected": RequestRejected,
    "endpoint": EndpointError,
    "cost": CostLimit,
    "tokens": TokenLimit,
}
ANSWER: TypeAdapter[ModelAnswer] = TypeAdapter(ModelAnswer)


@dataclass
class AgentLoop:
    """One attempt's conversation between a model and its tools.

    ``free``: the model costs nothing and is called again while a crashed run is replayed, because it may have a state.
    """

    model: ChatModel
    dialogue: Dialogue
    toolbox: Toolbox
    specs: Sequence[ToolSpec]
    free: bool = False
    n_recovered: int = 0
    n_format: int = 0
    _length_stops: int = 0
    _idle: int = 0
    _last_empty: bool = False
    _failure: RequestFailed | None = None

    def run(self) -> Ending:
        """Turn after turn until an end; raises InfrastructureError when the machine or the endpoint fails."""
        while (ending := self._next_turn()) is None:
            pass
        return self._decide_outcome(ending)

    def totals(self) -> Totals:
        return self.toolbox.totals(n_recovered_calls=self.n_recovered, n_format_warnings=self.n_format)

    # --- one turn ---------------------------------------------------------------------------------------------

    def _next_turn(self) -> Ending | None:
        budget = self.toolbox.budget
        if (over := budget.check_limits()) is not None:
            return over
        if (notice := budget.notice()) is not None:
            self.dialogue.notice(notice)
        reply = self._request()
        if isinstance(reply, Ending):
            return reply
        budget.turns += 1
        self.dialogue.turn = budget.turns
        calls, found = self._read_calls(reply)
        recovered = sum(call.recovered for call in calls)
        self.toolbox.log.reply(budget.turns, reply, n_calls=len(calls), recovered=recovered)
        # One that was kept before a crash is paid: the run goes on with it.
        if (overlong := self.toolbox.check_reply_length(reply)) is not None and not self.toolbox.journal.replayed:
            raise overlong
        if not calls:
            return self._handle_text(reply, found)
        return self._run_calls(reply, calls)

    def _request(self) -> Reply | Ending:
        """The model's reply; a conversation that does not fit is shortened once."""
        self.dialogue.fit()
        try:
            try:
                return self._ask()
            except ContextOverflow:
                self.dialogue.shrink()
            return self._ask()
        except (ContextOverflow, RequestRejected, LimitReached) as failure:
            if not self.toolbox.budget.turns:
                message = NO_ROOM if isinstance(failure, LimitReached) else BRIEF_FAILED
                raise EndpointError(message.format(failure)) from failure
            return make_failure_ending(failure)
        except (ProviderRefusal, ReplyTimeout) as failure:
            return make_failure_ending(failure)

    def _ask(self) -> Reply:
        """One request; raises RequestFailed. One that failed because of the endpoint before a crash is repeated."""
        budget, journal = self.toolbox.budget, self.toolbox.journal
        messages = self.dialogue.sent
        while True:
            began = budget.wall_s
            about = f"turn {budget.turns + 1}"
            answer = journal.effect("reply", about, lambda: self._send(messages), ANSWER, long=True, rehearse=self.free)
            reply, failure = answer.reply, answer.failure
            if reply is not None:
                budget.book(reply)
                self.dialogue.calibrate(0 if reply.usage.estimated else reply.usage.prompt, messages)
                return reply
            assert failure is not None
            down = failure.kind == "endpoint" or (failure.kind == "rejected" and not budget.turns)
            # None of the time of an endpoint that stayed down is the agent's.
            budget.spend(failure.spent, retry_s=max(failure.retry_s, budget.wall_s - began if down else 0.0))
            if not (down and journal.replayed):
                raise _ERRORS[failure.kind](failure.message, failure.spent, failure.retry_s) from self._failure

    def _send(self, messages: Sequence[ChatMessage]) -> ModelAnswer:
        budget = self.toolbox.budget
        self.toolbox.log.event(
            "api_request", budget.turns + 1, n_messages=len(messages), est_tokens=self.dialogue.estimated_tokens
        )
        try:
            return ModelAnswer(reply=self.model.reply(messages, self.specs, budget.reply_timeout_s()))
        except RequestFailed as failure:
            self._failure = failure
            kind = next(kind for kind, error in _ERRORS.items() if isinstance(failure, error))
            return ModelAnswer(failure=Failed(kind, str(failure), failure.spent, failure.retry_s))

    def _read_calls(self, reply: Reply) -> tuple[tuple[ToolCall, ...], Recovery]:
        """Native calls, else calls written as text; a text call that was cut by the length limit is none."""
        turn = self.toolbox.budget.turns
        if reply.calls:
            return distinct_calls(reply.calls, turn), Recovery()
        found = recover_calls(clean_text(reply.content), [spec.name for spec in self.specs])
        whole = [call for call in found.calls if call.closed or reply.finish_reason != "length"]
        calls = tuple(
            ToolCall(f"recovered_{turn:04x}{index:04x}", call.name, tools.encode(call.arguments), recovered=True)
            for index, call in enumerate(whole, start=1)
        )
        self.n_recovered += len(calls)
        return calls, found

    # --- replies with calls -----------------------------------------------------------------------------------

    def _run_calls(self, reply: Reply, calls: tuple[ToolCall, ...]) -> Ending | None:
        self._idle = 0
        cut = reply.finish_reason == "length"
        echoed = tuple(replace(call, arguments=tools.valid_json(call.arguments)) for call in calls)
        content = clean_text(reply.content)
        message = ChatMessage("assistant", content, echoed, opaque=reply.opaque, reasoning=reply.reasoning)
        self.dialogue.add(message, replace(message, calls=calls))
        for call in calls:
            answer = self.toolbox.run(call, self.toolbox.budget.turns, cut=cut and not call.recovered)
            self.dialogue.add(ChatMessage("tool", answer, call_id=call.id))
        self.dialogue.calls = self.toolbox.calls
        if cut and any(not call.recovered and not tools.is_complete(call.arguments) for call in calls):
            return self.toolbox.ending or self._length_stop()
        self._length_stops = 0
        return self.toolbox.ending

    # --- replies without a call -------------------------------------------------------------------------------

    def _handle_text(self, reply: Reply, found: Recovery) -> Ending | None:
        content = clean_text(reply.content)
        cut = reply.finish_reason == "length"
        whole = ChatMessage("assistant", content, opaque=reply.opaque, reasoning=reply.reasoning)
        # What a provider wants back is its own copy of the text, which would undo the cut.
        kept = replace(whole, content=content[:KEPT_OF_CUT_REPLY], opaque={}) if cut else whole
        self.dialogue.add(kept, whole)
        if cut:
            return self._length_stop()
        self._length_stops = 0
        return self._handle_idle_reply(content, found)

    def _handle_idle_reply(self, content: str, found: Recovery) -> Ending | None:
        empty = not content.strip()
        self._idle += 1
        if self._idle >= MAX_IDLE:
            if empty and self._last_empty:
                return Ending("stopped", "no_action: two empty replies in a row")
            return Ending("stopped", "stopped_without_submit: two replies in a row called no tool")
        self._last_empty = empty
        if found.fenced:
            self.n_format += 1
            self.dialogue.notice(FORMAT_FENCE)
        else:
            self.dialogue.notice(CONTINUE_EMPTY if empty else CONTINUE_TEXT)
        return None

    def _length_stop(self) -> Ending | None:
        self._length_stops += 1
        self.n_format += 1
        if self._length_stops >= MAX_LENGTH_STOPS:
            return Ending("stopped", f"format_breakdown: {MAX_LENGTH_STOPS} replies in a row were cut by their length")
        self.dialogue.notice(FORMAT_LENGTH)
        return None

    # --- the end ----------------------------------------------------------------------------------------------

    def _decide_outcome(self, ending: Ending) -> Ending:
        """The outcome after all evidence: a broken rule or memory that ran out explain more than a silent stop."""
        toolbox = self.toolbox
        toolbox.ending = ending
        toolbox.end_of_sandbox()
        final = toolbox.ending
        if final.outcome == "stopped" and toolbox.out_of_memory:
            return Ending("out_of_memory", f"the last code call ran out of memory; then {final.detail}")
        return final


def make_failure_ending(failure: RequestFailed) -> Ending:
    """The end of a run whose request got no reply, for a reason that is not the endpoint's."""
    ends: dict[type[RequestFailed], tuple[Outcome, str]] = {
        ProviderRefusal: ("refused", "provider_refusal"),
        ReplyTimeout: ("time_limit", "no reply before the time was used up"),
        ContextOverflow: ("stopped", "the conversation does not fit the model even after shortening"),
        RequestRejected: ("stopped", "the endpoint fails at this conversation and answered a plain request"),
    }
    if isinstance(failure, LimitReached):
        return Ending("cost_limit" if isinstance(failure, CostLimit) else "token_limit", f"{failure}"[:300])
    outcome, reason = ends[type(failure)]
    return Ending(outcome, f"{reason}: {failure}"[:300])
