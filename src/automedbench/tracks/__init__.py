"""The tracks: one module each, with ``stage``, ``check``, ``score``, ``Settings``, ``QUALITY`` and ``VERSION``.

Adding a track is adding a module here: it is found by the ``track`` of a card. Tracks import metrics, never the
agent, the sandbox or the judge.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Protocol, cast

from automedbench.cards import TaskCard
from automedbench.errors import ConfigError
from automedbench.records import CaseEntry, CaseScore, CaseSubmission, Manifest, Model, Number, Score, SubmissionRecord
from automedbench.yamlfile import validate

__all__ = ["Track", "TrackScore", "get_track", "track_settings"]


class TrackScore(Model):
    """What a track's scorer finds; recipe and medal are added by the caller.

    ``task_score`` is quality × completion rate. Where quality is a mean over cases that counts a missing case as 0 it
    is that mean, so that nothing is multiplied twice (design.md, section 6).
    """

    quality: Score
    task_score: Score
    metrics: dict[str, Number | None]
    groups: dict[str, dict[str, Number | None]]
    cases: list[CaseScore]


class Track(Protocol):
    """What every track module provides."""

    VERSION: int
    """Raised when scores change; re-scores every run of the track and re-runs no agent."""
    QUALITY: str
    """Name of the metric that is the quality."""
    Settings: type[Model]
    """Metric settings a card may give, with their defaults."""

    def stage(self, card: TaskCard, raw: Path, public: Path, private: Path) -> list[CaseEntry]:
        """Write ``public/<case>/`` and ``private/<case>/`` from raw data; deterministic for a card."""
        ...

    def check(self, card: TaskCard, manifest: Manifest, submission: Path) -> list[CaseSubmission]:
        """Format check of collected files (``submission/agents_outputs/…``), without private data."""
        ...

    def score(
        self, card: TaskCard, manifest: Manifest, submission: Path, private: Path, checked: SubmissionRecord
    ) -> TrackScore:
        """Score over every expected case; a missing case counts as the track defines."""
        ...

    def verify(
        self, card: TaskCard, manifest: Manifest, submission: Path, private: Path, checked: SubmissionRecord
    ) -> tuple[str, float, float]:
        """The quality again by an independent library: (library, value, tolerance)."""
        ...


def get_track(name: str) -> Track:
    """The module of a track; raises ConfigError when there is none."""
    try:
        return cast(Track, importlib.import_module(f"automedbench.tracks.{name}"))
    except ModuleNotFoundError as error:
        raise ConfigError([f"track '{name}' has no module automedbench.tracks.{name}"]) from error


def track_settings(card: TaskCard) -> Any:
    """The card's metric settings, validated by its track; raises ConfigError with every problem."""
    return validate(card.metric.settings, get_track(card.track).Settings, card.id, "metric.settings")
