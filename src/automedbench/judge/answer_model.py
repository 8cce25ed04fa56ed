"""The answer judge's chat model: one system and one user message to an OpenAI-compatible endpoint."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Self

from pydantic import Field

from automedbench.base.endpoint.client import Client, GivenUp, Target
from automedbench.base.endpoint.completion import read_completion
from automedbench.base.endpoint.keys import shown_place
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Model, Tokens
from automedbench.judge.answers import Said

ATTEMPTS = 5
"""Fewer than an agent gets: verdicts are kept, so a job that fails loses nothing."""


class Endpoint(Model):
    """Which model judges, and how it is called."""

    model: str
    base_url: str
    api_key_env: str = Field(description="name of the environment variable that holds the key")
    api_key_file: None = None
    temperature: float | None = Field(0.0, description="null: not sent, for models that refuse it")
    max_tokens: int = Field(400, ge=50)
    timeout_s: float = Field(60.0, gt=0)
    json_mode: bool = Field(True, description="ask for response_format json_object")


class AnswerModel:
    """A chat model behind an endpoint; a context manager that closes its connections. See ``answers.Asks``."""

    def __init__(
        self,
        endpoint: Endpoint,
        keys: tuple[str, ...],
        *,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.model = endpoint.model
        self._endpoint = endpoint
        target = Target(
            base_url=endpoint.base_url,
            model=endpoint.model,
            keys=keys,
            key_name=endpoint.api_key_env,
            timeout_s=endpoint.timeout_s,
        )
        self._client = Client(target, max_attempts=ATTEMPTS, sleep=sleep, jitter=jitter)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(self, instruction: str, data: str) -> Said:
        """The reply; transient faults are repeated. Raises InfrastructureError when the endpoint fails for good."""
        try:
            return self._client.ask(self._body(instruction, data), parse_completion).value
        except GivenUp as failure:
            status = f"status {failure.fault.status}" if failure.fault.status else "no answer"
            raise InfrastructureError(
                f"The answer judge {self.model} at {shown_place(self._endpoint.base_url)} failed "
                f"({failure.fault.kind}, {status}): {failure.shown}\n"
                "Verdicts so far are kept in the cache; run the same command again when the endpoint works."
            ) from None

    def _body(self, instruction: str, data: str) -> dict[str, Any]:
        messages = [{"role": "system", "content": instruction}, {"role": "user", "content": data}]
        body: dict[str, Any] = {"model": self.model, "messages": messages, "max_tokens": self._endpoint.max_tokens}
        if self._endpoint.temperature is not None:
            body["temperature"] = self._endpoint.temperature
        if self._endpoint.json_mode:
            body["response_format"] = {"type": "json_object"}
        return body


def parse_completion(data: bytes) -> Said:
    """Text and usage of a chat completion; raises FaultyReply. A reply without text is an empty text."""
    found = read_completion(data)
    usage = found.usage
    tokens = Tokens(prompt=usage.prompt, completion=usage.completion) if usage else Tokens(estimated=True)
    return Said(found.text, tokens)
