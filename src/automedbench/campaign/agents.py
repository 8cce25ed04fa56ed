"""Agents under evaluation, and models that judge: entries of two files, typed, validated, all problems at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from automedbench.base.cards import Name, TaskCard
from automedbench.base.endpoint.address import ProtocolName
from automedbench.base.endpoint.client import EndpointTarget
from automedbench.base.endpoint.rate_headers import RateLimits
from automedbench.base.endpoint.usage import asked_tokens
from automedbench.base.files import hash_folder, hash_json, sha256_file
from automedbench.base.keys import EndpointSource, shown_place
from automedbench.base.records import Model
from automedbench.base.yamlfile import load_yaml, validate
from automedbench.campaign.config import CampaignConfig
from automedbench.campaign.prices import Pricing
from automedbench.campaign.recipes import Variables, load_recipe, mask_secrets, refuse_secrets
from automedbench.campaign.treatments import NO_DIFFERENCE, Difference, variant_name

REACHED = {
    *("pricing", "approved_for", "request_timeout_s", "api_key_env", "api_key_file", "api_key_rotation"),
    *("rate", "endpoint_file"),
}
"""Settings of access and prices, which are no part of a model's identity."""
_OF_THE_SITE = {"api_key_env", "api_key_file", "api_key_rotation", "endpoint_file"}
_NO_BEHAVIOUR = REACHED | {
    *("script", "trusted", "command_folder", "transcript", "image", "layer", "env", "stream", "prompt_cache"),
    "treatment",
}
_SET_HERE = frozenset({"messages", "input", "contents", "model", "stream", "tools"})
_WITHOUT_MODEL = ("scripted", "baseline")
_NEEDED = {
    "scripted": ("script",),
    "command": ("command", "layer"),
    "baseline": ("baseline",),
    "replay": ("transcript",),
}
_SCRIPT_NAMES = frozenset(
    ("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf")
)
REPLY_TOKENS = 8192
"""Limit of a reply in our own loop where the entry has none."""
BASELINES = "config/baselines/{track}/{baseline}.yaml"
"""Where a baseline's turns are, unless its entry names another ``script``."""


class Reasoning(Model):
    """Reasoning settings of a model."""

    mode: Literal["none", "field", "effort", "budget"] = Field(
        "none",
        description="field: reason, as much as the provider likes | effort: as 'effort' says | budget: 'budget_tokens' "
        "at most",
    )
    effort: Literal["minimal", "low", "medium", "high", "xhigh", "max"] = Field(
        "high", description="providers differ in which of these they take"
    )
    budget_tokens: int | None = Field(None, ge=1, description="tokens of reasoning per reply, part of max_tokens")

    @model_validator(mode="after")
    def _budget(self) -> Self:
        if (self.mode == "budget") != (self.budget_tokens is not None):
            raise ValueError("'budget_tokens' and 'mode: budget' require each other")
        return self


class EndpointSettings(EndpointSource):
    """Settings of an endpoint: key, limits, and what goes with every request."""

    api_key_rotation: bool = Field(False, description="use the file's keys in turn, one per attempt of a request")
    extra_body: dict[str, Any] = Field(default_factory=dict, description="merged into every request")
    request_timeout_s: float = Field(600, gt=0)
    rate: RateLimits | None = Field(
        None, description="limits of this model and key, where the provider does not tell them"
    )
    pricing: Pricing | None = None
    approved_for: list[Literal["credentialed"]] = Field(default_factory=list)

    @model_validator(mode="after")
    def _require_key_file(self) -> Self:
        if self.api_key_rotation and not self.api_key_file:
            raise ValueError("'api_key_rotation' needs 'api_key_file'")
        return self

    def target(self, model: str, keys: Sequence[str], protocol: ProtocolName = "chat") -> EndpointTarget:
        return EndpointTarget(
            base_url=self.address,
            model=model,
            keys=tuple(keys),
            key_name=self.api_key_env or self.api_key_file or "",
            rotate=self.api_key_rotation,
            timeout_s=self.request_timeout_s,
            rate=self.rate,
            protocol=protocol,
        )

    @property
    def settings(self) -> dict[str, Any]:
        """The entry in full, for records that others read: without keys, the way to them, and places of this site."""
        found: dict[str, Any] = mask_secrets(self.model_dump(mode="json", exclude=_OF_THE_SITE, exclude_none=True))
        return found | ({"base_url": shown_place(self.base_url)} if self.base_url else {})


class Agent(EndpointSettings):
    """A model and its settings under evaluation."""

    provider: Literal["openai", "command", "scripted", "baseline", "replay"] = Field(
        description="openai: our loop and an endpoint | command: a command-line agent inside the container, its model "
        "behind the driver's bridge | scripted: turns from a file | baseline: a reference without a model | replay: "
        "the code of a recorded run, executed again"
    )
    model: str = ""
    protocol: ProtocolName = Field(
        "chat",
        description="what the endpoint speaks: OpenAI chat completions | OpenAI Responses | Anthropic Messages | "
        "Gemini generateContent",
    )
    image: Name | None = Field(None, description="its code runs in: containers/<image>.def; null: containers.agent")
    layer: Name | None = Field(
        None, description="command: recipe of the program, config/agents/<layer>.yaml, built into a layer of its own"
    )
    command: list[str] | None = Field(
        None,
        description="command: words of the program, which gets the brief as its input; {brief} is a file with it, "
        "{model} the model; default: the recipe's",
    )
    command_folder: str | None = Field(
        None, description="command: folder of a small program of your own, copied for each run; {folder} in command"
    )
    env: Variables = Field(default_factory=dict, description="command: variables of the program, beside the recipe's")
    baseline: Literal["constant", "empty", "classical"] | None = Field(None, description="baseline: which one")
    transcript: str | None = Field(
        None,
        description="replay: folder of the run (with its log) that is executed again; {track} and {task} filled in",
    )
    script: str | None = Field(
        None, description="scripted: YAML list of assistant turns; {track} and {task} in the path are filled in"
    )
    trusted: bool = Field(
        False, description="scripted, baseline, replay: may run in the local sandbox, which isolates nothing"
    )
    temperature: float | None = Field(0.0, ge=0, le=2, description="null: not sent")
    max_tokens: int | None = Field(
        None, ge=1, description=f"per reply; null: {REPLY_TOKENS}, of a command agent what its program asks for"
    )
    context_tokens: int = Field(200_000, ge=1000)
    reasoning: Reasoning = Reasoning()
    echo_reasoning: bool = Field(True, description="send a model's reasoning back with the conversation")
    prompt_cache: Literal["auto", "off"] = Field(
        "auto", description="auto: mark what a provider shall cache, where it caches nothing without marks"
    )
    stream: bool = Field(False, description="ask for replies as streams, for endpoints and proxies that need it")
    native_tools: bool = Field(True, description="false: tools are described in the brief, calls read from the text")
    treatment: SkipJsonSchema[Difference | None] = Field(None, description="of a variant; no key of the agents file")

    @model_validator(mode="before")
    @classmethod
    def _limit_replies(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("provider") != "command" and data.get("max_tokens") is None:
            return data | {"max_tokens": REPLY_TOKENS}
        return data

    @model_validator(mode="after")
    def _complete(self) -> Agent:
        needed = _NEEDED.get(self.provider, ())
        if needed and not any(getattr(self, key) for key in needed):
            raise ValueError(f"a {self.provider} agent needs {' or '.join(map(repr, needed))}")
        if self.paid and not (self.model and self.address and (self.api_key_env or self.api_key_file)):
            raise ValueError(
                f"a{'n' if self.provider == 'openai' else ''} {self.provider} agent needs 'model', 'base_url' (or "
                "'endpoint_file') and 'api_key_env' (or 'api_key_file')"
            )
        if self.api_key_env and self.api_key_file:
            raise ValueError("'api_key_env' and 'api_key_file' exclude each other")
        if reserved := _SET_HERE & set(self.extra_body):
            raise ValueError(f"'extra_body' must not contain '{min(reserved)}': it is set by the harness")
        reasoning, budget = self.reasoning, self.reasoning.budget_tokens
        if reasoning.mode == "budget" and self.protocol == "responses":
            raise ValueError("'responses' has no reasoning budget: use 'mode: effort'")
        if budget is not None and self.max_tokens is not None and budget >= self.max_tokens:
            raise ValueError("'reasoning.budget_tokens' must be below 'max_tokens', which it is part of")
        refuse_secrets(self.env)
        if self.trusted and self.paid:
            raise ValueError("an agent with a model can't be trusted: a model's code needs a real sandbox")
        return self

    @property
    def difference(self) -> Difference:
        """What a variant has that its base has not; of a base nothing."""
        return self.treatment or NO_DIFFERENCE

    @property
    def finds_skills(self) -> bool:
        """Check whether its program looks for skills by itself, so that the brief need not name them."""
        return self.layer is not None and load_recipe(self.layer).skills is not None

    @property
    def takes_mcp(self) -> bool:
        """Check whether its recipe says how its program is given MCP servers."""
        return self.layer is not None and bool(load_recipe(self.layer).mcp)

    @property
    def paid(self) -> bool:
        """Check whether it sends requests to a model endpoint."""
        return self.provider in ("openai", "command")

    @property
    def reply_tokens(self) -> int:
        """The most tokens that any of its requests asks for; the model's window where nothing limits them."""
        limits = (self.max_tokens, asked_tokens(self.extra_body))
        return max((limit for limit in limits if limit is not None), default=self.context_tokens)

    @property
    def origin(self) -> str:
        """Provider that the code comes from: of a replay that of the recorded run, ``unknown`` where it names none."""
        return self.provider if self.provider != "replay" else read_code_provider(Path(self.transcript or ""))

    @property
    def needs_isolation(self) -> str:
        """Reason why its code may not run in the local sandbox; empty where it may."""
        if not self.trusted:
            return "is not trusted"
        return "" if self.origin in _WITHOUT_MODEL else f"replays code of the provider '{self.origin}'"

    def for_task(self, card: TaskCard) -> Agent:
        """The agent with the script or the transcript that it follows on this task."""
        script = BASELINES.replace("{baseline}", self.baseline) if self.baseline and not self.script else self.script
        files = {"script": script, "transcript": self.transcript}
        named = {
            key: path.replace("{track}", card.track).replace("{task}", card.id) for key, path in files.items() if path
        }
        return self.model_copy(update=named) if named else self

    def digest(self) -> str:
        """Identity of the agent: what changes its behaviour. Prices and approvals don't."""
        settings = self.model_dump(mode="json", exclude=_NO_BEHAVIOUR)
        script = sha256_file(Path(self.script)) if self.script and Path(self.script).is_file() else None
        files = [hash_folder(self.command_folder), hash_folder(f"{self.transcript}/log" if self.transcript else None)]
        program = [load_recipe(self.layer).digest(self.layer)] if self.layer else []
        own = hash_json([settings, script, *files, *program, *([self.env] if self.env else [])])
        return own if self.treatment is None else hash_json([own, self.treatment.digest()])

    def program_digest(self) -> str:
        """Identity of a command agent's program alone, with any model: protocol, command, variables, files."""
        recipe = load_recipe(self.layer).digest(self.layer) if self.layer else None
        return hash_json([self.protocol, self.command, self.env, recipe, hash_folder(self.command_folder)])


def read_code_provider(run: Path) -> str:
    """Provider of the code that a finished run executed; a replay names its origin, else it is ``unknown``."""
    try:
        record = json.loads((run / "run.json").read_bytes())
        provider = record["origin"] if record["provider"] == "replay" else record["provider"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "unknown"
    return provider if isinstance(provider, str) and provider != "replay" else "unknown"


class AgentsFile(Model):
    """``config/agents.yaml``."""

    agents: dict[Name, Agent]

    @model_validator(mode="after")
    def _no_name_of_a_script(self) -> AgentsFile:
        if reserved := sorted(_SCRIPT_NAMES & set(self.agents)):
            raise ValueError(f"agents.{reserved[0]}: is reserved: the name has a meaning in the page's script")
        if treated := [name for name, agent in self.agents.items() if agent.treatment]:
            raise ValueError(f"agents.{treated[0]}.treatment: belongs in the campaign's configuration, 'treatments'")
        return self


def load_agents(path: Path) -> dict[str, Agent]:
    """Read the agents file; raises ConfigError with every problem."""
    return validate(load_yaml(path), AgentsFile, str(path)).agents


def load_campaign_agents(settings: CampaignConfig) -> dict[str, Agent]:
    """The agents of a campaign: those of its file, and their variants; raises ConfigError with every problem."""
    agents = load_agents(Path(settings.agents_file))
    return agents | {
        variant_name(base, name): agents[base].model_copy(update={"treatment": difference})
        for name, (bases, difference) in settings.variants.items()
        for base in bases
        if base in agents
    }


class JudgeModel(EndpointSettings):
    """A model that judges stages S1–S3, with the settings of its requests."""

    model: str
    structured: Literal["json_schema", "json_object", "text"] = Field(
        "json_schema", description="how the form of an answer is asked for; what an endpoint refuses, set lower"
    )
    images: bool = Field(False, description="the model takes images: it is shown plan.png")
    temperature: float | None = Field(0.0, ge=0, le=2, description="null: not sent, for models that refuse it")
    max_tokens: int = Field(4096, ge=256, description="per answer, reasoning included")
    context_tokens: int = Field(128_000, ge=4000, description="the window that evidence is selected for")

    @model_validator(mode="after")
    def _complete(self) -> JudgeModel:
        if not self.address:
            raise ValueError("a judge needs one of 'base_url' and 'endpoint_file'")
        if bool(self.api_key_env) == bool(self.api_key_file):
            raise ValueError("a judge needs one of 'api_key_env' and 'api_key_file'")
        if reserved := {"messages", "model", "stream", "response_format"} & set(self.extra_body):
            raise ValueError(f"'extra_body' must not contain '{min(reserved)}': it is set by the judge")
        return self

    def digest(self) -> str:
        """Identity of the judge: what changes its answers. Keys, prices and approvals don't."""
        return hash_json(self.model_dump(mode="json", exclude=REACHED))


class JudgesFile(Model):
    """``config/judges.yaml``."""

    judges: dict[Name, JudgeModel]


def load_judges(path: Path) -> dict[str, JudgeModel]:
    """Read the judges file; raises ConfigError with every problem."""
    return validate(load_yaml(path), JudgesFile, str(path)).judges
