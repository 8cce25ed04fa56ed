"""The campaign's configuration as typed models (``config/config.yaml``); ``campaign.py`` loads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from automedbench.base.cards import Name, TaskCard
from automedbench.base.code import PROMPTS as PROMPTS
from automedbench.base.code import RUBRICS as RUBRICS
from automedbench.base.keys import KeySource
from automedbench.base.records import EffectRule, Enforced, JudgeKind, Model, RunId, Tier
from automedbench.campaign.treatments import (
    FAULTS,
    Difference,
    LimitValues,
    Reliability,
    Treatment,
    check_limits,
    variant_name,
)

Network = Literal["sealed", "proxied", "open"]
DEFAULT = "default"
"""The preset that is ours."""
CLINICAL = frozenset({"chexbert", "radgraph"})
"""Resources that only torch can read."""


class Selection(Model):
    """Runs by name; an empty list matches everything."""

    agents: list[str] = Field(default_factory=list)
    tasks: list[str] = Field(default_factory=list)
    tiers: list[Tier] = Field(default_factory=list)
    repeats: list[int] = Field(default_factory=list)

    def matches(self, run: RunId) -> bool:
        pairs = ((self.agents, run.agent), (self.tasks, run.task), (self.tiers, run.tier), (self.repeats, run.repeat))
        return all(not named or value in named for named, value in pairs)


Agents = tuple[list[str], Difference]
"""Agents that get a variant, and what it differs in."""


class Matrix(Model):
    """agents × tasks × tiers × repeats, less ``exclude``, plus ``include``."""

    agents: list[str] = Field(min_length=1)
    tasks: list[str] = Field(min_length=1)
    tiers: tuple[Tier, ...] = Field(("lite", "standard"), min_length=1)
    repeats: int = Field(3, ge=1)
    include: list[RunId] = Field(default_factory=list, description="single runs outside the product")
    exclude: list[Selection] = Field(default_factory=list)

    def with_variants(self, variants: Mapping[str, Agents]) -> Matrix:
        """The matrix in which every agent is followed by its variants, on the same tasks, tiers and repeats."""

        def expand(agents: Iterable[str]) -> list[str]:
            return [name for agent in agents for name in (agent, *_list_variants(agent, variants))]

        return self.model_copy(
            update={
                "agents": expand(self.agents),
                "include": [run.model_copy(update={"agent": n}) for run in self.include for n in expand([run.agent])],
                "exclude": [rule.model_copy(update={"agents": expand(rule.agents)}) for rule in self.exclude],
            }
        )


def _list_variants(agent: str, variants: Mapping[str, Agents]) -> list[str]:
    return [variant_name(agent, name) for name, (agents, _) in variants.items() if agent in agents]


class DataPaths(Model):
    """Data folders. Public and private are two roots; private never lies below public or results."""

    raw: str
    public: str
    private: str
    manifests: str


class DataSetOverride(Model):
    """Settings of the user for a data set."""

    path: str = Field(description="folder with the raw data in its upstream layout")
    excerpt: bool = Field(False, description="it is a part of the data set: all of it is staged, however many cases")


class FetchConfig(Model):
    """Settings of downloads."""

    mirrors: dict[str, str] = Field(
        default_factory=dict, description="host → base URL that is asked in its place: a copy within the institute"
    )
    offline: bool = Field(False, description="download nothing; what is there already is used")
    workers: int = Field(4, ge=1, le=32, description="files of one data set downloaded at a time")


class HubToken(KeySource):
    """A token for gated models of the hub. The driver's proxy adds it; agent code never sees it."""

    models: list[Annotated[str, Field(pattern=r"^[\w.-]+/([\w.-]+|\*)$")]] = Field(
        min_length=1, description="repositories that it is for: owner/name, or owner/* for all of an owner's"
    )

    @model_validator(mode="after")
    def _one_place(self) -> HubToken:
        if bool(self.api_key_env) == bool(self.api_key_file):
            raise ValueError("a token needs one of 'api_key_env' and 'api_key_file'")
        return self

    @property
    def address(self) -> str:
        """The hub."""
        return "https://huggingface.co"


class EgressConfig(Model):
    """Allowlist of the network class ``proxied``; all else is refused and logged."""

    allow: list[str] = Field(
        default_factory=lambda: [
            *("github.com", "api.github.com", "codeload.github.com", "*.githubusercontent.com"),
            *("zenodo.org", "download.pytorch.org", "*.ngc.nvidia.com", "download.openmmlab.com"),
            *("arxiv.org", "export.arxiv.org", "eutils.ncbi.nlm.nih.gov", "pubmed.ncbi.nlm.nih.gov"),
            "api.semanticscholar.org",
        ],
        description="hosts, '*.' for all below; the package index of this machine's pip and the hub's models are added",
    )
    deny: list[str] = Field(
        default_factory=list, description="hosts or URL prefixes beyond the data sets' homes of all cards"
    )
    open_tls: bool = Field(
        True,
        description="read the URLs that go to GitHub, Zenodo and the hub, which serve models and data sets, with "
        "certificates of our own; false: their hosts are closed to tasks whose data set they serve",
    )
    upload_total_mb: int = Field(
        8, ge=1, description="MiB that a run may send up over all its connections (plus 1 % of what came down)"
    )
    hub: str | None = Field("https://huggingface.co", description="model hub behind the mirror; null: none")
    tokens: list[HubToken] = Field(default_factory=list, description="for gated models of the hub")
    cache: str | None = Field(
        None, description="folder of the cache behind hub mirror and package index, shared by all runs; null: none"
    )
    cache_gb: int = Field(500, ge=1, description="GB that the cache may hold; what was not used for longest goes first")
    offline: bool = Field(
        False, description="mirror and index answer from the cache alone; class 'sealed' then has them too"
    )
    models: list[Annotated[str, Field(pattern=r"^[\w.-]+(/[\w.-]+)?(@[\w./-]+)?$")]] = Field(
        default_factory=list,
        description="models that `prepare` fetches into the cache beside the lite checkpoints: name or name@revision",
    )
    packages: list[str] = Field(
        default_factory=list,
        description="lines of pip requirements, each resolved for the image's Python; `prepare` fetches them",
    )

    @property
    def cache_place(self) -> tuple[Path, int] | None:
        return (Path(self.cache), self.cache_gb * 10**9) if self.cache else None

    @model_validator(mode="after")
    def _needs_the_cache(self) -> EgressConfig:
        wanted = [name for name in ("offline", "models", "packages") if getattr(self, name)]
        if wanted and self.cache is None:
            raise ValueError(f"{wanted[0]}: needs the cache; set sandbox.egress.cache to a folder")
        return self


class SandboxConfig(Model):
    """Settings of the sandbox."""

    backend: Literal["apptainer", "local"] = "apptainer"
    network: Network = "proxied"
    egress: EgressConfig = EgressConfig()
    gpu: int = Field(0, ge=0, description="GPUs of a run: its own whole cards or slices (MIG); 0: none")
    gpu_model: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]+$")] | None = Field(
        None, description="Slurm: type of the GPU as the site names it; else: what the card's name must contain"
    )
    gpu_share: int = Field(1, ge=1, le=16, description="runs that have the same GPUs, each for one code call at a time")
    gpu_lease_s: float = Field(
        900, gt=0, description="seconds after which background work of a run gives shared GPUs back, at its next call"
    )
    decoy: bool = Field(True, description="bind a watched decoy at /data/private")
    wait: bool = Field(True, description="offer the tool 'wait' for background processes")
    max_warnings: int = Field(1, ge=0, description="sandbox warnings before the next one disqualifies")

    @property
    def from_cache(self) -> bool:
        """Sealed, with mirror and index that answer from the cache alone."""
        return self.network == "sealed" and self.egress.offline

    @property
    def isolation(self) -> str:
        """Isolation of a run, as in its record afterwards (``Enforced.isolation``)."""
        if self.backend == "local":
            return Enforced(backend="local", network="open").isolation
        from_cache = self.has_egress and self.egress.offline
        return Enforced(backend="apptainer", network=self.network, from_cache=from_cache).isolation

    @property
    def has_egress(self) -> bool:
        """True when a process outside answers agent code."""
        return self.network == "proxied" or self.from_cache


def _as_text(amount: Any) -> Any:
    """An amount of money as text, also where it was written as a number."""
    return str(amount) if isinstance(amount, int | float) and not isinstance(amount, bool) else amount


class BudgetConfig(Model):
    """Spending limits of a campaign; reservations stand in ``<results>/ledger/``, on every node the same."""

    max_cost_usd: Annotated[str, Field(pattern=r"^\d+(\.\d+)?$"), BeforeValidator(_as_text)] | None = Field(
        None, description="USD for all agents together; no request is sent that could exceed it"
    )
    expected_turns: int = Field(33, ge=1, description="for the forecast, until runs of the agent are finished")
    expected_prompt_tokens: int = Field(15_000, ge=0, description="per turn, for the forecast")
    expected_completion_tokens: int = Field(1_000, ge=0, description="per turn, for the forecast")


class ImageSource(Model):
    """Base of an image."""

    base: str | None = Field(
        None,
        description="Debian root folder, .sif file or docker reference; null: docker://debian:12-slim, and an image "
        "that is there already stays as it is",
    )


class AgentImages(ImageSource):
    """Images that the code of agents runs in."""

    image: Name = Field("research", description="of agents that name none: containers/<image>.def")


class Containers(Model):
    """Images and what they are built from."""

    folder: str = "images"
    agent: AgentImages = AgentImages()
    scorer: ImageSource = ImageSource()


class JudgeConfig(Model):
    """Judge of S1–S3."""

    kind: JudgeKind = Field("heuristic", description="heuristic: rules, without a model | llm: the models of 'panel'")
    panel: list[Name] = Field(default_factory=list, description="llm: names from judges_file")
    repeats: int = Field(1, ge=1, le=20, description="llm: how often each member of the panel judges a run")

    @model_validator(mode="after")
    def _panel(self) -> JudgeConfig:
        if self.kind == "llm" and not self.panel:
            raise ValueError("judge kind 'llm' needs 'panel': names from judges_file")
        if self.kind == "heuristic" and (self.panel or self.repeats > 1):
            raise ValueError("'panel' and 'repeats' are for judge kind 'llm'; add kind: llm, or leave them out")
        if len(set(self.panel)) != len(self.panel):
            raise ValueError("'panel' names a judge twice; use 'repeats'")
        return self


class CasesConfig(Model):
    """Choice of the cases that are staged."""

    draw: int | None = Field(
        None,
        ge=0,
        description="seed of a fresh draw: as many cases of the same kinds, none of which is published, in folders of "
        "its own; null: the published draw",
    )


class LeaderboardConfig(Model):
    """Settings of the leaderboard."""

    case_views: Literal["public", "all", "none"] = Field(
        "public", description="cases on run pages, with their answers: of public data sets, of all, of none"
    )
    cases_shown: int = Field(6, ge=1, le=50, description="cases of a run that are shown: bad, middling, good ones")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="of intervals and ties")
    resamples: int = Field(2000, ge=200, le=100_000, description="of intervals, ranks and the permutation test")

    def count_cases_shown(self, card: TaskCard) -> int:
        """Cases of a run that are shown with their answers; none where access to the data set forbids it."""
        allowed = self.case_views == "all" or (self.case_views == "public" and card.dataset.access == "public")
        return self.cases_shown if allowed else 0


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
    judges_file: str = "config/judges.yaml"
    cards: list[str] = Field(default_factory=lambda: ["config/tasks"], min_length=1)
    matrix: Matrix
    only: Selection = Selection()
    cases: CasesConfig = CasesConfig()
    data: DataPaths
    results: str = "results"
    scratch: str | None = Field(
        None, description="folder of each node for workspaces while agents work; null: in results, on every node"
    )
    share: Literal["private", "group", "all"] = Field(
        "private", description="who else may read data, results and logs; 'all' is for data sets with open access"
    )
    datasets: dict[Name, DataSetOverride] = Field(default_factory=dict)
    fetch: FetchConfig = FetchConfig()
    fixtures: bool = Field(
        False,
        description="rehearse with made-up data sets in upstream form, in folders of their own; scores mean nothing",
    )
    resources: dict[Name, str] = Field(
        default_factory=dict, description="files and folders that metrics need: checkpoints, word lists"
    )
    limits: LimitValues = Field(default_factory=dict, description="override the cards' limits")
    preset: Name = Field(
        DEFAULT,
        description="a named setting: default is ours; of others, config/presets/<name>.yaml says tasks, tiers, "
        "repeats, pooling, effects, cases and metrics, and data and results lie in folders of their own",
    )
    release: str | None = Field(
        None, description="folder of the public benchmark's release, which such a preset is staged from"
    )
    treatments: dict[Name, Treatment] = Field(
        default_factory=dict, description="variants of agents that differ in exactly one thing, paired with their base"
    )
    reliability: Reliability = Field(
        Reliability(), description="runs of agents in which something goes wrong on purpose, paired with their base"
    )
    budget: BudgetConfig = BudgetConfig()
    sandbox: SandboxConfig = SandboxConfig()
    containers: Containers = Containers()
    judge: JudgeConfig = JudgeConfig()
    answer_judge: AnswerJudgeConfig | None = None
    pooling: Literal["tasks", "runs"] = "tasks"
    effects: EffectRule = Field(
        "counted",
        description="of outputs that fit their own case no better than others: counted lowers the run's stages and "
        "gives it no medal, shown_only marks it",
    )
    leaderboard: LeaderboardConfig = LeaderboardConfig()

    @property
    def as_run(self) -> CampaignConfig:
        """Itself; fixtures, and what comes of a preset or a fresh draw, are kept apart from all else, in own folders.

        A fresh draw has the downloads in common with the published one, fixtures use no copy of real data.
        """
        apart = "-fixtures" if self.fixtures else ""
        drawn = apart if self.preset == DEFAULT else f"{apart}-{self.preset}"
        drawn = drawn if self.cases.draw is None else f"{drawn}-draw{self.cases.draw}"
        data = {name: path + (apart if name == "raw" else drawn) for name, path in self.data.model_dump().items()}
        own = {} if self.fixtures else self.datasets
        settings = {"data": DataPaths(**data), "results": self.results + drawn, "datasets": own}
        return self.model_copy(update=settings | {"matrix": self.matrix.with_variants(self.variants)})

    @property
    def variants(self) -> dict[str, Agents]:
        """Treatment or fault → the agents that get a variant with it, and what that differs in."""
        treatments = {name: (treatment.agents, treatment.difference) for name, treatment in self.treatments.items()}
        return treatments | self.reliability.differences

    def image(self, name: str) -> str | None:
        """File of one image, or None without containers."""
        return f"{self.containers.folder}/{name}.sif" if self.sandbox.backend == "apptainer" else None

    def flavour(self, own: str | None) -> str:
        """Name of the image of an agent whose entry names ``own``."""
        return own or self.containers.agent.image

    def image_base(self, image: str) -> str | None:
        return (self.containers.scorer if image == "scorer" else self.containers.agent).base

    def definition(self, image: str) -> str:
        """Definition file of an image; its pinned list is ``requirements``."""
        return f"containers/{image}.def"

    def requirements(self, image: str) -> str:
        """Pinned list that an image is built from: torch comes along only when its checkpoints are configured."""
        clinical = image == "scorer" and CLINICAL & set(self.resources)
        return f"envs/{'radiology' if clinical else image}.txt"

    @field_validator("treatments")
    @classmethod
    def _no_name_of_a_fault(cls, treatments: dict[str, Treatment]) -> dict[str, Treatment]:
        if reserved := sorted(treatments.keys() & set(FAULTS)):
            raise ValueError(f"'{reserved[0]}' is the name of a fault; give the treatment another name")
        return treatments

    @field_validator("limits")
    @classmethod
    def _known_limits(cls, limits: LimitValues) -> LimitValues:
        return check_limits(limits)
