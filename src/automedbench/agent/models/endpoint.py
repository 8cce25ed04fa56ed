"""A model behind an endpoint: its conversation as requests of the endpoint's protocol, retries, what it spent.

*Whose fault is a request that fails?* What stands in it is the agent's, so the driver asks something plain itself, of
the same endpoint, model and key. Where that fails as well, the endpoint is down or misconfigured; where it is answered
and the agent's request fails again, that request is at fault.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from automedbench.agent.faults import PUT_OFF
from automedbench.agent.models import model
from automedbench.agent.protocols import PROTOCOLS, endpoint_path, read_reply, whole_or_stream
from automedbench.agent.protocols.responses import mark_cut
from automedbench.base.closing import Closing
from automedbench.base.endpoint.client import Attempt, Client, EndpointAnswer, RequestGivenUp
from automedbench.base.endpoint.faults import MAX_ATTEMPTS
from automedbench.base.endpoint.pacer import PATIENCE_S
from automedbench.base.endpoint.usage import Billed, asked_tokens
from automedbench.campaign.agents import Agent

HALF, HALF_PATIENCE_S = MAX_ATTEMPTS // 2, PATIENCE_S / 3
"""Attempts of a request before the plain one, and as many after it; how long each half waits for a slot or a server."""
PLAIN = (model.ChatMessage("user", "Answer with the word OK."),)
PLAIN_TOKENS = 1024
"""Limit of the plain reply: some models refuse less than they may think."""
PLAIN_TOOL = model.ToolSpec("note", "Keep a note.", {"type": "object", "properties": {"text": {"type": "string"}}})
PLAIN_S = 60.0
"""A plain request speaks for all that fail so soon after it: no agent can make the driver ask all the time."""

SLOW_EACH, SLOW_S = 3, 20.0
"""Of an endpoint that is slow on purpose: which requests it puts off, and for how many seconds."""


class EndpointModel(Closing):
    """A model behind an endpoint; a context manager that closes its connections."""

    def __init__(
        self,
        agent: Agent,
        keys: Sequence[str],
        *,
        on_send: Callable[[], None] = lambda: None,
        on_attempt: Callable[[Attempt], None] = lambda _attempt: None,
        shared: Path | None = None,
        asker: str = "",
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        slow: bool = False,
    ) -> None:
        """``slow``: every third request is put off as by an endpoint that has too many, on purpose."""
        self._agent, self._protocol, self._clock = agent, PROTOCOLS[agent.protocol], clock
        self._slow, self._asked, self._on_attempt, self._sleep = slow, 0, on_attempt, sleep
        self._is_proven, self._plain_until = False, float("-inf")
        target = agent.target(agent.model, keys, agent.protocol)
        self._client = Client(
            replace(target, asker=asker or target.asker),
            on_send=on_send,
            on_attempt=on_attempt,
            shared=shared,
            sleep=sleep,
            clock=clock,
            jitter=jitter,
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def reply(
        self, messages: Sequence[model.ChatMessage], tools: Sequence[model.ToolSpec], timeout_s: float
    ) -> model.Reply:
        """See ``ChatModel.reply``; transient faults are repeated as the error policy says."""
        body = self._protocol.make_request(self._agent, messages, tools)
        return replace(self.complete(body, messages, timeout_s), body=None)

    def complete(self, body: dict[str, Any], messages: Sequence[model.ChatMessage], timeout_s: float) -> model.Reply:
        """The reply to a whole request body of the endpoint's protocol, with the answer's own ``body``.

        ``messages`` are what the request says, to estimate tokens that are not reported. Raises RequestFailed (see its
        kinds) when there is none.
        """
        self._asked += 1
        put_off_s = self._put_off() if self._slow and self._asked % SLOW_EACH == 0 else 0.0
        reply = self._complete(body, messages, timeout_s)
        return replace(reply, retry_s=reply.retry_s + put_off_s)

    def _complete(self, body: dict[str, Any], messages: Sequence[model.ChatMessage], timeout_s: float) -> model.Reply:
        first = self._ask(body, messages, timeout_s)
        if isinstance(first, EndpointAnswer):
            return self._book(body, first)
        if (failure := _as_failure(first)) is not None:
            raise failure
        spent, plain_s, waited_s = first.spent, 0.0, 0.0
        if self._clock() >= self._plain_until:
            plain = self._ask(self._plain_body(body), PLAIN, float("inf"), MAX_ATTEMPTS, PATIENCE_S - HALF_PATIENCE_S)
            spent, waited_s = spent + plain.spent, plain.retry_s
            if isinstance(plain, RequestGivenUp):
                raise model.EndpointError(str(plain), spent, first.retry_s + waited_s)
            self._plain_until = self._clock() + PLAIN_S
            spent, plain_s = (*spent, Billed(plain.value.usage, plain.value.service_tier)), plain.elapsed_s
        # Also where the plain request is spared: two failures within its time are not yet the fault of both requests.
        again = self._ask(body, messages, timeout_s)
        spent += again.spent
        if isinstance(again, EndpointAnswer):
            retry_s = first.retry_s + waited_s + plain_s + again.retry_s
            return self._book(body, replace(again, spent=spent, retry_s=retry_s))
        raise _as_failure(again, spent) or _reject(again, spent, waited_s)

    def _put_off(self) -> float:
        """Wait as after a 429, for how many seconds; a program with retries of its own is told so instead."""
        told = self._agent.provider == "command"
        wait_s = 0.0 if told else SLOW_S
        self._on_attempt(Attempt("rate_limit", 429, wait_s, PUT_OFF, 0.0))
        if told:
            raise model.RequestRejected(PUT_OFF, status=429)
        self._sleep(wait_s)
        return wait_s

    def _ask(
        self,
        body: dict[str, Any],
        messages: Sequence[model.ChatMessage],
        timeout_s: float,
        attempts: int = HALF,
        patience_s: float = HALF_PATIENCE_S,
    ) -> EndpointAnswer[model.Reply] | RequestGivenUp:
        protocol = self._agent.protocol
        try:
            return self._client.ask(
                whole_or_stream(self._agent, body),
                lambda data: read_reply(protocol, data, messages),
                timeout_s,
                endpoint_path(self._agent),
                attempts=attempts,
                patience_s=patience_s,
            )
        except RequestGivenUp as failure:
            return failure

    def _plain_body(self, body: dict[str, Any]) -> dict[str, Any]:
        """A request that nothing of the agent's is in, under the settings of its entry.

        Before the first answer it offers a tool as ``body`` does: an endpoint that takes none is misconfigured.
        """
        reasoning = self._agent.reasoning.budget_tokens or 0
        limit = min(self._agent.max_tokens or PLAIN_TOKENS, PLAIN_TOKENS) + reasoning
        offered = () if self._is_proven or not body.get("tools") else (PLAIN_TOOL,)
        return self._protocol.make_request(self._agent.model_copy(update={"max_tokens": limit}), PLAIN, offered)

    def _book(self, body: dict[str, Any], found: EndpointAnswer[model.Reply]) -> model.Reply:
        self._is_proven = True
        limit = asked_tokens(body)
        reply = mark_cut(found.value, limit) if self._agent.protocol == "responses" else found.value
        return replace(
            reply,
            spent=(*found.spent, Billed(reply.usage, reply.service_tier)),
            asked_tokens=limit,
            api_s=found.elapsed_s,
            retry_s=found.retry_s,
        )


def _as_failure(failure: RequestGivenUp, spent: tuple[Billed, ...] | None = None) -> model.RequestFailed | None:
    """The failure where the answer itself says that it is no fault of the endpoint's; None where it must be found."""
    spent, retry_s = failure.spent if spent is None else spent, failure.retry_s
    if failure.fault.kind == "context_overflow":
        return model.ContextOverflow(failure.shown, spent, retry_s)
    if failure.fault.kind == "content_policy":
        return model.ProviderRefusal(failure.shown, spent, retry_s)
    if failure.run_over:
        return model.ReplyTimeout("the run's time was used up while waiting for the reply", spent, retry_s)
    return None


def _reject(failure: RequestGivenUp, spent: tuple[Billed, ...], retry_s: float = 0.0) -> model.RequestRejected:
    """The failure of a request at fault: its own attempts are the agent's time."""
    fault = failure.fault
    status = fault.status if fault.status is not None and fault.status >= 400 else 502
    what = f"{fault.kind}, status {fault.status or 'none'}: {failure.shown}"
    return model.RequestRejected(what, spent, retry_s, status)
