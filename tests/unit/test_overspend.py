"""The budget holds against a provider that charges for everything, and honest campaigns may use nearly all of it."""

from __future__ import annotations

import contextlib
import string
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from automedbench.agent.budget.estimate import PromptHistory, read_prompt
from automedbench.agent.budget.ledger import BudgetExhausted, CampaignLedger, MeteredModel
from automedbench.agent.budget.limits import Budget
from automedbench.agent.models.endpoint import EndpointModel
from automedbench.agent.models.model import ContextOverflow, CostLimit, RequestFailed
from automedbench.agent.models.scripted import ScriptedTurn
from automedbench.base.cards import Limits
from automedbench.base.endpoint.usage import Billed
from automedbench.base.records import Tokens
from automedbench.campaign.agents import Agent
from automedbench.campaign.prices import Pricing, compute_cost
from automedbench_rehearsal.model_server.faults import FaultPlan
from automedbench_rehearsal.model_server.meter import TokenMeter
from automedbench_rehearsal.model_server.server import ScriptedServer

Body = dict[str, Any]
PROTOCOLS = ("chat", "responses", "messages", "gemini")
PRICES = Pricing.model_validate(
    {
        "input": "3",
        "cached_input": "0.3",
        "cache_write": "3.75",
        "cache_write_1h": "6",
        "output": "15",
        "service_tiers": {"priority": {"input": "6", "output": "30", "cache_write": "6", "cache_write_1h": "12"}},
        "as_of": "2026-01-01",
        "source": "made up",
    }
)
BUDGET = Decimal(1)
WORDS = (string.ascii_letters + " ") * 2_000  # 106 000 bytes
PICTURE = "iVBORw0K" * 40
LIMIT = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}
ITEMS = {"chat": "messages", "responses": "input", "messages": "messages", "gemini": "contents"}


def message(protocol: str, *parts: Any, role: str = "user") -> Body:
    """A message of text, or of parts as they are."""
    if protocol == "gemini":
        texts = [{"text": part} if isinstance(part, str) else part for part in parts]
        return {"role": "model" if role == "assistant" else "user", "parts": texts}
    kind = {"responses": "input_text" if role == "user" else "output_text"}.get(protocol, "text")
    return {
        "role": role,
        "content": [{"type": kind, "text": part} if isinstance(part, str) else part for part in parts],
    }


def request(protocol: str, *parts: Any, limit: int | None = 1_000, **fields: Any) -> Body:
    """A request with one message."""
    body: Body = {ITEMS[protocol]: [message(protocol, *(parts or ("Begin.",)))], **fields}
    if protocol == "gemini":
        config = {} if limit is None else {"maxOutputTokens": limit}
        return body | {"generationConfig": config | fields.get("generationConfig", {})}
    return {"model": "m"} | body | ({} if limit is None else {LIMIT[protocol]: limit})


def tool(protocol: str, text: str) -> Body:
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": text}}}
    match protocol:
        case "chat":
            return {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}}
        case "responses":
            return {"type": "function", "name": "f", "parameters": schema}
        case "messages":
            return {"name": "f", "input_schema": schema}
    return {"functionDeclarations": [{"name": "f", "parametersJsonSchema": schema}]}


def media(protocol: str, kind: str, data: str = PICTURE) -> Body:
    """A picture or a document in the protocol's form."""
    match protocol:
        case "chat" if kind.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
        case "chat":
            return {"type": "file", "file": {"filename": "a", "file_data": f"data:{kind};base64,{data}"}}
        case "responses" if kind.startswith("image/"):
            return {"type": "input_image", "image_url": f"data:{kind};base64,{data}"}
        case "responses":
            return {"type": "input_file", "filename": "a", "file_data": f"data:{kind};base64,{data}"}
        case "messages":
            name = "image" if kind.startswith("image/") else "document"
            return {"type": name, "source": {"type": "base64", "media_type": kind, "data": data}}
    return {"inlineData": {"mimeType": kind, "data": data}}


def reasoned(protocol: str) -> Body:
    """A conversation in which the model has thought: 106 000 bytes that no text shows."""
    first, last = message(protocol, "Begin."), message(protocol, "Go on.")
    match protocol:
        case "chat":
            thought = {"role": "assistant", "content": "So.", "reasoning_details": [{"type": "x", "data": WORDS}]}
        case "responses":
            thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": WORDS}
        case "messages":
            thought = message(protocol, {"type": "redacted_thinking", "data": WORDS}, "So.", role="assistant")
        case _:
            thought = message(protocol, {"text": "So.", "thoughtSignature": WORDS}, role="assistant")
    return request(protocol) | {ITEMS[protocol]: [first, thought, last]}


def schema_of(protocol: str) -> Body:
    """A form of the answer of 106 000 bytes."""
    schema = {"type": "object", "description": WORDS}
    match protocol:
        case "chat":
            return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}
        case "responses":
            return {"text": {"format": {"type": "json_schema", "name": "a", "schema": schema}}}
        case "messages":
            return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    return {"generationConfig": {"responseJsonSchema": schema}}


def instructions(protocol: str, text: str) -> Body:
    match protocol:
        case "responses":
            return {"instructions": text}
        case "messages":
            return {"system": [{"type": "text", "text": text}]}
        case "gemini":
            return {"systemInstruction": {"parts": [{"text": text}]}}
    return {}


def thinking(protocol: str) -> Body:
    match protocol:
        case "gemini":
            return {"generationConfig": {"thinkingConfig": {"thinkingBudget": 8_000}}}
        case "messages":
            return {"thinking": {"type": "enabled", "budget_tokens": 8_000}}
    return {"reasoning": {"max_tokens": 8_000}}


SHAPES: dict[str, Callable[[str], Body]] = {
    "a short text": lambda protocol: request(protocol),
    "a long text": lambda protocol: request(protocol, WORDS),
    "no ASCII": lambda protocol: request(protocol, "醫" * 30_000),
    "tools": lambda protocol: request(protocol, tools=[tool(protocol, WORDS)]),
    "many tools": lambda protocol: request(protocol, tools=[tool(protocol, WORDS[:5_000])] * 20),
    "a schema": lambda protocol: request(protocol, **schema_of(protocol)),
    "instructions": lambda protocol: request(protocol, **instructions(protocol, WORDS)),
    "reasoning items": reasoned,
    "pictures": lambda protocol: request(protocol, *[media(protocol, "image/png")] * 10),
    "a document": lambda protocol: request(protocol, media(protocol, "application/pdf")),
    "choices": lambda protocol: request(
        protocol, **{"generationConfig": {"candidateCount": 8}} if protocol == "gemini" else {"n": 8}
    ),
    "a huge limit": lambda protocol: request(protocol, limit=60_000),
    "no limit": lambda protocol: request(protocol, limit=30_000 if protocol == "messages" else None),
    "a budget of reasoning": lambda protocol: request(protocol, limit=10_000, **thinking(protocol)),
    "all of 3 MB": lambda protocol: request(protocol, WORDS * 28),
}


class Campaign:
    """A campaign of one agent at a real server, with everything that was charged."""

    def __init__(self, folder: Path, protocol: str, meter: TokenMeter, url: str, root: str, limits: Any) -> None:
        entry = {"provider": "command", "command": ["x"], "model": "m", "api_key_env": "KEY", "protocol": protocol}
        address = root if protocol in ("messages", "gemini") else url
        self.agent = Agent.model_validate(entry | {"base_url": address, "pricing": PRICES, "context_tokens": 30_000})
        self.meter, self.ledger = meter, CampaignLedger(folder / "ledger", None if limits else BUDGET)
        self.metered = MeteredModel(self.agent, "a/t/lite/r1", "0001", self.ledger)
        self.metered.limits = Budget(Limits.model_validate(limits), PRICES)
        self.model = EndpointModel(
            self.agent,
            ("key",),
            on_send=self.metered.admit_attempt,
            on_attempt=self.metered.note_attempt,
            sleep=lambda _s: None,
            jitter=lambda: 0.0,
        )
        self.metered.meter(self.model)

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *_: object) -> None:
        self.model.close()

    @property
    def charged(self) -> Decimal:
        """USD by the meter, for as much as the protocol can tell of the kinds of tokens."""
        kinds = {"gemini": (), "messages": ("cache_write", "cache_write_1h")}.get(self.agent.protocol, ("cache_write",))
        spent = [
            Billed(Tokens(prompt=each.prompt, completion=each.output, **{kind: getattr(each, kind) for kind in kinds}))
            for each in self.meter.charged
        ]
        return compute_cost(spent, PRICES) or Decimal(0)

    @property
    def booked(self) -> Decimal:
        return self.ledger.totals().all.gone

    def ask(self, body: Body) -> None:
        assert self.metered.limits is not None
        try:
            self.metered.limits.book(self.metered.complete(body, (), 60.0))
        except RequestFailed as failure:
            self.metered.limits.spend(failure.spent)
            raise


@contextlib.contextmanager
def campaign(
    folder: Path, protocol: str, meter: TokenMeter, faults: Mapping[int, str] | None = None, **options: Any
) -> Iterator[Campaign]:
    plan = FaultPlan.model_validate({"requests": faults or {}})
    turns = [ScriptedTurn(content="Well.")] * 100
    with (
        ScriptedServer(turns, usage=meter, faults=plan, keep=False) as server,
        Campaign(folder, protocol, meter, server.url, server.root, **options) as running,
    ):
        yield running


REFUSED = (CostLimit, BudgetExhausted, ContextOverflow)


@pytest.mark.parametrize("limits", [{}, {"max_cost_usd": float(BUDGET)}], ids=["budget", "limit of the run"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_form_of_a_request_goes_beyond(tmp_path: Path, protocol: str, shape: str, limits: dict[str, float]) -> None:
    """Again and again until it is refused, or eight times; what is small is never refused: 8 × 0.016 USD at most."""
    with campaign(tmp_path, protocol, TokenMeter(), limits=limits) as running, contextlib.suppress(*REFUSED):
        for _ in range(8):
            running.ask(SHAPES[shape](protocol))
    assert running.charged <= BUDGET
    assert running.booked <= BUDGET
    if shape == "a short text":
        assert len(running.meter.charged) == 8


@pytest.mark.parametrize("limits", [{}, {"max_cost_usd": float(BUDGET)}], ids=["budget", "limit of the run"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_attempts_that_broke_off_may_have_been_charged(tmp_path: Path, protocol: str, limits: dict[str, float]) -> None:
    """Three of four requests give no account, and each of their repetitions is charged: 10 000 × 15 millionths."""
    kinds = ["cut_at_once", "cut_body", "no_choices", "usage_missing"]
    faults = {number: kinds[number % 4] for number in range(1, 40)}
    with (
        campaign(tmp_path, protocol, TokenMeter(), faults, limits=limits) as running,
        contextlib.suppress(*REFUSED),
    ):
        for _ in range(8):
            running.ask(request(protocol, limit=10_000))
    assert len(running.meter.charged) >= 2
    assert running.charged <= BUDGET


@pytest.mark.parametrize("limits", [{}, {"max_cost_usd": 1}], ids=["budget", "limit of the run"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_honest_conversation_may_spend_nearly_all(tmp_path: Path, protocol: str, limits: dict[str, float]) -> None:
    """Four bytes a token, replies of 100 tokens where 2000 may be written, a message of 2 kB more each time.

    By hand: Gemini's 30th request is taken for 15 000 counted tokens and 2 100 bytes at 12 millionths (priority), and
    2000 × 30: 0.27 USD may be left over.
    """
    with (
        campaign(tmp_path, protocol, TokenMeter(4, share=0.05), limits=limits) as running,
        contextlib.suppress(CostLimit, BudgetExhausted),
    ):
        for count in range(1, 100):
            texts = [message(protocol, f"{number} " + "words " * 330) for number in range(count)]
            running.ask(request(protocol, limit=2_000) | {ITEMS[protocol]: texts})
    assert Decimal("0.73") <= running.charged <= BUDGET


def agent_of(protocol: str) -> Agent:
    entry = {"provider": "openai", "model": "m", "base_url": "http://h/v1", "api_key_env": "K", "protocol": protocol}
    return Agent.model_validate(entry | {"context_tokens": 30_000})


def test_what_a_provider_has_counted_needs_no_bound() -> None:
    """The mark of the cache moves on, a text of the system and one message are new."""
    agent = agent_of("messages")

    def body(*texts: str, system: str = "Work.", **fields: Any) -> Body:
        turns: list[Body] = [{"role": "user", "content": [{"type": "text", "text": text}]} for text in texts]
        turns[-1]["content"][-1] |= {"cache_control": {"type": "ephemeral"}}
        return {"messages": turns, "system": [{"type": "text", "text": system}], **fields}

    def new(*texts: str, **fields: Any) -> int:
        return history.bound(read_prompt(agent, body(*texts, **fields))) - 777

    history = PromptHistory()
    history.learn(read_prompt(agent, body(WORDS)), Tokens(prompt=777))
    assert new(WORDS) == 0
    # {"role": "user", "content": "More."}: 36 bytes; ["system", {"type": "text", "text": "Rest."}]: 45.
    assert new(WORDS, "More.") == 36
    assert new(WORDS, "More.", system="Rest.") == 36 + 45
    twice = body(WORDS)
    twice["system"] *= 2  # a second time: ["system", {"type": "text", "text": "Work."}]
    assert history.bound(read_prompt(agent, twice)) - 777 == 45
    assert new(WORDS, max_tokens=5) == 0
    assert new(WORDS, thinking={"type": "disabled"}) > 100_000  # what it had left out may count now
    assert new("Other", WORDS) > 100_000
    history.learn(read_prompt(agent, {"messages": [{"role": "assistant", "content": WORDS * 2}]}), Tokens(prompt=5))
    history.learn(read_prompt(agent, body(WORDS * 2)), Tokens(prompt=5, estimated=True))
    assert new(WORDS * 2) > 200_000


HIDDEN: dict[str, tuple[str, Body, int]] = {
    "a recording": ("chat", {"type": "input_audio", "input_audio": {"data": PICTURE, "format": "wav"}}, 30_000),
    "a document": ("chat", {"type": "document_url", "document_url": f"data:application/pdf;base64,{PICTURE}"}, 30_000),
    "no list of pictures": ("gemini", {"functionResponse": {"parts": media("gemini", "image/png")}}, 8_000),
    "quotes beside a text": ("messages", {"type": "text", "text": "a", "citations": [WORDS]}, 106_000),
    "a mark in a call": ("messages", {"type": "tool_use", "input": {"a": 1, "cache_control": {"a": WORDS}}}, 106_000),
}
"""A part of a message, and the tokens that it may have: of sound and pages any number, of texts their bytes."""


@pytest.mark.parametrize("form", HIDDEN)
def test_nothing_hides_in_a_message(form: str) -> None:
    protocol, part, least = HIDDEN[form]
    found = read_prompt(agent_of(protocol), {ITEMS[protocol]: [message(protocol, part)]}).items[0].most
    assert least <= found < least + 500


def test_a_picture_in_the_instructions_counts() -> None:
    body = request("gemini", systemInstruction=message("gemini", media("gemini", "image/png")))
    assert 8_000 <= read_prompt(agent_of("gemini"), body).texts[0].most < 8_500
