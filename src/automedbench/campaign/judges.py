"""Language models that judge: one entry each of the judges file, typed, validated, all problems at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from automedbench.base.cards import Name
from automedbench.base.files import digest_of
from automedbench.base.records import Model
from automedbench.base.yamlfile import load_yaml, suggestion, validate
from automedbench.campaign.agents import Pricing

_NO_BEHAVIOUR = {
    *("pricing", "approved_for", "request_timeout_s", "api_key_env", "api_key_file", "api_key_rotation"),
    *("gateway", "gateway_url"),
}


class JudgeModel(Model):
    """A model that judges stages S1–S3, and how it is asked."""

    model: str
    base_url: str = Field(description="any OpenAI-compatible endpoint")
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = Field(
        None, description="NAME of the environment variable that holds the key; its value stands in no file"
    )
    api_key_file: str | None = Field(
        None, description="instead of api_key_env: file outside of the repository, mode 0600, one key per line"
    )
    api_key_rotation: bool = Field(False, description="use the file's keys in turn, one per attempt of a request")
    gateway: Name | None = Field(None, description="name of a proxy in 'gateways'; default: HTTPS_PROXY")
    gateway_url: str | None = Field(None, exclude=True, description="filled in from 'gateways'; not to be set")
    structured: Literal["json_schema", "json_object", "text"] = Field(
        "json_schema", description="how the form of an answer is asked for; what an endpoint refuses, set lower"
    )
    images: bool = Field(False, description="the model takes images: it is shown plan.png")
    temperature: float | None = Field(0.0, ge=0, le=2, description="null: not sent, for models that refuse it")
    max_tokens: int = Field(4096, ge=256, description="per answer, reasoning included")
    context_tokens: int = Field(128_000, ge=4000, description="the window that evidence is selected for")
    extra_body: dict[str, Any] = Field(default_factory=dict, description="merged into every request")
    request_timeout_s: float = Field(600, gt=0)
    pricing: Pricing | None = None
    approved_for: list[Literal["credentialed"]] = Field(default_factory=list)

    @model_validator(mode="after")
    def _complete(self) -> JudgeModel:
        if bool(self.api_key_env) == bool(self.api_key_file):
            raise ValueError("a judge needs one of 'api_key_env' and 'api_key_file'")
        if self.api_key_rotation and not self.api_key_file:
            raise ValueError("'api_key_rotation' needs 'api_key_file'")
        if reserved := {"messages", "model", "stream", "response_format"} & set(self.extra_body):
            raise ValueError(f"'extra_body' must not hold '{min(reserved)}': it is set by the judge")
        return self

    def digest(self) -> str:
        """Identity of the judge: what changes its answers. Keys, prices and approvals don't."""
        return digest_of(self.model_dump(mode="json", exclude=_NO_BEHAVIOUR))


class JudgesFile(Model):
    """``config/judges.yaml``."""

    judges: dict[Name, JudgeModel]
    gateways: dict[Name, str] = Field(
        default_factory=dict, description="name → URL of an HTTP proxy that reaches the endpoints, without credentials"
    )

    @model_validator(mode="after")
    def _known_gateways(self) -> JudgesFile:
        for name, judge in self.judges.items():
            if judge.gateway is not None and judge.gateway not in self.gateways:
                known = suggestion(judge.gateway, list(self.gateways))
                raise ValueError(f"judges.{name}.gateway: unknown gateway '{judge.gateway}'{known}")
        return self


def load_judges(path: Path) -> dict[str, JudgeModel]:
    """Read the judges file; raises ConfigError with every problem."""
    found = validate(load_yaml(path), JudgesFile, str(path))
    return {
        name: judge.model_copy(update={"gateway_url": found.gateways[judge.gateway]}) if judge.gateway else judge
        for name, judge in found.judges.items()
    }
