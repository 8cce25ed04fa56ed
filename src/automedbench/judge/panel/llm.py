"""A language model that judges: its endpoint, what is sent, what came back and what it cost."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from automedbench.base.endpoint.client import Client, GivenUp, Health, Target
from automedbench.base.endpoint.completion import Completion, Usage, read_completion
from automedbench.base.endpoint.health import EndpointHealth
from automedbench.base.endpoint.keys import read_keys, shown_place
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.masking import masked, secret_forms
from automedbench.base.records import Money, Tokens
from automedbench.campaign.agents import JudgeModel, Pricing, as_money

ATTEMPTS = 5
"""Fewer than an agent gets: answers are kept, so a job that fails loses nothing."""


class Said(NamedTuple):
    """What a judge said: its text, or why there is none, and what all attempts cost."""

    text: str
    problem: str | None
    tokens: Tokens


class WindowExceeded(Exception):
    """The endpoint says that the request does not fit the model's window."""


class JudgeEndpoint:
    """A judge's chat endpoint. Key and connection are made ready with the first request; ``close`` ends them."""

    def __init__(
        self,
        name: str,
        judge: JudgeModel,
        health: Path | None = None,
        *,
        environment: Mapping[str, str] = os.environ,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.name, self._judge, self._health = name, judge, health
        self._environment, self._sleep, self._jitter = environment, sleep, jitter
        self._client: Client | None = None
        self._keys: tuple[str, ...] = ()

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def ask(self, messages: Sequence[dict[str, Any]], schema: Mapping[str, Any]) -> Said:
        """One answer; transient faults are repeated.

        Raises WindowExceeded, ConfigError for a missing key, and InfrastructureError when the endpoint fails for good.
        """
        try:
            found = self._opened().ask(self._body(messages, schema), read_completion)
        except GivenUp as failure:
            return self._refused(failure)
        spent = found.spent + (found.value.usage or _estimated(messages, found.value.text))
        problem = problem_of(found.value)
        return Said(self._masked(found.value.text), problem and self._masked(problem), spent.tokens)

    def _masked(self, text: str) -> str:
        """Without the key, which an endpoint may echo and which must stand in no record or cache."""
        return masked(text, secret_forms(self._keys))

    def _refused(self, failure: GivenUp) -> Said:
        kind = failure.fault.kind
        if kind == "context_overflow":
            raise WindowExceeded from None
        if kind == "content_policy":
            return Said("", "the endpoint refuses the request for its content", failure.spent.tokens)
        status = f"status {failure.fault.status}" if failure.fault.status else "no answer"
        remedy = "Answers so far are kept in the cache; run the same command again when the endpoint works."
        if kind == "auth":
            source = self._judge.api_key_env or self._judge.api_key_file
            remedy = f"Check the key in {source} and the credit of its account, then run the same command again."
        if kind == "bad_request":
            remedy = "Check its entry in the judges file: model, structured, images, temperature and extra_body."
        raise InfrastructureError(
            f"The judge {self.name} at {shown_place(self._judge.base_url)} failed ({kind}, {status}): {failure.shown}\n"
            f"{remedy}"
        ) from None

    def _opened(self) -> Client:
        if self._client is None:
            judge = self._judge
            try:
                keys = read_keys(judge, self._environment)
            except InfrastructureError as error:
                raise ConfigError([f"judges.{self.name}: {' '.join(str(error).split())}"]) from error
            self._keys = keys
            target = Target(
                base_url=judge.base_url,
                model=judge.model,
                keys=keys,
                key_name=judge.api_key_env or judge.api_key_file or "",
                rotate=judge.api_key_rotation,
                gateway=judge.gateway_url,
                timeout_s=judge.request_timeout_s,
            )
            health: Health | None = EndpointHealth(self._health, judge.base_url) if self._health else None
            self._client = Client(target, health=health, max_attempts=ATTEMPTS, sleep=self._sleep, jitter=self._jitter)
        return self._client

    def _body(self, messages: Sequence[dict[str, Any]], schema: Mapping[str, Any]) -> dict[str, Any]:
        judge = self._judge
        body: dict[str, Any] = {"model": judge.model, "messages": list(messages)}
        if "max_completion_tokens" not in judge.extra_body:
            body["max_tokens"] = judge.max_tokens
        if judge.temperature is not None:
            body["temperature"] = judge.temperature
        if judge.structured == "json_schema":
            form = {"name": "judgement", "strict": True, "schema": dict(schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        elif judge.structured == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body | judge.extra_body


def problem_of(completion: Completion) -> str | None:
    """Why a completion is no answer, if it is none."""
    refusal = completion.message.get("refusal")
    if isinstance(refusal, str) and refusal.strip():
        return f"the judge refused: {' '.join(refusal.split())[:200]}"
    if completion.finish_reason == "length":
        return "the answer was cut off at max_tokens"
    if completion.finish_reason == "content_filter":
        return "the answer was stopped by a content filter"
    return None if completion.text.strip() else "the answer is empty"


def sum_of(tokens: Sequence[Tokens]) -> Tokens:
    """All of them together."""
    return Tokens(
        prompt=sum(item.prompt for item in tokens),
        cached=sum(item.cached for item in tokens),
        completion=sum(item.completion for item in tokens),
        reasoning=sum(item.reasoning for item in tokens),
        estimated=any(item.estimated for item in tokens),
    )


def cost_usd(tokens: Tokens, pricing: Pricing | None) -> Money | None:
    """What tokens cost; nothing costs 0, and without a price the cost is unknown."""
    if tokens.total == 0:
        return "0"
    return None if pricing is None else as_money(pricing.cost(tokens.prompt, tokens.cached, tokens.completion))


def _estimated(messages: Sequence[dict[str, Any]], answer: str) -> Usage:
    """Characters / 4 where the provider does not tell."""
    said = sum(len(text) for message in messages for text in _texts(message["content"]))
    return Usage(prompt=said // 4, completion=len(answer) // 4, estimated=True)


def _texts(content: Any) -> list[str]:
    return [content] if isinstance(content, str) else [part["text"] for part in content if part.get("type") == "text"]
