"""Task cards: typed, validated, all problems at once.

A *card* (``config/tasks/<track>/<task>.yaml``) describes one task. Track-specific settings are plain values here and
validated by the track's own ``Settings`` model, so that a new track or task never changes this module.
"""

from __future__ import annotations

import string
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from automedbench.base.errors import ConfigError
from automedbench.base.records import TIERS, CaseEntry, Manifest, Model, Tier
from automedbench.base.yamlfile import load_yaml, validate

TrackName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=40)]
HintedStage = Annotated[str, Field(pattern=r"^s[1-3]$")]
Access = Literal["public", "registration", "credentialed"]
Confidence = Literal["seed", "reference", "gallery", "upstream-knowledge", "proposal", "unknown", "measured", "ours"]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]
TaskName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=80)]


def _require_relative(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or "" in parts or "\0" in path:
        raise ValueError("must be a relative path without '..'")
    return path


RelativePath = Annotated[str, Field(max_length=200), AfterValidator(_require_relative)]


class Rows(Model):
    """Rows of a table, each of which stands for a file."""

    table: str = Field(min_length=1, description="a file of the same source, .csv or .csv.gz; it is fetched first")
    where: dict[str, list[str]] = Field(
        default_factory=dict,
        description="column → texts; rows count whose cell is one of them, in each of these columns; empty: all rows",
    )


class Download(Model):
    """A file that a source offers, or a pattern of files, and what becomes of it."""

    name: str = Field(
        description="URL, whole or below the source's; path, pattern or id where the source is a hub or a store"
    )
    numbers: tuple[int, int] | None = Field(
        None, description="first and last number, filled into {n} of name and to ({n:05d}: five digits)"
    )
    rows: Rows | None = Field(
        None,
        description="one file for each row of a table: columns are filled into name and to, {subject_id:.2} is the "
        "first two characters; each name counts once (kinds url and physionet)",
    )
    to: RelativePath | None = Field(
        None,
        description="place below the data set's folder: of the file, or the folder that an archive is unpacked into; "
        "null: the file's own name or path, an archive's content without a folder around it",
    )
    unpack: bool | None = Field(
        None, description="null: .zip, .tar, .tar.gz, .tgz and .gz are unpacked and not kept; false: kept as they are"
    )
    checksum: str | None = Field(
        None, pattern=r"^(md5:[0-9a-f]{32}|sha256:[0-9a-f]{64})$", description="of the file as it is downloaded"
    )
    bytes: int | None = Field(None, gt=0, description="size as it is downloaded, where published")

    @model_validator(mode="after")
    def _one_file_for_each_row(self) -> Download:
        if self.rows is None:
            return self
        for name in ("numbers", "checksum", "bytes"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} cannot be given together with rows")
        if not _columns(self.name):
            raise ValueError("name must hold a column of the rows' table, for example {study_id}")
        self.columns()
        return self

    def columns(self) -> list[str]:
        """Columns of the rows' table that are filled into name and to."""
        return list(dict.fromkeys(_columns(self.name) + _columns(self.to or "")))


def _columns(text: str) -> list[str]:
    """Columns in a text; raises ValueError for what cannot be filled with the texts of a table."""
    found = []
    for _, column, form, conversion in string.Formatter().parse(text):
        if column is None:
            continue
        if not column or column.isdecimal() or conversion or set(column) & set(".[]"):
            raise ValueError(f"'{{{column}}}' in '{text}' is not a column of a table")
        format("", form or "")  # a ValueError for forms of numbers
        found.append(column)
    return found


SourceKind = Literal[
    "path",
    "url",
    "git",
    "huggingface",
    "huggingface_model",
    "kaggle",
    "physionet",
    "synapse",
    "tcia",
    "box",
    "manual",
]


class Source(Model):
    """One way to get the raw data; sources are tried in order after the user's own path."""

    kind: SourceKind
    where: str = Field(description="path, URL, or id on the hub")
    revision: str | None = Field(None, description="commit, tag or version that the card was written for")
    downloads: list[Download] = Field(default_factory=list, description="what is downloaded; empty: everything")
    files: list[str] = Field(
        default_factory=list, description="patterns of what is kept of it, after archives are unpacked; empty: all"
    )
    credentials: list[str] = Field(
        default_factory=list, description="names of environment variables that must be set, never their values"
    )
    also: list[Source] = Field(default_factory=list, description="places that hold the rest of the same data")

    @model_validator(mode="after")
    def _rows_of_files_with_a_url(self) -> Source:
        if self.kind not in ("url", "physionet") and any(each.rows for each in self.downloads):
            raise ValueError(f"downloads.rows: a source of kind '{self.kind}' has none; url and physionet have")
        return self


class DataSet(Model):
    """The data set a task's cases come from."""

    name: Name = Field(description="folder below data.raw; shared by tasks on the same data")
    title: str
    year: int | None = None
    access: Access
    licence: str
    attribution: str
    redistribution: str = Field(description="may staged files be passed on, and under which terms")
    homepages: list[str] = Field(default_factory=list)
    sources: list[Source] = Field(description="none: the data are the user's own, at datasets.<name>.path")
    how_to_get: str = Field(description="exact steps for a person when no source works")
    download_gb: float | None = Field(None, ge=0, description="size of what is downloaded, in GB")
    layout: str = Field("", description="upstream form and its known defects")
    llm_egress: Literal["allowed", "contract", "forbidden"] = Field(
        "allowed", description="may content leave the machine towards a model provider"
    )

    @property
    def revision(self) -> str | None:
        """Commit, tag or version that the card was written for, as its first source pins it."""
        return self.sources[0].revision if self.sources else None


class Sampling(Model):
    """Which cases are staged; deterministic for one seed."""

    rule: str = Field(description="for a person: how the cases are chosen")
    split: str | None = Field(None, description="upstream split to draw from")
    count: int | None = Field(None, ge=1, description="number of cases; null: all of the split")
    seed: int = 42
    besides: SkipJsonSchema[int | None] = Field(None, exclude=True)
    """Of a fresh draw (``fresh``): the seed of the published draw, whose cases are left out."""
    options: dict[str, Any] = Field(default_factory=dict, description="for the reader: strata, filters, positives")

    def fresh(self, seed: int) -> Sampling:
        """As many cases by the same rule, none of which is in this draw."""
        rule = f"{self.rule}; a fresh draw, without the cases of the published one"
        return self.model_copy(update={"seed": seed, "besides": self.seed, "rule": rule})


class Staging(Model):
    """The way from raw data to public and private cases."""

    reader: Name = Field(description="name of a reader in automedbench.datasets")
    options: dict[str, Any] = Field(default_factory=dict, description="for the reader: folders, columns, label maps")
    sampling: Sampling
    case_prefix: Name | None = Field(
        description="opaque case ids are <prefix>_0001, <prefix>_0002, …; null: those of a release, which its rows need"
    )
    degradation: dict[str, Any] | None = Field(None, description="seeded degradation of the input, if any")


class InputFile(Model):
    """A file the agent finds in each case folder."""

    file: RelativePath
    format: str
    description: str


class OutputFile(Model):
    """A file expected below agents_outputs/: once per case ({case} in the path) or once per task."""

    path: RelativePath = Field(description="for example '{case}/prediction.json'")
    format: Literal["json", "jsonl", "csv", "txt", "nii.gz", "npy", "png", "jpg"]
    max_bytes: int = Field(gt=0, description="larger files are not collected")
    optional: bool = Field(False, description="read where it is there, but neither asked for nor missed")
    description: str


class Target(Model):
    """A class, label, structure or answer option that is scored."""

    id: int
    name: str = Field(min_length=1)
    source: str | None = Field(None, description="its name or code upstream, where it differs")
    aliases: list[str] = Field(default_factory=list)
    description: str = ""


class Metric(Model):
    """The track's metric and its settings; the track validates ``settings``."""

    name: str
    settings: dict[str, Any] = Field(default_factory=dict)
    effect_margin: float = Field(
        0.05, gt=0, lt=1, description="effect of the case on outputs: share of the attainable that is noteworthy"
    )


class Medal(Model):
    """A medal is won when every metric reaches its threshold; the first match counts, else 'fail'."""

    name: Name
    at_least: dict[str, float] = Field(min_length=1)


class Reference(Model):
    """A published result on the same data set, for comparison beside a board; no score depends on it."""

    value: float = Field(ge=0, le=1)
    kind: Literal["human", "challenge", "model"] = Field(description="people, a challenge's best, or a published model")
    who: str = Field(min_length=1, description="the people, team or model")
    metric: str = Field(min_length=1, description="what the value is, in the source's terms")
    same_metric: bool = Field(description="is it the card's metric, over the card's targets")
    same_split: bool = Field(description="are the card's cases drawn from the cases that it was measured on")
    cases: int | None = Field(None, ge=1, description="number of cases; null: not stated where it was looked up")
    source: str = Field(
        pattern=r"^(doi:10\.\d{4,9}/\S+|arXiv:\d{4}\.\d{4,5}|https://\S+)$", description="DOI, arXiv id or URL"
    )
    place: str = Field(min_length=1, description="table or section of the source")
    year: int = Field(ge=2000, le=2100, description="of the publication")
    checked: bool = Field(
        True,
        description="true: seen in the source or in a text that quotes it; false: known from the publication alone",
    )

    @property
    def differs(self) -> str:
        """What makes it not directly comparable with a score of the task, in words; empty: nothing."""
        found = {"other metric": not self.same_metric, "other cases": not self.same_split}
        return ", ".join(name for name, differs in found.items() if differs)

    @property
    def origin(self) -> str:
        """Source and place, as a reader looks them up."""
        return f"{self.source}, {self.place}, {self.year}{'' if self.checked else '; not checked'}"


class Limits(Model):
    """Limits of one run; null means none. The configuration may override the card's."""

    time_limit_s: float | None = Field(3600, gt=0, description="wall clock of the run")
    max_turns: int | None = Field(150, ge=1, description="model replies")
    exec_timeout_s: float | None = Field(None, gt=0, description="one code call; null: the time that is left")
    max_total_tokens: int | None = Field(None, ge=1)
    max_cost_usd: float | None = Field(None, gt=0)
    disk_gb: float | None = Field(100, gt=0, description="size of the workspace")
    mem_gb: float | None = Field(64, gt=0, description="memory of one code call, /dev/shm included")
    max_processes: int | None = Field(4096, ge=16, description="processes and threads of one code call")


class LiteModel(Model):
    """The one model that the lite tier prescribes."""

    name: str
    reference: str | None = Field(None, description="where the weights are: hub id and revision, or URL")
    notes: str = ""


class TierBriefs(Model):
    """Additions of a tier to the common brief."""

    lite_model: LiteModel | None = Field(None, description="required where the task is offered as lite")
    no_lite: str = Field("", description="why the task is not offered as lite, for a person")
    standard_candidates: list[str] = Field(default_factory=list)
    route: str | None = Field(
        None,
        pattern=r"^[a-z0-9][a-z0-9-]*$",
        description="lite only: folder of config/prompts/hints/lite with hints and pinned packages of the given model",
    )
    hints: dict[HintedStage, str] = Field(
        default_factory=dict, description="lite only: texts in place of a route's hints, such as those of a release"
    )
    background: str = Field("", description="pro only: the clinical question in plain words")


class TaskCard(Model):
    """One of the benchmark's tasks, complete: data, staging, contract, metric, medals, limits, tiers."""

    id: TaskName
    version: int = Field(ge=1, description="raised when old runs stop being comparable; part of every score")
    track: TrackName = Field(description="folder of automedbench.tracks")
    title: str
    aliases: list[str] = Field(default_factory=list, description="ids of the same task in other publications")
    modality: str
    unit: str = Field(description="what one case is: patient volume, image, question, study")
    description: str = Field(description="the task in plain words, as the agent reads it")
    tiers: list[Tier] = Field(default_factory=lambda: list(TIERS), min_length=1)
    dataset: DataSet
    staging: Staging
    inputs: list[InputFile] = Field(min_length=1)
    outputs: list[OutputFile] = Field(min_length=1)
    targets: list[Target] = Field(default_factory=list)
    metric: Metric
    medals: list[Medal]
    references: list[Reference] = Field(
        default_factory=list, max_length=2, description="published results on the same data set; never part of a score"
    )
    limits: Limits = Limits()
    briefs: TierBriefs
    provenance: dict[str, Confidence] = Field(
        default_factory=dict,
        description="dotted key → where its value comes from; 'proposal' and 'unknown' stay visible",
    )
    open_questions: list[str] = Field(default_factory=list)
    demo: bool = Field(
        False, description="on invented data, to show the program: run where a campaign names it, no part of all_tasks"
    )

    @field_validator("targets")
    @classmethod
    def _unique_targets(cls, targets: list[Target]) -> list[Target]:
        names = [target.name.strip().lower() for target in targets]
        if len(set(names)) != len(names):
            raise ValueError("two targets have the same name")
        return targets

    @field_validator("outputs")
    @classmethod
    def _unique_outputs(cls, outputs: list[OutputFile]) -> list[OutputFile]:
        if len({output.path for output in outputs}) != len(outputs):
            raise ValueError("two outputs have the same path")
        return outputs

    def manifest(self, sampling: str, cases: list[CaseEntry], **more: Any) -> Manifest:
        """A manifest of the task with these cases."""
        return Manifest(
            task=self.id,
            task_version=self.version,
            track=self.track,
            dataset=self.dataset.name,
            sampling=sampling,
            cases=cases,
            **more,
        )

    @model_validator(mode="after")
    def _lite_has_a_model(self) -> TaskCard:
        if "lite" in self.tiers and self.briefs.lite_model is None:
            raise ValueError("briefs.lite_model: is required, because tiers has lite")
        return self

    def expected_outputs(self, case_ids: list[str]) -> dict[str, OutputFile]:
        """Expected files below agents_outputs/ (path → contract), in case order, per-task files last."""
        per_case = [output for output in self.outputs if "{case}" in output.path]
        per_task = [output for output in self.outputs if "{case}" not in output.path]
        expected = {output.path.replace("{case}", case): output for case in case_ids for output in per_case}
        return expected | {output.path: output for output in per_task}


def load_card(path: Path, *, named: bool = True) -> TaskCard:
    """Read one card; raises ConfigError with every problem. ``named``: the file must be called <id>.yaml."""
    card = validate(load_yaml(path), TaskCard, str(path))
    if named and card.id != path.stem:
        raise ConfigError([f"{path}: id: is '{card.id}', but the file is named '{path.stem}'"])
    return card


def find_cards(folders: list[str]) -> list[Path]:
    """All card files below the folders, sorted."""
    return sorted(path for folder in folders for path in Path(folder).rglob("*.yaml"))
