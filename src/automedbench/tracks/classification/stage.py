"""Classification's private side: classes of the card, truth files, and how source images become cases."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import read_record, sha256_bytes, write_bytes
from automedbench.base.records import CaseEntry, Model
from automedbench.base.workers import map_in_order
from automedbench.base.yamlfile import suggestion, validate
from automedbench.datasets import get_reader
from automedbench.datasets.forms.pictures import compression, picture_size, rgb_jpeg, rgb_png
from automedbench.datasets.forms.problems import incomplete
from automedbench.datasets.forms.sources import LabelledImage, choose_balanced
from automedbench.datasets.sampling import assign_case_ids, draw_cases, too_few
from automedbench.tracks.common.staging import StagedCase, csv_bytes, normalised, spellings, stage_cases

TRUTH = "label.json"
TABLE = "ground_truth.csv"
NONE = "none"
"""Column of the confusion matrix for cases without a usable prediction."""


class ClassificationSampling(Model):
    """Options of a classification card in ``staging.sampling.options``."""

    per_class: Annotated[int, Field(ge=1)] | dict[str, Annotated[int, Field(ge=0)]] | None = Field(
        None, description="at most so many cases of each class, or of the classes named; null: all"
    )
    per_group: int | None = Field(
        None, ge=1, description="cases of each class from one slide or patient; null: one case of a group"
    )


class LabelTruth(Model):
    """``private/<case>/label.json``."""

    label: str
    seal: str = Field("", description="keeps size and hash of this file, which the manifest holds, from telling it")


def list_classes(card: TaskCard) -> list[str]:
    """Labels of the contract in card order: a class's place is its number. Aliases and upstream names are none."""
    classes = [normalised(target.name) for target in card.targets]
    if not classes or NONE in classes:
        why = f"'{NONE}' is kept for cases without prediction" if classes else "classification needs classes"
        raise ConfigError([f"{card.id}: targets: {why}"])
    return classes


def read_truth(path: Path, classes: list[str]) -> int:
    """Number of a case's class; raises InfrastructureError when the file is absent or names no class."""
    label = read_record(path, LabelTruth).label
    if label not in classes:
        raise InfrastructureError(f"{path}: class '{label}' is not in the card; stage the task again.")
    return classes.index(label)


# --- staging --------------------------------------------------------------------------------------------------


def stage(card: TaskCard, raw: Path, public: Path, private: Path) -> list[CaseEntry]:
    """Choose cases, write each one's picture and truth, and the private tables.

    The same card and data give the same bytes. Raises InfrastructureError for raw data that is absent or unreadable,
    for an unknown or empty class, and for fewer images than asked for.
    """
    images: list[LabelledImage] = get_reader(card.staging.reader)(raw, card)
    labels = _labels(card, images)
    limits = _limits(card)
    cases = draw_cases(
        card,
        images,
        lambda of, rest: _sample(of, rest, labels, limits),
        lambda found: found.values(),
        lambda image: labels[image.id] if limits[labels[image.id]] else None,
    )
    truth = {case: labels[image.id] for case, image in cases.items()}
    short = _shortage(card, limits, Counter(truth.values()))
    table = csv_bytes(["patient_id", "label"], truth.items())
    sealed = {case: _sealed(label, case, table) for case, label in truth.items()}
    anew = _compression_differs(card, cases)

    write_bytes(private / TABLE, table)
    counts = Counter(truth.values())
    return stage_cases(
        public,
        private,
        card,
        "labelled-split/1",
        cases,
        lambda case, image: _staged(card, image, sealed[case], anew),
        dataset=card.dataset.name,
        revision=card.dataset.revision,
        cases_per_class={label: counts[label] for label in list_classes(card)},
        short=short,
    )


def _labels(card: TaskCard, images: list[LabelledImage]) -> dict[str, str]:
    """Class of every image, by its name in the contract or upstream."""
    names = spellings(card, sources=True, aliases=False)
    for image in images:
        if normalised(image.source_class) not in names:
            raise InfrastructureError(
                f"{image.image.name}: class '{image.source_class}' is not among the card's targets.\n"
                "Add it to targets (name or source) in the task card."
            )
    return {image.id: names[normalised(image.source_class)] for image in images}


def _options(card: TaskCard) -> ClassificationSampling:
    return validate(card.staging.sampling.options, ClassificationSampling, card.id, "staging.sampling.options")


def _limits(card: TaskCard) -> dict[str, int | None]:
    """Class → most cases of it that are taken."""
    classes = list_classes(card)
    per_class = _options(card).per_class
    if not isinstance(per_class, dict):
        return dict.fromkeys(classes, per_class)
    unknown = [
        f"{card.id}: staging.sampling.options.per_class: no class '{name}'{suggestion(name, classes)}"
        for name in per_class
        if normalised(name) not in classes
    ]
    if unknown:
        raise ConfigError(unknown)
    given: dict[str, int | None] = {normalised(name): number for name, number in per_class.items()}
    return dict.fromkeys(classes, 0) | given


def _sample(
    card: TaskCard, images: list[LabelledImage], labels: Mapping[str, str], limits: Mapping[str, int | None]
) -> dict[str, LabelledImage]:
    """The chosen images under their case ids, in case order."""
    sampling, per_group = card.staging.sampling, _options(card).per_group
    chosen = choose_balanced(images, labels, limits, count=sampling.count, seed=sampling.seed, per_group=per_group)
    if sampling.count is not None and len(chosen) < sampling.count:
        raise too_few(card, f"but the raw data has {len(chosen)} that can be taken{_left_out(card, images)}")
    return assign_case_ids(card, chosen)


def _left_out(card: TaskCard, images: list[LabelledImage]) -> str:
    """Reason that not every image can be taken, for a message: those of a group, by the option that names it."""
    groups, per_group = {image.group for image in images} - {""}, _options(card).per_group
    name = "group" if "group" in card.staging.options else "group_column"
    share = f"{per_group} of each class" if per_group else "one"
    why = f": {share} from each of {len(groups)} groups (staging.options.{name}, staging.sampling.options.per_group)"
    return why if groups else ""


def _shortage(card: TaskCard, limits: Mapping[str, int | None], found: Counter[str]) -> dict[str, int]:
    """Cases fewer than asked for, by class. A smaller data set is staged with a warning, one without a class is not."""
    absent = [label for label, limit in limits.items() if limit != 0 and not found[label]]
    if absent and card.staging.case_prefix is not None:  # a release may do without a class
        why = f"{card.id}: the raw data contains no image of class {', '.join(absent)}, so it could not be scored"
        raise incomplete(why, "targets")
    short = {label: limit - found[label] for label, limit in limits.items() if limit and found[label] < limit}
    if short:
        counts = ", ".join(f"{label} {found[label]} of {limits[label]}" for label in short)
        logging.getLogger(__name__).warning(
            "%s: fewer cases than the card asks for (%s). Right for an excerpt; else fetch the data again.",
            card.id,
            counts,
        )
    return short


def _sealed(label: str, case: str, table: bytes) -> LabelTruth:
    """A truth whose file can only be guessed together with those of all cases, and is as long as any other."""
    return LabelTruth(label=label, seal=sha256_bytes(f"{case}\n".encode() + table).ljust(120, "0")[: 120 - len(label)])


def _compression_differs(card: TaskCard, cases: Mapping[str, LabelledImage]) -> bool:
    """Return whether the images' compression differs, so that it may reveal their source and class.

    Colour JPEGs are carried over as they are only where all have the same tables, coding and sampling.
    """
    if card.inputs[0].file.endswith(".png") or card.staging.case_prefix is None:  # a release's are given as they are
        return False
    seen: set[bytes | None] = set()

    def look_at(image: LabelledImage) -> None:
        seen.add(compression(image.image.read()))

    map_in_order(look_at, itertools.takewhile(lambda _: len(seen) < 2, cases.values()))
    return len(seen) > 1


def _staged(card: TaskCard, image: LabelledImage, truth: LabelTruth, anew: bool) -> StagedCase:
    file, upstream = card.inputs[0].file, image.image.held()
    picture = rgb_png(upstream) if file.endswith(".png") else rgb_jpeg(upstream, anew=anew)
    width, height = picture_size(picture)
    origin = {"source": image.id, "source_sha256": upstream.sha256, "label": truth.label}
    return StagedCase({file: picture}, {TRUTH: truth}, origin, {"width": width, "height": height})
