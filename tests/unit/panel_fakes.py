"""Judges that are no models: prepared answers, in the form of the real ones, for the careful run made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from automedbench.base.endpoint.usage import Billed
from automedbench.base.records import JudgedStage, Tokens
from automedbench.campaign.agents import JudgeModel
from automedbench.judge.panel import Panel, open_panel
from automedbench.judge.panel.member import JudgeText

ASKED: dict[str, list[str]] = {
    "S1": ["s1a", "s1b", "s1c", "s1d", "s1e", "s1f"],
    "S2": ["s2a", "s2b", "s2c", "s2d", "s2e"],
    "S3": ["s3"],
}
"""Criteria of the standard tier."""
QUOTES: dict[str, tuple[str, int | None]] = {
    "S1": ("I choose Otsu thresholding and a watershed split", None),
    "S2": ("plan/plan.png (14000 bytes)", None),
    "S3": ('assert set(item) == {"class", "score", "x1", "y1", "x2", "y2"}', 5),
}
"""A line of the careful run for each stage that bears on all its criteria, and its turn."""
USED = Tokens(prompt=1000, completion=100)

Speech = Callable[["Request"], str | JudgeText | Exception]


class Request:
    """One request as a fake judge gets it."""

    def __init__(self, messages: Sequence[dict[str, Any]], schema: dict[str, Any], number: int) -> None:
        self.messages, self.schema, self.number = list(messages), schema, number
        self.asked: list[str] = schema["properties"]["criteria"]["required"]
        self.stage: JudgedStage = "S1" if "s1a" in self.asked else "S2" if "s2a" in self.asked else "S3"
        content = self.messages[1]["content"]
        self.text: str = content if isinstance(content, str) else content[0]["text"]
        self.tries = sum(message["role"] == "assistant" for message in self.messages) + 1


def entry(verdict: float, quote: str = "", turn: int | None = None, reason: str = "because") -> dict[str, Any]:
    """A verdict as a judge writes it."""
    return {"reason": reason, "quote": quote, "turn": turn, "verdict": verdict}


def answer(stage: str, verdict: float = 1.0, *, codes: Sequence[dict[str, Any]] = (), quote: str | None = None,
           turn: int | None = None, asked: Sequence[str] | None = None,
           given: Mapping[str, float] | None = None) -> str:  # fmt: skip
    """A whole answer: every criterion with ``verdict`` unless given, and a quote of the stage that exists."""
    known, known_turn = QUOTES[stage]
    said = (known, known_turn) if quote is None else (quote, turn)
    verdicts = {name: (given or {}).get(name, verdict) for name in (ASKED[stage] if asked is None else asked)}
    entries = {name: entry(value, *said) if value else entry(value) for name, value in verdicts.items()}
    return json.dumps({"criteria": entries, "error_codes": list(codes)})


def says(verdict: float = 1.0, **given: float) -> Speech:
    """A judge that always gives these verdicts, with quotes that exist."""
    return lambda request: answer(request.stage, verdict, asked=request.asked, given=given)


class FakeEndpoint:
    """Answers by a function of the request, and remembers what it was asked."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self.requests: list[Request] = []

    def ask(self, messages: Sequence[dict[str, Any]], schema: dict[str, Any]) -> JudgeText:
        request = Request(messages, schema, len(self.requests) + 1)
        self.requests.append(request)
        said = self._speech(request)
        if isinstance(said, Exception):
            raise said
        return said if isinstance(said, JudgeText) else JudgeText(said, None, (Billed(USED),))

    def close(self) -> None:
        """Nothing is open."""


def judge_model(**settings: Any) -> JudgeModel:
    """A judge of the judges file."""
    plain = {"model": "model-canary", "base_url": "http://127.0.0.1:9/v1", "api_key_env": "JUDGE_KEY"}
    return JudgeModel.model_validate(plain | settings)


def fake_panel(
    *speeches: Speech, repeats: int = 1, cache: Path | None = None, **settings: Any
) -> tuple[Panel, list[FakeEndpoint]]:
    """A panel of judges ``a``, ``b`` … that say this, and their endpoints."""
    endpoints = {chr(ord("a") + number): FakeEndpoint(speech) for number, speech in enumerate(speeches)}
    judges = {name: judge_model(**({"model": f"model-canary-{name}"} | settings)) for name in endpoints}
    panel = open_panel(
        judges, list(judges), repeats=repeats, cache=cache, open_endpoint=lambda name, _judge, _health: endpoints[name]
    )
    return panel, list(endpoints.values())
