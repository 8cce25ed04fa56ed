"""Presets: named settings of a whole campaign, so that its rows can stand beside those of another benchmark.

A preset (``config/presets/<name>.yaml``) says which tasks, tiers and repeats, how scores are pooled, whether effects
count, and of each task how its cases are had and its metric is set; all else is the task's own card. ``default``, ours,
has no file: its cards are those in ``config/tasks``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from automedbench.base.cards import Name, RelativePath, TaskCard, TaskName, TrackName
from automedbench.base.errors import ConfigError
from automedbench.base.records import EffectRule, Model, Tier
from automedbench.base.yamlfile import load_yaml, suggestion, validate
from automedbench.campaign.config import DEFAULT, Matrix
from automedbench.campaign.release import read_hints, read_lite_model, read_patterns

FOLDER = Path("config/presets")


class TrackRule(Model):
    """Staging and scoring of a track's tasks, as in the release."""

    reader: Name = Field(description="staging.reader of each card")
    options: dict[str, str | bool] = Field(
        default_factory=dict, description="staging.options of each card; {data} is the task's folder of cases"
    )
    degradation: dict[str, Any] | None = Field(None, description="staging.degradation of each card")
    sampling: dict[str, Any] = Field(default_factory=dict, description="staging.sampling.options of each card")
    settings: dict[str, Any] = Field(default_factory=dict, description="over metric.settings of each card")


class PresetTask(Model):
    """A task of a preset: where it lies in the release, and what differs from its card."""

    count: int = Field(ge=1, description="cases of the release; another number in the copy is an error")
    data: RelativePath = Field(description="folder of the release with the task's folders public and private")
    guidance: RelativePath = Field(
        description="folder of the release with model_info.yaml and lite_s1.md to lite_s3.md"
    )
    patterns: RelativePath | None = Field(
        None, description="Python file of the release with the word patterns of observation_f1; it is read, not run"
    )
    settings: dict[str, Any] = Field(default_factory=dict, description="over metric.settings of card and track")
    digest: str | None = Field(
        None,
        pattern=r"^[0-9a-f]{64}$",
        description="of the paths and SHA-256 of the task's files; null: not known here",
    )


class Preset(Model):
    """``config/presets/<name>.yaml``."""

    name: Name
    title: str
    source: str = Field(description="whose setting it is, and where it is described")
    how_to_get: str = Field(description="exact steps to get the release's folder")
    tiers: tuple[Tier, ...] = Field(min_length=1)
    repeats: int = Field(ge=1)
    pooling: Literal["tasks", "runs"]
    effects: EffectRule = Field(description="whether outputs without an effect of their case lower a run's stages")
    judge: Name | None = Field(
        None,
        description="model that judged the published rows, by its id without provider and date; rows judged otherwise "
        "are marked, and have no rank beside rows that it judged",
    )
    tracks: dict[TrackName, TrackRule]
    tasks: dict[TaskName, PresetTask] = Field(min_length=1)
    assumed: list[str] = Field(
        default_factory=list,
        description="what no public text says, and what is taken in its place; shown with its rows",
    )

    def matrix(self, requested: Matrix, cards: dict[str, TaskCard]) -> Matrix:
        """The campaign's agents with the preset's tasks, tiers and repeats; a tier that a task lacks is left out."""
        lacking = [
            {"tasks": [task], "tiers": [tier]}
            for task in self.tasks
            for tier in self.tiers
            if tier not in cards[task].tiers
        ]
        return Matrix.model_validate(
            requested.model_dump()
            | {"tasks": list(self.tasks), "tiers": self.tiers, "repeats": self.repeats, "include": []}
            | {"exclude": [*requested.model_dump()["exclude"], *lacking]}
        )

    def card(self, card: TaskCard, release: Path) -> TaskCard:
        """The card under this preset, staged from the folder ``release``; raises ConfigError with every problem."""
        own, rule = self.tasks[card.id], self.tracks[card.track]
        patterns = {"observations": read_patterns(release / own.patterns)} if own.patterns else {}
        source = {"kind": "path", "where": str(release), "revision": own.digest, "files": [f"{own.data}/*/**/*"]}
        changed: dict[str, Any] = {
            "dataset": card.dataset.model_dump()
            | {"name": f"{self.name}-{card.id}", "sources": [source], "download_gb": None}
            | {"how_to_get": self.how_to_get},
            "staging": {
                "reader": rule.reader,
                "options": {
                    name: value.replace("{data}", own.data) if isinstance(value, str) else value
                    for name, value in rule.options.items()
                },
                "sampling": {"rule": f"the cases of {self.title}", "count": own.count, "options": rule.sampling},
                "case_prefix": None,
                "degradation": rule.degradation,
            },
            "metric": card.metric.model_dump()
            | {"settings": card.metric.settings | rule.settings | own.settings | patterns},
            "briefs": card.briefs.model_dump() | _guidance(card, release / own.guidance),
            "provenance": {name: value for name, value in card.provenance.items() if not name.startswith("staging")},
        }
        return validate(card.model_dump() | changed, TaskCard, f"{FOLDER / self.name}.yaml", f"tasks.{card.id}")


def _guidance(card: TaskCard, folder: Path) -> dict[str, Any]:
    """The release's own locked model and hints in place of the card's."""
    model = read_lite_model(folder / "model_info.yaml", card.briefs.lite_model)
    return {"lite_model": model.model_dump(), "hints": read_hints(folder), "route": None}


def preset_names(folder: Path = FOLDER) -> list[str]:
    """Every preset there is; ours first."""
    return [DEFAULT, *sorted(path.stem for path in folder.glob("*.yaml"))]


def load_preset(name: str, folder: Path = FOLDER) -> Preset:
    """The preset of that name; raises ConfigError, naming the nearest one, when there is none, and for a wrong file."""
    if name not in preset_names(folder)[1:]:
        raise ConfigError([f"config: preset: there is no '{name}'{suggestion(name, preset_names(folder))}"])
    path = folder / f"{name}.yaml"
    preset = validate(load_yaml(path), Preset, str(path))
    if preset.name != name:
        raise ConfigError([f"{path}: name: is '{preset.name}', but the file is named '{name}'"])
    return preset


def apply_preset(preset: Preset, cards: dict[str, TaskCard], release: Path) -> dict[str, TaskCard]:
    """The preset's tasks with their cards under it; raises ConfigError with every problem."""
    problems, found = [], {}
    for task in preset.tasks:
        if task not in cards:
            problems.append(f"{FOLDER / preset.name}.yaml: tasks: no card '{task}'{suggestion(task, list(cards))}")
        elif cards[task].track not in preset.tracks:
            problems.append(
                f"{FOLDER / preset.name}.yaml: tracks.{cards[task].track}: is required, because of '{task}'"
            )
        else:
            found[task] = preset.card(cards[task], release)
    if problems:
        raise ConfigError(problems)
    return found
