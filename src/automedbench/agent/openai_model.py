"""Any OpenAI-compatible endpoint through the openai SDK, with our own classified retries.

The key is read from the environment variable that the agent names, only when a run starts, and stands nowhere else.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from automedbench.agent.api_policy import TRANSIENT, Fault, classify_status, pause, retry_after
from automedbench.agent.chat import (
    Attempt,
    ChatMessage,
    ContextOverflow,
    EndpointError,
    ProviderRefusal,
    Reply,
    ReplyTimeout,
    RequestFailed,
    ToolSpec,
    Usage,
)
from automedbench.agent.completions import FaultyReply, parse_reply, request_body
from automedbench.agents import Agent
from automedbench.errors import InfrastructureError

MAX_REPLY_BYTES = 64 * 1024 * 1024
SHOWN_BODY = 200
CONNECT_S = 30.0


def read_key(agent: Agent, environment: Mapping[str, str] = os.environ) -> str:
    """The agent's key; raises InfrastructureError naming the variable when it is unset."""
    key = environment.get(agent.api_key_env or "", "").strip()
    if not key:
        raise InfrastructureError(
            f"The environment variable {agent.api_key_env} is not set; it must hold the key for {agent.base_url}.\n"
            "Export it where this command (or the Slurm job) runs, then run the same command again."
        )
    return key


class OpenAIModel:
    """A chat model behind an OpenAI-compatible endpoint; a context manager that closes its connections."""

    def __init__(
        self,
        agent: Agent,
        key: str,
        *,
        on_attempt: Callable[[Attempt], None] = lambda _attempt: None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        import openai

        self._agent = agent
        self._key = key
        self._on_attempt = on_attempt
        self._sleep, self._clock, self._jitter = sleep, clock, jitter
        self._client = openai.OpenAI(api_key=key, base_url=agent.base_url, max_retries=0)
        # The SDK takes these from the environment and would tell them to every endpoint.
        self._client.organization = self._client.project = None

    def __enter__(self) -> OpenAIModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], timeout_s: float) -> Reply:
        """See ``ChatModel.reply``; transient faults are repeated as the error policy says."""
        body = request_body(self._agent, messages, tools)
        spent, retry_s = Usage(), 0.0
        counts: dict[str, int] = {}
        while True:
            started = self._clock()
            outcome = self._try(body, messages, min(timeout_s, self._agent.request_timeout_s))
            elapsed = self._clock() - started
            if isinstance(outcome, Reply):
                self._on_attempt(Attempt("ok", 200, 0.0, "", elapsed))
                return replace(outcome, spent=spent + outcome.usage, api_s=elapsed, retry_s=retry_s)
            fault, used = outcome.fault, outcome.spent
            spent += used
            counts[fault.kind] = counts.get(fault.kind, 0) + 1
            again = self._may_repeat(fault, counts, timeout_s)
            wait = pause(fault, sum(counts.values()), self._jitter()) if again and fault.kind in TRANSIENT else 0.0
            self._on_attempt(Attempt(fault.kind, fault.status, wait, self._shown(fault.body), elapsed))
            if not again:
                raise self._failure(fault, counts, spent, retry_s, timeout_s)
            self._sleep(wait)
            retry_s += elapsed + wait

    def _may_repeat(self, fault: Fault, counts: Mapping[str, int], timeout_s: float) -> bool:
        if fault.kind == "content_policy":
            return counts[fault.kind] < 2
        if self._is_run_over(fault, timeout_s):
            return False
        allowed = TRANSIENT.get(fault.kind, 1)
        return counts[fault.kind] < allowed and sum(counts.values()) < max(TRANSIENT.values())

    def _is_run_over(self, fault: Fault, timeout_s: float) -> bool:
        """True when it was not the provider's time that ran out, but the run's."""
        return fault.slow and timeout_s < self._agent.request_timeout_s

    def _failure(
        self, fault: Fault, counts: Mapping[str, int], spent: Usage, retry_s: float, timeout_s: float
    ) -> RequestFailed:
        shown = self._shown(fault.body)
        if fault.kind == "context_overflow":
            return ContextOverflow(shown, spent, retry_s)
        if fault.kind == "content_policy":
            return ProviderRefusal(shown, spent, retry_s)
        if self._is_run_over(fault, timeout_s):
            return ReplyTimeout("the run's time was used up while waiting for the reply", spent, retry_s)
        return EndpointError(self._explain(fault, sum(counts.values()), shown), spent, retry_s)

    def _explain(self, fault: Fault, attempts: int, shown: str) -> str:
        where = f"{self._agent.base_url} (model {self._agent.model})"
        status = f"status {fault.status}" if fault.status else "no answer"
        remedy = {
            "auth": f"Check the key in {self._agent.api_key_env} and the credit of its account.",
            "bad_request": "The endpoint does not accept the request: check model, base_url and extra_body.",
        }.get(fault.kind, "The attempt is kept; run the same command again when the endpoint is back.")
        return f"{where} failed after {attempts} attempts: {fault.kind}, {status}: {shown}\n{remedy}"

    def _shown(self, body: str) -> str:
        text = body.replace(self._key, "[masked]")
        return " ".join(text.split())[:SHOWN_BODY]

    def _try(self, body: dict[str, Any], messages: Sequence[ChatMessage], timeout_s: float) -> Reply | FaultyReply:
        """One attempt: a reply, or what was wrong."""
        import httpx2
        import openai

        try:
            return parse_reply(self._post(body, timeout_s), messages)
        except FaultyReply as failure:
            return failure
        except openai.APIStatusError as error:
            text = error.response.text
            kind = classify_status(error.status_code, text)
            return FaultyReply(Fault(kind, error.status_code, text, retry_after(error.response.headers)))
        except (openai.APITimeoutError, httpx2.TimeoutException) as error:
            unreachable = isinstance(error.__cause__ or error, httpx2.ConnectTimeout)
            return FaultyReply(Fault("network", None, "timeout", slow=not unreachable))
        except (openai.APIConnectionError, httpx2.HTTPError) as error:
            reason = error.__cause__ or error
            return FaultyReply(Fault("network", None, f"{type(reason).__name__}: {reason}"))

    def _post(self, body: dict[str, Any], timeout_s: float) -> bytes:
        """The body of the answer, read within ``timeout_s``: a reply that drips in for ever is a time-out too."""
        import httpx2

        deadline = self._clock() + timeout_s
        limit = None if timeout_s == float("inf") else timeout_s
        timeout = httpx2.Timeout(limit, connect=min(timeout_s, CONNECT_S))
        data = bytearray()
        with self._client.chat.completions.with_streaming_response.create(
            model=body["model"], messages=body["messages"], extra_body=body, timeout=timeout
        ) as response:
            for part in response.iter_bytes():
                data += part
                if self._clock() > deadline:
                    raise FaultyReply(Fault("network", 200, "timeout: the reply came too slowly", slow=True))
                if len(data) > MAX_REPLY_BYTES:
                    raise FaultyReply(Fault("malformed", 200, f"reply of more than {MAX_REPLY_BYTES} bytes"))
        return bytes(data)
