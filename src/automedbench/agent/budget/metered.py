"""Purse of an attempt: money reserved in the ledger first, each request announced and booked, settled at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol, Self, cast

from automedbench.agent.budget.ledger import CampaignLedger
from automedbench.agent.budget.prices import cost_of, most_of_request, most_of_run
from automedbench.agent.models.chat import (
    ChatMessage,
    ChatModel,
    Reply,
    RequestFailed,
    ToolSpec,
    Usage,
    estimate_tokens,
)
from automedbench.base.cards import Limits
from automedbench.campaign.agents import Agent
from automedbench.campaign.config import BudgetConfig


class CompletingModel(ChatModel, Protocol):
    """A model that also takes request bodies as they are; see ``OpenAIModel.complete``."""

    def complete(self, body: dict[str, Any], messages: Sequence[ChatMessage], timeout_s: float) -> Reply:
        """The answer to a complete request body; ``messages`` are only there for the estimate of its tokens."""
        ...


@dataclass
class Purse:
    """What one process may spend on an attempt; without a ledger nothing is booked.

    ``token`` names the attempt and stays the same when it goes on after a crash.
    """

    agent: Agent
    run: str
    token: str
    ledger: CampaignLedger | None = None

    @classmethod
    def open(
        cls, results: Path | None, agent: Agent, limits: Limits, budget: BudgetConfig, run: str, token: str
    ) -> Self:
        """Set aside what the attempt may cost; agents without a model cost nothing. Raises as ``reserve`` does."""
        if results is None or not agent.paid:
            return cls(agent, run, token)
        allowed = None if budget.max_cost_usd is None else Decimal(budget.max_cost_usd)
        ledger = CampaignLedger(results / "ledger", allowed)
        ledger.reserve(run, most_of_run(agent, limits, budget).usd, token)
        return cls(agent, run, token, ledger)

    def metered(self, model: ChatModel) -> ChatModel:
        """The model with every request booked."""
        return model if self.ledger is None else MeteredModel(cast(CompletingModel, model), self.ledger, self)

    def settle(self) -> None:
        """Free what is left of the reservation; raises InfrastructureError when the ledger cannot be written."""
        if self.ledger is not None:
            self.ledger.settle(self.run, self.token)


class MeteredModel:
    """A model whose requests are booked: announced before they are sent, with their cost after."""

    def __init__(self, model: CompletingModel, ledger: CampaignLedger, purse: Purse) -> None:
        self._model, self._ledger, self._purse = model, ledger, purse

    def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], timeout_s: float) -> Reply:
        """See ``ChatModel.reply``; raises BudgetExhausted when the campaign's budget does not allow the request."""
        return self._booked(messages, lambda: self._model.reply(messages, tools, timeout_s))

    def complete(self, body: dict[str, Any], messages: Sequence[ChatMessage], timeout_s: float) -> Reply:
        """See ``CompletingModel.complete``."""
        return self._booked(messages, lambda: self._model.complete(body, messages, timeout_s))

    def _booked(self, messages: Sequence[ChatMessage], ask: Callable[[], Reply]) -> Reply:
        purse = self._purse
        most = most_of_request(purse.agent, estimate_tokens(messages))
        self._ledger.announce(purse.run, purse.token, most)
        try:
            reply = ask()
        except RequestFailed as failure:
            self._book(failure.spent)
            raise
        self._book(reply.spent)
        return reply

    def _book(self, spent: Usage) -> None:
        purse = self._purse
        self._ledger.spend(purse.run, purse.token, cost_of(spent, purse.agent.pricing), spent.total)
