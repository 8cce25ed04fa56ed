"""The output contract of a segmentation card: which files a case has, and which targets each of them holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import Field

from automedbench.base.cards import OutputFile, Target, TaskCard
from automedbench.base.errors import ConfigError
from automedbench.base.yamlfile import suggestion
from automedbench.metrics.overlap import BothEmpty
from automedbench.tracks import MetricSettings, track_settings

MAX_LABEL = 65_534


class SegmentationSettings(MetricSettings):
    """Metric settings of a segmentation card."""

    both_empty: BothEmpty = Field(
        "one", description="Dice of a target absent from truth and prediction: one = 1, skip = left out of the mean"
    )
    files: dict[str, str] = Field(
        default_factory=dict,
        description="target → file name of its binary mask; empty: one label map per case holds all targets",
    )
    positive_only: list[str] = Field(
        default_factory=list, description="targets whose mean is over the cases that have them (lesions)"
    )
    surface_metrics: bool = Field(True, description="also HD95 and surface Dice, as diagnostics")
    tolerance_mm: float = Field(2.0, gt=0, le=100, description="surface Dice: how far apart surfaces may be")


@dataclass(frozen=True)
class LabelFile:
    """One expected file per case: a binary mask of one target, or a label map of several."""

    output: OutputFile
    targets: tuple[Target, ...]
    is_mask: bool

    @property
    def name(self) -> str:
        """File name, the same below a case's private folder."""
        return PurePosixPath(self.output.path).name

    @property
    def values(self) -> tuple[int, ...]:
        """Stored value of each target; its place plus 1 is the target's number in scoring."""
        return (1,) if self.is_mask else tuple(target.id for target in self.targets)

    def path(self, case: str) -> str:
        """Path of a case's expected file below agents_outputs."""
        return self.output.path.replace("{case}", case)


def load_settings(card: TaskCard) -> SegmentationSettings:
    """The card's settings, checked against its targets; raises ConfigError with every problem."""
    settings: SegmentationSettings = track_settings(card)
    names = [target.name for target in card.targets]
    problems = [
        f"{card.id}: metric.settings.{key}: '{name}' is no target of the card{suggestion(name, names)}"
        for key, used in (("files", list(settings.files)), ("positive_only", settings.positive_only))
        for name in used
        if name not in names
    ]
    if problems:
        raise ConfigError(problems)
    return settings


def label_files(card: TaskCard) -> tuple[LabelFile, ...]:
    """The files that a case must have, in card order; raises ConfigError when outputs and targets do not fit."""
    settings = load_settings(card)
    outputs = [output for output in card.outputs if "{case}" in output.path and output.format == "nii.gz"]
    if not card.targets:
        raise ConfigError([f"{card.id}: targets: segmentation needs at least one"])
    if settings.files:
        names = [PurePosixPath(output.path).name for output in outputs]
        masks = {settings.files[target.name]: target for target in card.targets if target.name in settings.files}
        if sorted(names) != sorted(masks) or len(masks) < len(card.targets):
            given = f"must give each target one of the outputs ({', '.join(names)}), once"
            raise ConfigError([f"{card.id}: metric.settings.files: {given}"])
        return tuple(LabelFile(out, (masks[name],), is_mask=True) for name, out in zip(names, outputs, strict=True))
    if len(outputs) != 1:
        raise ConfigError(
            [
                f"{card.id}: outputs: a label map is one nii.gz file with {{case}} in its path, not {len(outputs)}; "
                "for a mask per target name them in metric.settings.files"
            ]
        )
    values = [target.id for target in card.targets]
    if len(set(values)) < len(values) or not all(1 <= value <= MAX_LABEL for value in values):
        raise ConfigError([f"{card.id}: targets: ids must be different numbers from 1 to {MAX_LABEL}"])
    return (LabelFile(outputs[0], tuple(card.targets), is_mask=False),)
