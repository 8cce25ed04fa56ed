"""Checkpoints of the lite tier: one public model per task, from where and which files (``config/checkpoints.yaml``)."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from automedbench.base.cards import Name, Source, TaskName
from automedbench.base.records import Model
from automedbench.base.yamlfile import load_yaml, validate

FILE = Path("config/checkpoints.yaml")


class Checkpoint(Model):
    """A public model, and what is known of its files."""

    name: str
    tasks: list[TaskName] = Field(min_length=1, description="tasks whose lite tier prescribes it")
    source: Source = Field(description="repository, revision, files with sizes and checksums; also: more of the same")
    licence: str
    provenance: list[str] = Field(min_length=1, description="where the facts were seen")
    open_questions: list[str] = Field(default_factory=list, description="facts that no public source gave")

    @property
    def parts(self) -> list[Source]:
        """Places that together hold the model."""
        return [self.source, *self.source.also]

    @property
    def urls(self) -> list[str]:
        """Folders of its files that are not on the hub."""
        return [part.where for part in self.parts if part.kind == "url"]


class Checkpoints(Model):
    """The table: name → checkpoint."""

    checkpoints: dict[Name, Checkpoint]

    @model_validator(mode="after")
    def _one_for_each_task(self) -> Checkpoints:
        tasks = [task for each in self.checkpoints.values() for task in each.tasks]
        if twice := sorted({task for task in tasks if tasks.count(task) > 1}):
            raise ValueError(f"two checkpoints for {', '.join(twice)}")
        return self


def load_checkpoints(path: Path = FILE) -> dict[str, Checkpoint]:
    """The table by name; raises ConfigError with every problem."""
    return validate(load_yaml(path), Checkpoints, str(path)).checkpoints
