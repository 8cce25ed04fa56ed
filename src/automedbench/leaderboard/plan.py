"""Plan: which runs a campaign asks for, and what it has scored of them so far."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.files import read_record
from automedbench.base.records import JudgeKind, Model, RunId, ScoreRecord
from automedbench.campaign.config import DEFAULT
from automedbench.campaign.load import Campaign
from automedbench.campaign.presets import load_preset
from automedbench.campaign.treatments import find_fault


class PlannedAgent(Model):
    """Facts about an agent that the leaderboard shows before it has a score."""

    provider: str
    model: str
    lab: str = Field("", description="of a board of several labs: who ran it")
    hardware: str = ""
    access: Literal["", "api", "local"] = ""
    weights: Literal["", "open", "closed"] = ""


class Plan(Model):
    """``results/plan.json``: the runs of a campaign in matrix order."""

    schema_: Literal["automedbench/plan/1"] = Field("automedbench/plan/1", alias="schema")
    agents: dict[str, PlannedAgent]
    runs: list[RunId]
    judge_kind: JudgeKind = Field("heuristic", description="only scores of this kind of judge stand in one table")
    preset: str = Field(DEFAULT, description="only scores under this one stand in one table")

    pinned_judge: str = Field("", description="model that judged the preset's published rows; empty: none is known")

    @model_validator(mode="after")
    def _consistent(self) -> Plan:
        if len({run.path for run in self.runs}) != len(self.runs):
            raise ValueError("a run is planned twice")
        unknown = {run.agent for run in self.runs} - set(self.agents)
        if unknown:
            raise ValueError(f"runs of agents that are not listed: {', '.join(sorted(unknown))}")
        return self

    def without_faults(self) -> Plan:
        """The plan of the board, which ranks, counts and compares no run under a fault."""
        agents = {name: agent for name, agent in self.agents.items() if not find_fault(name)}
        return self.model_copy(update={"agents": agents, "runs": [run for run in self.runs if run.agent in agents]})


def make_plan(campaign: Campaign) -> Plan:
    """The plan of a validated campaign; agents without a run are left out."""
    names = dict.fromkeys(run.agent for run in campaign.runs)
    agents = {name: campaign.agents[name] for name in names}
    return Plan(
        agents={name: PlannedAgent(provider=agent.provider, model=agent.model) for name, agent in agents.items()},
        runs=campaign.runs,
        judge_kind=campaign.config.judge.kind,
        preset=campaign.config.preset,
        pinned_judge=_pinned_judge(campaign.config.preset),
    )


def _pinned_judge(preset: str) -> str:
    return "" if preset == DEFAULT else load_preset(preset).judge or ""


class Gathered(NamedTuple):
    """Scores in plan order, and files of others that cannot be used (path → why)."""

    scores: list[ScoreRecord]
    unreadable: dict[str, str]


def gather_scores(results: Path, plan: Plan, *, partial: bool) -> Gathered:
    """Read ``score.json`` of every planned run.

    Raises InfrastructureError when one is missing, unreadable, or of another kind of judge or preset than the plan's,
    unless ``partial``: then it counts as missing. Two kinds of judges, and two presets, never share a table.
    """
    scores: list[ScoreRecord] = []
    missing: list[RunId] = []
    unreadable: dict[str, str] = {}
    for run in plan.runs:
        try:
            scores.append(_read_score(results, run, plan))
        except MissingDataError:
            missing.append(run)
        except InfrastructureError as error:
            if not partial:
                raise
            missing.append(run)
            # Without the place on this machine: the reason stands on the page.
            file = f"runs/{run.path}/score.json"
            unreadable[file] = str(error).splitlines()[0].replace(f"{results / file}", "score.json")
    if missing and not partial:
        raise _incomplete(missing, plan)
    return Gathered(scores, unreadable)


def _read_score(results: Path, run: RunId, plan: Plan) -> ScoreRecord:
    path = f"{results}/runs/{run.path}/score.json"
    score = read_record(path, ScoreRecord)
    if score.run != run:
        raise InfrastructureError(
            f"{path}: is the score of another run ({score.run.path}).\nDelete it and run score_run again."
        )
    if score.recipe.preset != plan.preset:
        raise InfrastructureError(
            f"{path}: made under the preset {score.recipe.preset}, while this campaign has {plan.preset}; "
            "the two are never mixed.\nKeep the results of each preset in a folder of its own."
        )
    if score.recipe.judge_kind != plan.judge_kind:
        raise InfrastructureError(
            f"{path}: judged by {score.recipe.judge} ({score.recipe.judge_kind}), while this campaign asks for "
            f"{plan.judge_kind}; the two are never mixed.\nRun score_judge and score_run again, or set judge.kind."
        )
    return score


def _incomplete(missing: list[RunId], plan: Plan) -> InfrastructureError:
    first = ", ".join(run.path for run in missing[:3])
    more = ", …" if len(missing) > 3 else ""
    return InfrastructureError(
        f"{len(missing)} of {len(plan.runs)} planned runs have no score: {first}{more}.\n"
        "Run `snakemake` to finish them, or `snakemake partial` (--partial) for a provisional leaderboard."
    )
