"""A model behind an endpoint: its conversation as requests of the endpoint's protocol, retries, what it spent."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from automedbench.agent.models import model
from automedbench.agent.protocols import PROTOCOLS, endpoint_path, read_reply, whole_or_stream
from automedbench.base.closing import Closing
from automedbench.base.endpoint.client import Attempt, Client, RequestGivenUp
from automedbench.base.endpoint.faults import mentions_key
from automedbench.base.endpoint.usage import Billed, asked_tokens
from automedbench.campaign.agents import Agent


class EndpointModel(Closing):
    """A model behind an endpoint; a context manager that closes its connections."""

    def __init__(
        self,
        agent: Agent,
        keys: Sequence[str],
        *,
        on_attempt: Callable[[Attempt], None] = lambda _attempt: None,
        shared: Path | None = None,
        asker: str = "",
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._agent, self._protocol = agent, PROTOCOLS[agent.protocol]
        target = agent.target(agent.model, keys, agent.protocol)
        self._client = Client(
            replace(target, asker=asker or target.asker),
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
        agent = self._agent
        try:
            found = self._client.ask(
                whole_or_stream(agent, body),
                lambda data: read_reply(agent.protocol, data, messages),
                timeout_s,
                endpoint_path(agent),
            )
        except RequestGivenUp as failure:
            if failure.fault.status == 400 and failure.fault.kind == "auth" and mentions_key(json.dumps(body)):
                # An endpoint repeats what it does not understand: with that a program could end its run as no result.
                raise model.EndpointError(str(failure), failure.spent, failure.retry_s, "bad_request") from None
            raise _as_failure(failure) from None
        reply = found.value
        return replace(
            reply,
            spent=(*found.spent, Billed(reply.usage, reply.service_tier)),
            asked_tokens=asked_tokens(body),
            api_s=found.elapsed_s,
            retry_s=found.retry_s,
        )


def _as_failure(failure: RequestGivenUp) -> model.RequestFailed:
    kind, spent, retry_s = failure.fault.kind, failure.spent, failure.retry_s
    if kind == "context_overflow":
        return model.ContextOverflow(failure.shown, spent, retry_s)
    if kind == "content_policy":
        return model.ProviderRefusal(failure.shown, spent, retry_s)
    if failure.run_over:
        return model.ReplyTimeout("the run's time was used up while waiting for the reply", spent, retry_s)
    return model.EndpointError(str(failure), spent, retry_s, kind)
