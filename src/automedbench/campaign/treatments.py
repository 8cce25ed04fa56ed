"""Variants of an agent that differ from it, their base, in exactly one thing: a treatment, or a fault.

The variant of ``agent`` by the treatment ``name`` is the agent ``agent+name``. No entry of the agents file has a name
with ``+``, so a name alone tells variants from bases.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from automedbench.base.cards import Limits
from automedbench.base.files import hash_folder, hash_json
from automedbench.base.records import Model
from automedbench.base.yamlfile import suggestion

JOINED_BY = "+"
KINDS = ("skills", "mcp", "text", "wording", "limits")
"""Kinds of differences: keys of a treatment, of which it has one."""
LimitValues = dict[str, float | int | None]
FaultName = Literal[
    "index-down",
    "cut-download",
    "odd-case",
    "damaged-case",
    "slow-endpoint",
    "wrong-hint",
    "conflicting-requirement",
    "cut-call",
    "stale-output",
]
"""What can go wrong in a run on purpose: ``agent.faults`` plants it, docs/treatments.md tells what each is."""
FAULTS: tuple[FaultName, ...] = get_args(FaultName)


def check_limits(limits: LimitValues) -> LimitValues:
    """The limits themselves; raises ValueError for an unknown name or a wrong value."""
    known = list(Limits.model_fields)
    for name in limits:
        if name not in known:
            raise ValueError(f"unknown limit '{name}'{suggestion(name, known)}")
    Limits.model_validate(limits)
    return limits


class Difference(Model):
    """What a variant has that its base has not."""

    skills: str | None = Field(
        None,
        description="folder that is mounted read-only at /skills, and where its recipe says that a program looks for "
        "skills",
    )
    mcp: str | None = Field(
        None,
        description="folder with mcp.json and the code of its MCP servers, mounted read-only at /skills; for programs "
        "whose recipe says how they take it",
    )
    text: Annotated[str, Field(min_length=1)] | None = Field(None, description="added at the end of the brief")
    wording: Literal[2] | None = Field(
        None, description="words of the brief: 2 states the same facts in other words (config/prompts/wording2)"
    )
    limits: LimitValues | None = Field(None, description="one limit, as below 'limits'")
    fault: SkipJsonSchema[FaultName | None] = Field(None, description="what goes wrong; belongs below 'reliability'")

    @field_validator("limits")
    @classmethod
    def _one_known_limit(cls, limits: LimitValues | None) -> LimitValues | None:
        if limits is not None and len(limits) != 1:
            raise ValueError(f"a treatment changes exactly one limit, here are {len(limits)}")
        return limits if limits is None else check_limits(limits)

    @property
    def kinds(self) -> list[str]:
        return [kind for kind in KINDS if getattr(self, kind) is not None]

    @property
    def folder(self) -> str | None:
        """Folder that is mounted at /skills."""
        return self.skills or self.mcp

    def digest(self) -> str:
        """Identity of the difference; of a folder its content."""
        if self.folder is not None:
            return hash_json({self.kinds[0]: hash_folder(self.folder)})
        return hash_json(self.model_dump(mode="json", exclude_none=True))


NO_DIFFERENCE = Difference()


class Treatment(Difference):
    """A difference, and the agents that get a variant with it."""

    agents: list[str] = Field(min_length=1, description="names from agents_file: each gets the variant agent+name")

    @model_validator(mode="after")
    def _one_difference(self) -> Self:
        if self.fault is not None:
            raise ValueError(f"a fault is no treatment; set reliability: {{agents: [...], faults: [{self.fault}]}}")
        if len(self.kinds) != 1:
            found = " and ".join(map(repr, self.kinds)) or "none"
            raise ValueError(f"a treatment differs in exactly one of {', '.join(KINDS)}; here: {found}")
        return self

    @field_validator("agents")
    @classmethod
    def _of_bases(cls, agents: list[str]) -> list[str]:
        return refuse_variants(agents)

    @property
    def difference(self) -> Difference:
        return Difference.model_validate(self.model_dump(include=set(KINDS)))


class Reliability(Model):
    """Agents that are run once more under each fault, beside their runs without any."""

    agents: list[str] = Field(
        default_factory=list, description="names from agents_file: each gets the variant agent+fault; none: no faults"
    )
    faults: tuple[FaultName, ...] = Field(FAULTS, min_length=1, description="one variant of each agent for each")

    @field_validator("agents")
    @classmethod
    def _of_bases(cls, agents: list[str]) -> list[str]:
        return refuse_variants(agents)

    @property
    def differences(self) -> dict[str, tuple[list[str], Difference]]:
        """Fault → the agents that get a variant with it, and what that differs in."""
        return {name: (self.agents, Difference(fault=name)) for name in self.faults if self.agents}


def refuse_variants(agents: list[str]) -> list[str]:
    """The agents themselves; raises ValueError when one is a variant already."""
    if variants := [name for name in agents if find_base(name)]:
        raise ValueError(f"'{variants[0]}' is itself a variant: a variant of a variant would differ twice")
    return agents


def variant_name(base: str, treatment: str) -> str:
    """Name of the agent that is ``base`` under a treatment."""
    return f"{base}{JOINED_BY}{treatment}"


def find_base(agent: str) -> str:
    """Name of a variant's base; empty for an agent that is none."""
    base, joined, _ = agent.partition(JOINED_BY)
    return base if joined else ""


def find_fault(agent: str) -> str:
    """The fault under which a variant runs; empty for other agents. No treatment has such a name."""
    _, _, name = agent.partition(JOINED_BY)
    return name if name in FAULTS else ""
