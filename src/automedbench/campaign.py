"""The campaign's configuration: typed, validated, all problems at once.

A *campaign* is the matrix agents × tasks × tiers × repeats with its paths, limits and sandbox (``config/config.yaml``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, field_validator

from automedbench.agents import Agent, load_agents
from automedbench.cards import Limits, Name, TaskCard, find_cards, load_card
from automedbench.errors import ConfigError
from automedbench.records import Model, RunId, Tier
from automedbench.yamlfile import suggestion, validate

Network = Literal["sealed", "proxied", "open"]
LoadedT = TypeVar("LoadedT")
CONFIG = "config"
"""Stands for the merged configuration in messages; ``configfiles.name_files`` says which file it was."""


class Selection(Model):
    """Runs by name; an empty list matches everything."""

    agents: list[str] = Field(default_factory=list)
    tasks: list[str] = Field(default_factory=list)
    tiers: list[Tier] = Field(default_factory=list)
    repeats: list[int] = Field(default_factory=list)

    def matches(self, run: RunId) -> bool:
        """True when the run is selected."""
        return (
            (not self.agents or run.agent in self.agents)
            and (not self.tasks or run.task in self.tasks)
            and (not self.tiers or run.tier in self.tiers)
            and (not self.repeats or run.repeat in self.repeats)
        )


class Matrix(Model):
    """agents × tasks × tiers × repeats, less ``exclude``, plus ``include``."""

    agents: list[str] = Field(min_length=1)
    tasks: list[str] = Field(min_length=1)
    tiers: tuple[Tier, ...] = Field(("lite", "standard"), min_length=1)
    repeats: int = Field(3, ge=1)
    include: list[RunId] = Field(default_factory=list, description="single runs outside the product")
    exclude: list[Selection] = Field(default_factory=list)


class DataPaths(Model):
    """Where data lives. Public and private are two roots; private never lies below public or results."""

    raw: str
    public: str
    private: str
    manifests: str


class DataSetOverride(Model):
    """What the user says about a data set."""

    path: str = Field(description="folder with the raw data in its upstream layout")
    excerpt: bool = Field(False, description="it is a part of the data set: all of it is staged, however many cases")


class EgressConfig(Model):
    """What agent code may reach in the network class ``proxied``; all else is refused and noted."""

    allow: list[str] = Field(
        default_factory=lambda: [
            "github.com",
            "*.githubusercontent.com",
            "download.pytorch.org",
            "eutils.ncbi.nlm.nih.gov",
        ],
        description="hosts, '*.' for all below; the package index of this machine's pip and the hub's models are added",
    )
    deny: list[str] = Field(
        default_factory=list, description="hosts or URL prefixes beyond the data sets' homes of all cards"
    )
    hub: str | None = Field("https://huggingface.co", description="model hub behind the mirror; null: none")


class SandboxConfig(Model):
    """How agent code is isolated."""

    backend: Literal["apptainer", "local"] = "apptainer"
    network: Network = "proxied"
    egress: EgressConfig = EgressConfig()
    gpu: bool = False
    decoy: bool = Field(True, description="bind a watched decoy at /data/private")
    max_warnings: int = Field(1, ge=0, description="sandbox warnings before the next one disqualifies")


class BudgetConfig(Model):
    """What a whole campaign may cost; reservations stand in ``<results>/ledger/``, on every node the same."""

    max_cost_usd: Annotated[str, Field(pattern=r"^\d+(\.\d+)?$")] | None = Field(
        None, description="USD for all agents together; a run that could exceed it does not start"
    )
    expected_turns: int = Field(33, ge=1, description="for the forecast, until runs of the agent are finished")
    expected_prompt_tokens: int = Field(15_000, ge=0, description="per turn, for the forecast")
    expected_completion_tokens: int = Field(1_000, ge=0, description="per turn, for the forecast")


class Containers(Model):
    """Images and what they are built from."""

    folder: str = "images"
    base: str = Field("docker://debian:12-slim", description="Debian root folder, .sif file or docker reference")


class JudgeConfig(Model):
    """Who judges S1–S3."""

    kind: Literal["heuristic"] = "heuristic"


class AnswerJudgeConfig(Model):
    """The model that judges open answers of tasks whose card says ``scoring: judge``."""

    model: str
    base_url: str = Field(description="any OpenAI-compatible endpoint")
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = Field(
        description="NAME of the environment variable that holds the key; its value stands in no file"
    )
    send_temperature: bool = Field(True, description="false for models that refuse one; else 0 is sent")
    json_mode: bool = Field(True, description="ask for response_format json_object")


class CampaignConfig(Model):
    """``config/config.yaml``, after Snakemake merged command-line overrides into it."""

    agents_file: str = "config/agents.yaml"
    cards: list[str] = Field(default_factory=lambda: ["config/tasks"], min_length=1)
    matrix: Matrix
    only: Selection = Selection()
    data: DataPaths
    results: str = "results"
    datasets: dict[Name, DataSetOverride] = Field(default_factory=dict)
    resources: dict[Name, str] = Field(
        default_factory=dict, description="files and folders that metrics need: checkpoints, word lists"
    )
    limits: dict[str, float | int | None] = Field(default_factory=dict, description="override the cards' limits")
    budget: BudgetConfig = BudgetConfig()
    sandbox: SandboxConfig = SandboxConfig()
    containers: Containers = Containers()
    judge: JudgeConfig = JudgeConfig()
    answer_judge: AnswerJudgeConfig | None = None
    pooling: Literal["tasks", "runs"] = "tasks"

    @field_validator("limits")
    @classmethod
    def _known_limits(cls, limits: dict[str, float | int | None]) -> dict[str, float | int | None]:
        known = list(Limits.model_fields)
        for name in limits:
            if name not in known:
                raise ValueError(f"unknown limit '{name}'{suggestion(name, known)}")
        Limits.model_validate(limits)
        return limits


class Campaign:
    """A validated configuration with its cards, agents and the runs it asks for."""

    def __init__(
        self,
        config: CampaignConfig,
        cards: dict[str, TaskCard],
        card_paths: dict[str, str],
        agents: dict[str, Agent],
        runs: list[RunId],
    ) -> None:
        self.config = config
        self.cards = cards
        self.card_paths = card_paths
        self.agents = agents
        self.runs = runs
        self.digests = {
            (agent, task): agents[agent].for_task(cards[task]).digest()
            for agent, task in dict.fromkeys((run.agent, run.task) for run in runs)
        }

    @property
    def tasks(self) -> list[str]:
        """Tasks with at least one run, in matrix order."""
        return list(dict.fromkeys(run.task for run in self.runs))

    @property
    def datasets(self) -> list[str]:
        """Data sets that these tasks need."""
        return list(dict.fromkeys(self.cards[task].dataset.name for task in self.tasks))


def load_campaign(raw: dict[str, Any], source: str = CONFIG) -> Campaign:
    """Validate a whole campaign; raises one ConfigError that lists every problem of config, agents and cards."""
    problems: list[str] = []
    config = _collect(problems, lambda: validate(raw, CampaignConfig, source))
    agents_file, folders = (config.agents_file, config.cards) if config else _places(raw)
    agents = _collect(problems, lambda: load_agents(Path(agents_file)))
    cards, paths, broken = _load_cards(problems, folders)
    if agents is not None:
        problems += _unknown_names(raw, "agent", list(agents), source)
    problems += _unknown_names(raw, "task", [*cards, *broken], source)
    if config is None:
        raise ConfigError(problems)
    problems += _misplaced_data(config, source)
    if not problems:
        runs = expand_matrix(config.matrix, config.only)
        problems += _refused_runs(runs, config, agents or {}, cards, source)
        if not runs:
            problems.append(f"{source}: only: no run is left of the matrix; check 'only' and 'matrix.exclude'")
    if problems:
        raise ConfigError(problems)
    return Campaign(config, cards, paths, agents or {}, runs)


def _places(raw: Any) -> tuple[str, list[str]]:
    """Agents file and card folders of a configuration that is wrong elsewhere, so that they are checked as well."""
    agents_file, folders = _part(raw, "agents_file"), _strings(_part(raw, "cards"))
    return (
        agents_file if isinstance(agents_file, str) else CampaignConfig.model_fields["agents_file"].default,
        folders or ["config/tasks"],
    )


def _load_cards(problems: list[str], folders: list[str]) -> tuple[dict[str, TaskCard], dict[str, str], set[str]]:
    """Cards by id, their paths, and the file names of those that could not be read."""
    cards: dict[str, TaskCard] = {}
    paths: dict[str, str] = {}
    broken: set[str] = set()
    problems += [f"{folder}: card folder does not exist" for folder in folders if not Path(folder).is_dir()]
    for path in find_cards(folders):
        card = _collect(problems, functools.partial(load_card, path))
        if card is None:
            broken.add(path.stem)
            continue
        if card.id in cards:
            problems.append(f"{path}: id: '{card.id}' is also the id of {paths[card.id]}")
        cards[card.id], paths[card.id] = card, str(path)
    return cards, paths, broken


def expand_matrix(matrix: Matrix, only: Selection) -> list[RunId]:
    """The runs of a matrix in its order, each once."""
    product = [
        RunId.model_construct(agent=agent, task=task, tier=tier, repeat=repeat)
        for agent in matrix.agents
        for task in matrix.tasks
        for tier in matrix.tiers
        for repeat in range(1, matrix.repeats + 1)
    ]
    kept = [run for run in product if not any(rule.matches(run) for rule in matrix.exclude)]
    unique = {run.path: run for run in [*kept, *matrix.include]}
    return [run for run in unique.values() if only.matches(run)]


def _collect(problems: list[str], load: Callable[[], LoadedT]) -> LoadedT | None:
    try:
        return load()
    except ConfigError as error:
        problems.extend(error.problems)
        return None


def _unknown_names(raw: Any, kind: Literal["agent", "task"], known: list[str], source: str) -> list[str]:
    """Agents or tasks that are asked for but not defined."""
    return [
        f"{source}: {key}: unknown {kind} '{name}'{suggestion(name, known)}"
        for key, name in dict.fromkeys(_asked_names(raw, kind))
        if name not in known
    ]


def _asked_names(raw: Any, kind: str) -> Iterator[tuple[str, str]]:
    """Dotted key and name of every agent or task in a configuration, which may be wrong elsewhere."""
    matrix, only = _part(raw, "matrix"), _part(raw, "only")
    places = [("matrix", matrix), ("only", only)]
    yield from ((f"{key}.{kind}s", name) for key, part in places for name in _strings(_part(part, f"{kind}s")))
    yield from (("matrix.include", name) for run in _items(matrix, "include") for name in _strings([_part(run, kind)]))
    excluded = (_part(rule, f"{kind}s") for rule in _items(matrix, "exclude"))
    yield from (("matrix.exclude", name) for names in excluded for name in _strings(names))


def _part(data: Any, key: str) -> Any:
    return data.get(key) if isinstance(data, dict) else None


def _items(data: Any, key: str) -> list[Any]:
    items = _part(data, key)
    return items if isinstance(items, list) else []


def _strings(items: Any) -> list[str]:
    return [item for item in items if isinstance(item, str)] if isinstance(items, list) else []


def _misplaced_data(config: CampaignConfig, source: str) -> list[str]:
    """Private data must not lie where an agent could see it."""
    private = Path(config.data.private).resolve()
    problems = []
    for key, value in (("data.public", config.data.public), ("results", config.results)):
        place = Path(value).resolve()
        if private == place or place in private.parents:
            problems.append(f"{source}: data.private: lies below {key} ('{value}'); agents could read the answers")
        elif private in place.parents:
            problems.append(f"{source}: {key}: lies below data.private ('{config.data.private}')")
    return problems


def _refused_runs(
    runs: list[RunId],
    config: CampaignConfig,
    agents: dict[str, Agent],
    cards: dict[str, TaskCard],
    source: str,
) -> list[str]:
    """Combinations that must never start: untrusted code without isolation, credentialed data sent away."""
    problems = []
    for name in dict.fromkeys(run.agent for run in runs):
        if config.sandbox.backend == "local" and not agents[name].trusted:
            problems.append(
                f"{source}: sandbox.backend: 'local' isolates nothing and agent '{name}' is not trusted; "
                "use 'apptainer'"
            )
    for name in dict.fromkeys(run.agent for run in runs):
        if config.budget.max_cost_usd is not None and agents[name].paid and agents[name].pricing is None:
            problems.append(
                f"{config.agents_file}: agents.{name}.pricing: is missing, so budget.max_cost_usd cannot be kept"
            )
    for agent, task in dict.fromkeys((run.agent, run.task) for run in runs):
        credentialed = cards[task].dataset.access == "credentialed"
        if credentialed and "credentialed" not in agents[agent].approved_for:
            problems.append(
                f"{config.agents_file}: agents.{agent}.approved_for: '{task}' uses credentialed data and transcripts "
                "leave the machine; add 'credentialed' only if your agreement allows it"
            )
    tiers = {task: set(cards[task].tiers) for task in dict.fromkeys(run.task for run in runs)}
    for task, tier in dict.fromkeys((run.task, run.tier) for run in runs):
        if tier not in tiers[task]:
            problems.append(f"{source}: matrix.tiers: task '{task}' has no tier '{tier}'")
    return problems
