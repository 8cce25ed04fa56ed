"""The campaign's record, where steps read their settings, and the files of its runs.

``<results>/campaign.json`` names environment variables that hold keys, never a key, and paths as the configuration
gives them. Every step of every run reads it, so nothing here loads what only planning and agents need.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationError

from automedbench.base.cards import Limits, TaskCard, load_card
from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.files import read_record
from automedbench.base.records import Model, RunId
from automedbench.base.yamlfile import suggestion
from automedbench.campaign.config import DEFAULT, CampaignConfig

if TYPE_CHECKING:
    from automedbench.campaign.agents import Agent

FILE = "campaign.json"


class CampaignRecord(Model):
    """``results/campaign.json``: the settings of a campaign as its steps use them."""

    schema_: Literal["automedbench/campaign/1"] = Field("automedbench/campaign/1", alias="schema")
    settings: CampaignConfig
    cards: dict[str, str] = Field(description="task → path of its card")
    datasets: dict[str, str] = Field(description="data set → path of a card that describes it")

    def card_path(self, task: str) -> Path:
        """Path of a task's card; raises ConfigError for an unknown task."""
        return Path(_look_up("task", task, self.cards))

    def card(self, task: str) -> TaskCard:
        """Card of a task; raises ConfigError for an unknown task or a wrong card."""
        return load_card(self.card_path(task))

    def dataset_card(self, dataset: str) -> TaskCard:
        """A card that describes the data set; raises ConfigError for an unknown one."""
        return load_card(Path(_look_up("data set", dataset, self.datasets)))

    def limits(self, card: TaskCard, agent: Agent) -> Limits:
        """The card's limits with those that the configuration replaces, as they are kept for a run of ``agent``.

        Without a model there is nothing to limit, and a limit of cost needs a price: where there is none, the one of
        tokens holds alone.
        """
        own = agent.difference.limits or {}
        limits = Limits.model_validate(card.limits.model_dump() | self.settings.limits | own)
        if not agent.paid:
            return limits.model_copy(update={"max_total_tokens": None, "max_cost_usd": None})
        if agent.pricing is None and limits.max_total_tokens is not None:
            return limits.model_copy(update={"max_cost_usd": None})
        return limits

    def manifest(self, task: str) -> Path:
        return Path(self.settings.data.manifests, f"{task}.json")

    @property
    def card_folders(self) -> list[str]:
        """Folders of the cards as this campaign has them: a preset's are written for it."""
        return self.settings.cards if self.settings.preset == DEFAULT else [f"{self.settings.results}/cards"]

    @property
    def results(self) -> Path:
        return Path(self.settings.results)

    @property
    def scorer_image(self) -> Path | None:
        """Image that submissions are checked and scored in; None without containers."""
        image = self.settings.image("scorer")
        return Path(image) if image else None

    @property
    def resources(self) -> dict[str, Path]:
        """Files and folders that metrics need, by name; in a rehearsal what the preflight made up for the others."""
        own = {name: Path(path) for name, path in self.settings.resources.items()}
        made = self.made_up_resources
        return {path.name: path for path in made.iterdir()} | own if made and made.is_dir() else own

    @property
    def made_up_resources(self) -> Path | None:
        """Folder of what a rehearsal makes up for metrics; None for real data."""
        return self.results / "resources" if self.settings.fixtures else None

    def run_files(self, folder: Path) -> RunFiles:
        """Files of the run in ``folder``; raises ConfigError when its name is not that of a run.

        Below ``<results>/again`` a finished run is scored again: what is not there is read from the run itself.
        """
        run, beside = _read_run_id(folder), (self.results / "again").absolute()
        again = folder.absolute().relative_to(beside).parts[0] if beside in folder.absolute().parents else ""
        return RunFiles(run, folder, self.results / "runs" / run.path if again else folder, again)


@dataclass(frozen=True)
class RunFiles:
    """Files of one run: written into ``folder``, read from there or else from the ``home`` of the run.

    ``again``: ``rescore`` or ``rejudge`` when a finished run is looked at again, beside it; else empty.
    """

    run: RunId
    folder: Path
    home: Path
    again: str

    def out(self, name: str) -> Path:
        return self.folder / name

    def file(self, name: str) -> Path:
        path = self.folder / name
        return path if path.exists() else self.home / name


def read_campaign(path: str | Path) -> CampaignRecord:
    """The record in a file; raises MissingDataError with the way to write it, InfrastructureError if broken."""
    if not Path(path).is_file():
        plan = f"Run `snakemake`, or `python scripts/plan_campaign.py --campaign {path} --configfile FILE`."
        next_step = name_campaigns(Path(path).parent) or plan
        raise MissingDataError(f"{path} does not exist: no campaign was planned there.\n{next_step}")
    return read_record(Path(path), CampaignRecord)


def name_campaigns(folder: Path) -> str:
    """Sentence with the results folders of campaigns beside ``folder`` and in ``results``; empty without any."""
    places = {folder.parent, Path("results")}
    found = {file.parent for place in places for pattern in (FILE, f"*/{FILE}") for file in place.glob(pattern)}
    names = sorted(path.as_posix() for path in found)
    there = f"Campaigns are in: {', '.join(names)}{suggestion(str(folder), names)}; name one with --results."
    return there if names else ""


def _look_up(kind: str, name: str, paths: dict[str, str]) -> str:
    if name not in paths:
        raise ConfigError([f"unknown {kind} '{name}' in this campaign{suggestion(name, list(paths))}"])
    return paths[name]


def _read_run_id(folder: Path) -> RunId:
    agent, task, tier, repeat = (*folder.parts[-4:], *[""] * 4)[:4]
    try:
        return RunId.model_validate(
            {"agent": agent, "task": task, "tier": tier, "repeat": repeat.removeprefix("r")}, strict=False
        )
    except ValidationError as error:
        raise ConfigError(
            [f"--run: '{folder}' is not the folder of a run; give <results>/runs/<agent>/<task>/<tier>/r<k>"]
        ) from error
