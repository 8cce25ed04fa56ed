"""Detection's private side: classes of the card, truth files, and how source images become cases."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from pathlib import Path

from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import read_record, sha256_file, write_bytes
from automedbench.base.records import CaseEntry, Model
from automedbench.base.yamlfile import validate
from automedbench.datasets import get_reader
from automedbench.datasets.forms.pictures import rgb_png
from automedbench.datasets.forms.sources import SourceImage
from automedbench.datasets.sampling import assign_case_ids, choose, draw_cases, shuffle_sources, subject_key, too_few
from automedbench.tracks.common.staging import StagedCase, csv_bytes, normalised, spellings, stage_cases

TRUTH = "boxes.json"


class DetectionSampling(Model):
    """Options of a detection card in ``staging.sampling.options``."""

    positive_fraction: float = Field(0.8, ge=0, le=1, description="share of images with boxes when only some are taken")
    one_per_subject: bool = Field(False, description="at most one image of a patient")


class TruthBox(Model):
    """One truth box: absolute pixels, origin top left, half-open."""

    class_: str = Field(alias="class")
    source_class: str = Field("", description="its name upstream")
    x1: float
    y1: float
    x2: float
    y2: float


class BoxTruth(Model):
    """``private/<case>/boxes.json``."""

    image_id: str
    width: int
    height: int
    boxes: list[TruthBox]


def list_classes(card: TaskCard) -> list[str]:
    """Class names of the contract, in card order: a class's place is its number."""
    return [normalised(target.name) for target in card.targets]


def read_truth(path: Path, case: CaseEntry, classes: list[str]) -> BoxTruth:
    """One truth file; raises InfrastructureError when it is absent or does not fit card and manifest."""
    truth = read_record(path, BoxTruth)
    strange = sorted({box.class_ for box in truth.boxes} - set(classes))
    if strange or (truth.width, truth.height) != (case.geometry["width"], case.geometry["height"]):
        what = f"class '{strange[0]}' is not in the card" if strange else "image size differs from the manifest"
        raise InfrastructureError(f"{path}: {what}; stage the task again.")
    return truth


# --- staging --------------------------------------------------------------------------------------------------


def stage(card: TaskCard, raw: Path, public: Path, private: Path) -> list[CaseEntry]:
    """Choose cases, write each one's picture and truth, and the private tables.

    The same card and data give the same bytes. Raises InfrastructureError for raw data that is absent or unreadable,
    for an unknown class, and when no box is left at all.
    """
    images: list[SourceImage] = get_reader(card.staging.reader)(raw, card)
    names = spellings(card, sources=True)
    cases = draw_cases(card, images, _sample, lambda found: found.values(), lambda image: bool(image.classes))
    truths = {case: _truth(image, names) for case, image in cases.items()}
    if not any(truth.boxes for truth in truths.values()):
        raise InfrastructureError(
            f"The {len(cases)} images chosen for {card.id} hold no truth box, so nothing could be scored.\n"
            "Check staging.options and staging.sampling of the card."
        )
    rows = ([case, truth.image_id, len(truth.boxes), int(bool(truth.boxes))] for case, truth in truths.items())
    header = ["patient_id", "image_id", "num_boxes", "has_finding"]
    write_bytes(private / "ground_truth.csv", csv_bytes(header, rows))
    counts = Counter(box.class_ for truth in truths.values() for box in truth.boxes)
    return stage_cases(
        public,
        private,
        card,
        "split/1",
        cases,
        lambda case, image: _staged(card, image, truths[case]),
        boxes_per_class={name: counts[name] for name in list_classes(card)},
        dropped_boxes=sum(image.dropped for image in cases.values()),
    )


def _sample(card: TaskCard, images: list[SourceImage]) -> dict[str, SourceImage]:
    """The chosen images under their case ids, in case order."""
    sampling = card.staging.sampling
    options = validate(sampling.options, DetectionSampling, card.id, "staging.sampling.options")
    if options.one_per_subject:
        images = _one_per_subject(images, sampling.seed)
        if (sampling.count or 0) > len(images):
            raise too_few(
                card, f"one per subject (staging.sampling.options), but the data holds {len(images)} subjects"
            )
    by_id = {image.id: image for image in images}
    classes = {image.id: image.classes for image in images}
    chosen = choose(classes, sampling.count, sampling.seed, options.positive_fraction)
    return assign_case_ids(card, (by_id[name] for name in chosen))


def _one_per_subject(images: list[SourceImage], seed: int) -> list[SourceImage]:
    """One image of each patient, in upstream order; an image without a known patient counts as one of its own.

    Rare classes first, a patient with an image that shows a class not yet covered is represented by it; the others by
    their first image in shuffled order.
    """
    order = shuffle_sources(images, seed)
    frequency = Counter(name for image in images for name in image.classes)
    chosen: dict[tuple[str, str], SourceImage] = {}
    for name in sorted(frequency, key=lambda name: (frequency[name], name)):
        if not any(name in image.classes for image in chosen.values()):
            showing = (image for image in order if name in image.classes and subject_key(image) not in chosen)
            chosen.update({subject_key(image): image for image in itertools.islice(showing, 1)})
    for image in order:
        chosen.setdefault(subject_key(image), image)
    return [image for image in images if chosen[subject_key(image)] is image]


def _truth(image: SourceImage, names: dict[str, str]) -> BoxTruth:
    unknown = sorted(name for name in image.classes if normalised(name) not in names)
    if unknown:
        raise InfrastructureError(
            f"{image.annotation or image.image.name}: class '{unknown[0]}' is not among the card's targets.\n"
            "Add it to targets (name, source or alias) in the task card."
        )
    boxes = [
        TruthBox(
            class_=names[normalised(box.source_class)],
            source_class=box.written or box.source_class,
            x1=box.x1,
            y1=box.y1,
            x2=box.x2,
            y2=box.y2,
        )
        for box in image.boxes
    ]
    return BoxTruth(image_id=image.id, width=image.width, height=image.height, boxes=boxes)


def _staged(card: TaskCard, image: SourceImage, truth: BoxTruth) -> StagedCase:
    """A case with its upstream image and annotation (null where an image without boxes has none)."""
    upstream = image.image.held()
    given = {card.inputs[0].file: rgb_png(upstream)}
    origin = {
        "image_id": image.id,
        "image_sha256": upstream.sha256,
        "annotation_sha256": _digest(image.annotation) if image.annotation else None,
        "dropped": image.dropped,
    }
    return StagedCase(given, {TRUTH: truth}, origin, {"width": image.width, "height": image.height})


@functools.lru_cache(maxsize=8)
def _digest(annotation: Path) -> str:
    """One file may hold the boxes of all images."""
    return sha256_file(annotation)
