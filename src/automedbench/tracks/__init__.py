"""Tracks: one folder each, with a :class:`Track` named ``TRACK`` and the modules that it is put together from.

``settings``, ``stage``, ``check``, ``score`` and ``show`` have the same names in all of them; what goes wrong there
stands beside ``TRACK``. Adding a track is adding a folder: it is found by the ``track`` of a card, and no
other module knows one by name. What several tracks do alike is in ``common``. Tracks import metrics, never the agent,
the sandbox or the judge.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.records import (
    CaseEntry,
    CaseScore,
    CaseSubmission,
    DetailReport,
    Manifest,
    Model,
    Number,
    Prior,
    Score,
    SubmissionRecord,
)
from automedbench.base.views import Frame, LegendItem, ViewText
from automedbench.base.yamlfile import suggestion, validate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Metrics = dict[str, float | None]
"""Name of a metric → its value; None where it is undefined."""


@dataclass(frozen=True)
class ScoringInputs:
    """Inputs of a scorer: one collected and checked submission and the held-out answers of its task.

    ``submission`` is the folder of the collected files (``agents_outputs/…`` below it) and ``private`` the folder of
    the task's answers. ``public`` is what the agent was given, for pictures and the effect of the case only: no metric
    may depend on it, and it may be left out. ``resources`` are files and folders that the campaign's configuration
    names: checkpoints, word lists, verdicts of the answer judge.
    """

    card: TaskCard
    manifest: Manifest
    submission: Path
    private: Path
    checked: SubmissionRecord
    resources: Mapping[str, Path] = field(default_factory=dict)
    public: Path | None = None

    @cached_property
    def pairs(self) -> list[tuple[CaseEntry, CaseSubmission]]:
        """Every expected case with the verdict of the format check on it.

        Raises InfrastructureError when submission.json and manifest list different cases.
        """
        if [case.case for case in self.checked.cases] != self.manifest.case_ids:
            raise InfrastructureError(
                f"{self.card.id}: submission.json and manifest list different cases; collect again."
            )
        return list(zip(self.manifest.cases, self.checked.cases, strict=True))

    def entry(self, case: str) -> CaseEntry:
        """Manifest entry of a case."""
        return next(each for each in self.manifest.cases if each.id == case)

    def verdict(self, case: str) -> CaseSubmission:
        """Verdict of the format check on a case."""
        return next(each for each in self.checked.cases if each.case == case)

    def given(self, case: str) -> Path:
        """Folder of what the agent was given of a case; raises ValueError where it was left out."""
        if self.public is None:
            raise ValueError("the public data is not given")
        return self.public / case


@dataclass(frozen=True)
class Drawing:
    """One case as a reader sees it: pictures, texts and what the colours of overlays mean."""

    frames: list[Frame] = field(default_factory=list)
    texts: list[ViewText] = field(default_factory=list)
    legend: list[LegendItem] = field(default_factory=list)


@dataclass(frozen=True)
class Restoration:
    """Pictures made of pictures: quality (n,) of the outputs and of trivial forms of the input, the input itself first.

    ``distance`` (n,): residual of an output after the least-squares fit by smoothings of the input, as a share of that
    of the answer; 0 is a copy.
    """

    outputs: NDArray[np.float64]
    trivial: Mapping[str, NDArray[np.float64]]
    distance: NDArray[np.float64]


@dataclass(frozen=True)
class EffectEvidence:
    """Readable outputs of a run and the answers of their cases, in a form that is cheap to compare (n of each).

    ``quality`` takes m outputs (or answers) and k answers and returns values in [0, 1], (m, k), 1 for equal ones.
    ``same`` takes m and k outputs and says which are one output, names and times aside; ``labels``: outputs are among a
    few words, so that many may rightly be one. Only cases of one of the ``groups`` are compared with each other. An
    effect below the share ``none_below`` of the attainable counts as none where the interval proves it.
    """

    outputs: Sequence[Any]
    answers: Sequence[Any]
    quality: Callable[[Sequence[Any], Sequence[Any]], NDArray[np.float64]]
    same: Callable[[Sequence[Any], Sequence[Any]], NDArray[np.bool_]]
    labels: bool = False
    groups: Sequence[str] | None = None
    none_below: float = 0.15
    restoration: Restoration | None = None


class TrackScore(Model):
    """Result of a track's scorer; recipe and medal are added by the caller.

    ``task_score`` is quality × completion rate. Where quality is a mean over cases that counts a missing case as 0 it
    is that mean, so that nothing is multiplied twice (docs/specification.md, 6).
    """

    quality: Score
    quality_name: str | None = Field(None, description="where the card chose another metric than the track's QUALITY")
    task_score: Score
    metrics: dict[str, Number | None]
    groups: dict[str, dict[str, Number | None]]
    cases: list[CaseScore]
    prior: Prior | None = Field(None, description="what constant answers earn with the same references")
    contradicting: Score | None = Field(
        None, description="share of statements that contradict the reference, where it is remarkable"
    )
    notes: list[str] = Field(default_factory=list, description="what a reader of the numbers must know")


class MetricSettings(Model):
    """Metric settings that a card may give, with their defaults; the settings of every track are such a class."""

    @property
    def needs_answer_judge(self) -> bool:
        """Return whether the score depends on verdicts of the answer judge, which then run first."""
        return False


@dataclass(frozen=True)
class TrackText:
    """Texts for readers: the track's name, a short one for axes, and its task half (docs/specification.md, 6).

    ``site_failure``: what the benchmark's site counts as failed; ``medal_rate``: that is a run without a medal, so
    their share stands beside the failure rate.
    """

    title: str
    short: str
    task_half: str
    site_failure: str = "runs without a final submission"
    medal_rate: bool = False


@dataclass(frozen=True)
class Outputs:
    """Submission of one run and its scores, in which signals of faults are searched."""

    submission: SubmissionRecord
    detail: DetailReport
    card: TaskCard

    @cached_property
    def there(self) -> list[CaseSubmission]:
        """Cases of which something was submitted."""
        return [case for case in self.submission.cases if case.status != "missing"]

    @cached_property
    def missing(self) -> list[CaseSubmission]:
        """Cases of which nothing was submitted."""
        return [case for case in self.submission.cases if case.status == "missing"]

    @cached_property
    def malformed(self) -> list[CaseSubmission]:
        """Cases whose output breaks the contract."""
        return [case for case in self.submission.cases if case.status == "malformed"]

    @cached_property
    def scored(self) -> list[CaseScore]:
        """Metrics of the cases with a prediction that could be scored."""
        completed = {case.case for case in self.submission.cases if case.completed}
        return [case for case in self.detail.cases if case.case in completed]

    @property
    def quality_of_completed(self) -> float | None:
        """The quality over what can be scored; null when nothing can. What is missing is no fault of the rest."""
        rate = self.submission.completion_rate
        if not rate:
            return None
        whole = get_track(self.detail.track).quality_over_completed
        return self.detail.quality if whole else min(1.0, self.detail.quality / rate)

    @property
    def okay_from(self) -> float | None:
        """The lowest quality that wins a medal; null when no medal asks for the quality."""
        return okay_threshold(self.card, self.detail.quality_name)


@dataclass(frozen=True)
class Signal:
    """A fault that a track's own records prove, and nothing else: stable id, what it looks at, and how it is found.

    ``find`` returns the line that shows it, or nothing. It becomes the error code E3 of stage S4.
    """

    id: str
    looks_at: str
    find: Callable[[Outputs], str | None]


def no_picture(why: str) -> Drawing:
    """Placeholder for a case without a picture."""
    return Drawing(texts=[ViewText(side="input", title="No picture", text=why)])


@dataclass(frozen=True, kw_only=True)
class Track:
    """A track: its functions, and what the rest of the benchmark asks it. ``TRACK`` in the track's folder is one."""

    version: int
    """Raised when scores change; re-scores every run of the track and re-runs no agent."""
    quality: str
    """Name of the metric that is the quality."""
    stage: Callable[[TaskCard, Path, Path, Path], list[CaseEntry]]
    """(card, raw, public, private): write ``public/<case>/`` and ``private/<case>/``; deterministic for a card.

    Cases that ``workers.map_in_order`` goes through are worked on several at a time where the rule has threads.
    """
    check: Callable[[TaskCard, Manifest, Path], list[CaseSubmission]]
    """(card, manifest, submission): format check of ``submission/agents_outputs/…``, without private data."""
    score: Callable[[ScoringInputs], TrackScore]
    """Score over every expected case; a missing case counts as the track defines."""
    verify: Callable[[ScoringInputs], tuple[str, float, float]]
    """The quality again by an independent library: (library, value, tolerance)."""

    # What may be left out.

    effect: Callable[[ScoringInputs], EffectEvidence] | None = None
    """Outputs and answers for the measure of the case's effect; changes no metric. Only completed cases take part."""
    settings: type[MetricSettings] = MetricSettings
    """Metric settings that a card may give."""
    case_quality: str = ""
    """Name of the metric of single cases by which bad, middling and good ones are told apart; empty: the quality's."""
    quality_is_mean: bool = True
    """Whether ``quality`` is the mean of that metric over cases, unless some of its parts are undefined in a case."""
    show: Callable[[ScoringInputs, CaseScore], Drawing] = lambda *_: no_picture("This track shows no pictures.")
    """A scored case with input, prediction (as far as it can be read) and reference; changes no score.

    May raise anything: the case then has no picture. ``inputs.public`` is given.
    """
    preflight: Callable[[TaskCard, Mapping[str, Path]], list[str]] | None = None
    """(card, resources): what the scorer lacks beyond the task's data and how to get it, empty when all is well.

    Runs before any agent does; None for a track that needs no resources.
    """
    staged_settings: tuple[str, ...] = ()
    """Settings of the metric that staging uses, so that a changed one stages again."""
    copies_of_inputs: frozenset[str] = frozenset()
    """Names of private files that repeat an input on purpose."""
    quality_over_completed: bool = False
    """Whether the quality is a mean over completed cases alone; else a missing case counts as 0 in it."""
    poor_is_evidence: bool = True
    """Whether outputs below okay prove a fault that a look at them would have shown; answers near chance do not."""
    needs_model: bool = False
    """Whether only a model can make what is asked for: text about pictures."""
    text: TrackText | None = None
    """Names for readers; None: the track's id."""
    signals: tuple[Signal, ...] = ()
    """Faults that only this track's records show."""

    @property
    def metric_of_cases(self) -> str:
        """Name of the metric that says how good a single case is."""
        return self.case_quality or self.quality


def okay_threshold(card: TaskCard, quality: str) -> float | None:
    """The lowest value of the quality that wins a medal; null when no medal asks for it."""
    return min((medal.at_least[quality] for medal in card.medals if quality in medal.at_least), default=None)


@functools.cache
def track_names() -> tuple[str, ...]:
    """Every track there is, in alphabetical order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "common"))


def get_track(name: str) -> Track:
    """A track by its name; raises ConfigError, naming the nearest one, when there is none."""
    if name not in track_names():
        raise ConfigError([f"unknown track '{name}'{suggestion(name, list(track_names()))}"])
    track: Track = importlib.import_module(f"{__name__}.{name}").TRACK
    return track


def track_settings(card: TaskCard) -> Any:
    """The card's metric settings, validated by its track; raises ConfigError with every problem."""
    return validate(card.metric.settings, get_track(card.track).settings, card.id, "metric.settings")


def settings_that_count(track: str, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded metric settings less those at their default: a setting that came later makes no old score another.

    All of them where the track no longer knows them.
    """
    try:
        known = get_track(track).settings.model_validate(dict(recorded))
    except (ConfigError, ValueError):
        return dict(recorded)
    return known.model_dump(mode="json", exclude_defaults=True)


def judges_answers(card: TaskCard) -> bool:
    """Return whether a model judges the equivalence of open answers to the gold."""
    return bool(track_settings(card).needs_answer_judge)


def preflight(card: TaskCard, resources: Mapping[str, Path]) -> list[str] | None:
    """Resources that the task's scorer lacks, empty when complete; None for a track that needs none."""
    check = get_track(card.track).preflight
    return None if check is None else check(card, resources)
