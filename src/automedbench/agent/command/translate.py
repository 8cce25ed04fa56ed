"""Translation between what a program speaks and what the agent's endpoint speaks, by LiteLLM's adapters."""

from __future__ import annotations

from typing import Any

from automedbench.agent.command.protocols import SPOKEN
from automedbench.agent.command.protocols.common import ProgramRequest
from automedbench.agent.models.model import Reply
from automedbench.campaign.agents import Agent


def upstream(agent: Agent, request: ProgramRequest) -> dict[str, Any]:
    """The body that the agent's endpoint gets."""
    return SPOKEN[request.protocol].upstream(agent, request)


def answer(agent: Agent, request: ProgramRequest, reply: Reply) -> dict[str, Any]:
    """The whole answer as the program gets it."""
    return SPOKEN[request.protocol].answer(request, reply)
