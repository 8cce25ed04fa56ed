"""Tracks: one folder each with ``stage``, ``check``, ``score``, ``verify``, ``show``, ``Settings`` and constants.

Adding a track is adding a folder here: it is found by the ``track`` of a card. What several tracks do alike is in
``common``. Tracks import metrics, never the agent, the sandbox or the judge.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError
from automedbench.base.records import (
    CaseEntry,
    CaseScore,
    CaseSubmission,
    Manifest,
    Model,
    Number,
    Score,
    SubmissionRecord,
)
from automedbench.base.records.views import Frame, LegendItem, ViewText
from automedbench.base.yamlfile import suggestion, validate

__all__ = ["Drawing", "ScoringInputs", "Track", "TrackScore", "get_track", "preflight", "track_names", "track_settings"]


@dataclass(frozen=True)
class ScoringInputs:
    """What a scorer reads: one collected and checked submission and the held-out answers of its task.

    ``submission`` is the folder of the collected files (``agents_outputs/…`` below it) and ``private`` the folder of
    the task's answers. ``public`` is what the agent was given, for pictures only: no score may depend on it, and it may
    be left out. ``resources`` are files and folders that the campaign's configuration names: checkpoints, word
    lists, verdicts of the answer judge.
    """

    card: TaskCard
    manifest: Manifest
    submission: Path
    private: Path
    checked: SubmissionRecord
    resources: Mapping[str, Path] = field(default_factory=dict)
    public: Path | None = None


@dataclass(frozen=True)
class Drawing:
    """One case as a reader sees it: pictures, texts and what the colours of overlays mean."""

    frames: list[Frame] = field(default_factory=list)
    texts: list[ViewText] = field(default_factory=list)
    legend: list[LegendItem] = field(default_factory=list)


class TrackScore(Model):
    """What a track's scorer finds; recipe and medal are added by the caller.

    ``task_score`` is quality × completion rate. Where quality is a mean over cases that counts a missing case as 0 it
    is that mean, so that nothing is multiplied twice (docs/specification.md, 6).
    """

    quality: Score
    quality_name: str | None = Field(None, description="where the card chose another metric than the track's QUALITY")
    task_score: Score
    metrics: dict[str, Number | None]
    groups: dict[str, dict[str, Number | None]]
    cases: list[CaseScore]
    notes: list[str] = Field(default_factory=list, description="what a reader of the numbers must know")


class Track(Protocol):
    """What every track module provides.

    A track whose metrics need files beyond the task's data also has
    ``preflight(card, resources) -> list[str]``: what is missing or unusable and how to get it, empty when all is well.
    It runs before any agent does. A track whose staging uses settings of the metric names them in ``STAGED_SETTINGS``.
    """

    VERSION: int
    """Raised when scores change; re-scores every run of the track and re-runs no agent."""
    QUALITY: str
    """Name of the metric that is the quality."""
    CASE_QUALITY: str
    """Name of the metric of single cases by which bad, middling and good ones are told apart."""
    Settings: type[Model]
    """Metric settings a card may give, with their defaults."""

    def stage(self, card: TaskCard, raw: Path, public: Path, private: Path) -> list[CaseEntry]:
        """Write ``public/<case>/`` and ``private/<case>/`` from raw data; deterministic for a card.

        Cases that ``workers.in_order`` goes through are worked on several at a time where the rule has threads.
        """
        ...

    def check(self, card: TaskCard, manifest: Manifest, submission: Path) -> list[CaseSubmission]:
        """Format check of collected files (``submission/agents_outputs/…``), without private data."""
        ...

    def score(self, inputs: ScoringInputs) -> TrackScore:
        """Score over every expected case; a missing case counts as the track defines."""
        ...

    def verify(self, inputs: ScoringInputs) -> tuple[str, float, float]:
        """The quality again by an independent library: (library, value, tolerance)."""
        ...

    def show(self, inputs: ScoringInputs, case: CaseScore) -> Drawing:
        """A scored case with input, prediction (as far as it can be read) and reference; changes no score.

        May raise anything: the case then has no picture. ``inputs.public`` is given.
        """
        ...


@functools.cache
def track_names() -> tuple[str, ...]:
    """Every track there is, in alphabetical order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "common"))


def get_track(name: str) -> Track:
    """The module of a track; raises ConfigError, naming the nearest one, when there is none."""
    if name not in track_names():
        raise ConfigError([f"unknown track '{name}'{suggestion(name, list(track_names()))}"])
    return cast(Track, importlib.import_module(f"{__name__}.{name}"))


def track_settings(card: TaskCard) -> Any:
    """The card's metric settings, validated by its track; raises ConfigError with every problem."""
    return validate(card.metric.settings, get_track(card.track).Settings, card.id, "metric.settings")


def preflight(card: TaskCard, resources: Mapping[str, Path]) -> list[str] | None:
    """What the task's scorer lacks, empty when nothing; None for a track that needs no resources."""
    check = getattr(get_track(card.track), "preflight", None)
    return None if check is None else check(card, resources)
