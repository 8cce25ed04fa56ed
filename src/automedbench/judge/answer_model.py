"""The answer judge's chat model: one system and one user message to an OpenAI-compatible endpoint.

The key is read from the environment variable that the caller names and stands nowhere else.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import Field

from automedbench.errors import InfrastructureError
from automedbench.judge.answers import Said
from automedbench.records import Model, Tokens

ATTEMPTS = 5
CAP_S = 30.0
SHOWN_BODY = 200
TRANSIENT = frozenset({408, 409, 425, 429})


class Endpoint(Model):
    """Which model judges, and how it is called."""

    model: str
    base_url: str
    api_key_env: str = Field(description="name of the environment variable that holds the key")
    temperature: float | None = Field(0.0, description="null: not sent, for models that refuse it")
    max_tokens: int = Field(400, ge=50)
    timeout_s: float = Field(60.0, gt=0)
    json_mode: bool = Field(True, description="ask for response_format json_object")


def read_key(endpoint: Endpoint, environment: Mapping[str, str] = os.environ) -> str:
    """The key; raises InfrastructureError naming the variable when it is unset."""
    key = environment.get(endpoint.api_key_env, "").strip()
    if not key:
        raise InfrastructureError(
            f"The environment variable {endpoint.api_key_env} is not set; it must hold the key for "
            f"{_place(endpoint.base_url)}.\nExport it where this command runs, then run the same command again."
        )
    return key


class AnswerModel:
    """A chat model behind an endpoint; a context manager that closes its connections. See ``answers.Asks``."""

    def __init__(
        self,
        endpoint: Endpoint,
        key: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        import openai

        self.model = endpoint.model
        self._endpoint, self._key, self._sleep, self._jitter = endpoint, key, sleep, jitter
        self._client = openai.OpenAI(api_key=key, base_url=endpoint.base_url, max_retries=0, timeout=endpoint.timeout_s)
        # The SDK takes these from the environment and would tell them to every endpoint.
        self._client.organization = self._client.project = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(self, instruction: str, data: str) -> Said:
        """The reply; transient faults are repeated. Raises InfrastructureError when the endpoint fails for good."""
        body = self._body(instruction, data)
        reason = ""
        for attempt in range(1, ATTEMPTS + 1):
            said, reason, again = self._try(body)
            if said is not None:
                return said
            if not again:
                break
            if attempt < ATTEMPTS:
                self._sleep(min(CAP_S, 2.0**attempt + self._jitter()))
        shown = " ".join(reason.replace(self._key, "[masked]").split())[:SHOWN_BODY]
        raise InfrastructureError(
            f"The answer judge {self.model} at {_place(self._endpoint.base_url)} failed: {shown}\n"
            "Verdicts so far are kept in the cache; run the same command again when the endpoint works."
        )

    def _body(self, instruction: str, data: str) -> dict[str, Any]:
        messages = [{"role": "system", "content": instruction}, {"role": "user", "content": data}]
        body: dict[str, Any] = {"model": self.model, "messages": messages, "max_tokens": self._endpoint.max_tokens}
        if self._endpoint.temperature is not None:
            body["temperature"] = self._endpoint.temperature
        if self._endpoint.json_mode:
            body["response_format"] = {"type": "json_object"}
        return body

    def _try(self, body: dict[str, Any]) -> tuple[Said | None, str, bool]:
        """One attempt: the reply, or why there is none and whether it is worth another."""
        import openai

        try:
            answer = self._client.chat.completions.with_raw_response.create(
                model=body["model"], messages=body["messages"], extra_body=body
            )
            said = parse_completion(answer.http_response.content)
        except openai.APIStatusError as error:
            again = error.status_code in TRANSIENT or error.status_code >= 500
            return None, f"status {error.status_code}: {error.response.text}", again
        except openai.APIConnectionError as error:
            return None, f"no answer: {error.__cause__ or error}", True
        return said, "status 200, but no chat completion", True


def parse_completion(data: bytes) -> Said | None:
    """Text and usage of a chat completion; None when the body is none. A reply without text is an empty text."""
    try:
        body = json.loads(data)
        content = body["choices"][0]["message"].get("content")
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None
    return Said(content if isinstance(content, str) else "", _tokens(body.get("usage")))


def _tokens(usage: Any) -> Tokens:
    counts = [usage.get(name) if isinstance(usage, dict) else None for name in ("prompt_tokens", "completion_tokens")]
    known = [count for count in counts if isinstance(count, int) and not isinstance(count, bool) and count >= 0]
    return Tokens(prompt=known[0], completion=known[1]) if len(known) == 2 else Tokens(estimated=True)


def _place(url: str) -> str:
    """Host of a URL, without credentials."""
    return urlsplit(url).hostname or "the endpoint"
