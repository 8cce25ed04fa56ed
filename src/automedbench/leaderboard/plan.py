"""The plan: which runs a campaign asks for. Without it there is no N in n scored of N planned."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from automedbench.base.records import JudgeKind, Model, RunId
from automedbench.campaign.load import Campaign


class PlannedAgent(Model):
    """What the leaderboard says about an agent before it has a score."""

    provider: str
    model: str


class Plan(Model):
    """``results/plan.json``: the runs of a campaign in matrix order."""

    schema_: Literal["automedbench/plan/1"] = Field("automedbench/plan/1", alias="schema")
    agents: dict[str, PlannedAgent]
    runs: list[RunId]
    judge_kind: JudgeKind = Field("heuristic", description="only scores of this kind of judge stand in one table")

    @model_validator(mode="after")
    def _consistent(self) -> Plan:
        if len({run.path for run in self.runs}) != len(self.runs):
            raise ValueError("a run is planned twice")
        unknown = {run.agent for run in self.runs} - set(self.agents)
        if unknown:
            raise ValueError(f"runs of agents that are not listed: {', '.join(sorted(unknown))}")
        return self


def plan_of(campaign: Campaign) -> Plan:
    """The plan of a validated campaign; agents without a run are left out."""
    names = dict.fromkeys(run.agent for run in campaign.runs)
    agents = {name: campaign.agents[name] for name in names}
    return Plan(
        agents={name: PlannedAgent(provider=agent.provider, model=agent.model) for name, agent in agents.items()},
        runs=campaign.runs,
        judge_kind=campaign.config.judge.kind,
    )
