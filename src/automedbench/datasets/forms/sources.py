"""Sources: what readers return, a record per labelled image, annotated image, study or question as it is upstream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from automedbench.datasets.forms.pictures import Picture
from automedbench.datasets.sampling import shuffle_sources, shuffled


@dataclass(frozen=True)
class LabelledImage:
    """An image with its class upstream; ``group`` is what several images may show (a lesion, a patient)."""

    id: str
    image: Picture
    source_class: str
    group: str = ""


def choose_balanced(
    images: Iterable[LabelledImage],
    labels: Mapping[str, str],
    limits: Mapping[str, int | None],
    *,
    count: int | None,
    seed: int,
    per_group: int | None = None,
) -> list[LabelledImage]:
    """Images in an order that depends on seed and id alone: of each class at most its limit (all where it is null).

    ``labels`` maps an id to its class. With ``count``, the rest up to it is filled from all classes at random, and what
    is too much is left out. Of images of one group only one is taken, or with ``per_group`` so many of each class.
    """
    seen: Counter[tuple[str, str]] = Counter()
    taken: Counter[str] = Counter()
    chosen, rest = [], []
    for image in shuffle_sources(images, seed):
        label = labels[image.id]
        group = (image.group, label if per_group else "")
        seen[group] += 1
        if image.group and seen[group] > (per_group or 1):
            continue
        limit = limits.get(label, 0)
        if limit is None or taken[label] < limit:
            taken[label] += 1
            chosen.append(image)
        else:
            rest.append(image)
    if count is not None:
        chosen = (chosen + rest)[:count]
    # Another shuffle than the one that chose: in that one, the few taken of a large class would all stand first.
    keys = {f"order\n{image.id}": image for image in chosen}
    return [keys[key] for key in shuffled(keys.keys(), seed)]


Corners = tuple[float, float, float, float]
"""x1, y1, x2, y2 in pixels, 0-based, half-open."""


@dataclass(frozen=True)
class SourceBox:
    """A truth box in pixels of the image: 0-based, half-open, inside the image, of positive area."""

    source_class: str
    x1: float
    y1: float
    x2: float
    y2: float
    written: str = ""
    """Name of the class upstream, where the card's options gave it another; else empty."""


@dataclass(frozen=True)
class SourceImage:
    """An image with its truth boxes; ``dropped`` counts upstream boxes without area inside the image.

    ``annotation`` is the file that holds them, perhaps with those of others; none where upstream has no file for an
    image without boxes.
    """

    id: str
    image: Picture
    annotation: Path | None
    width: int
    height: int
    boxes: tuple[SourceBox, ...]
    dropped: int = 0
    subject: str = ""
    """Patient upstream; empty when the data set does not say."""

    @property
    def classes(self) -> frozenset[str]:
        """Upstream names of the classes that occur."""
        return frozenset(box.source_class for box in self.boxes)


def clipped(corners: Corners, width: int, height: int) -> Corners | None:
    """The part of a box that lies inside an image of this size; None when that has no area, or is no number."""
    x1, y1, x2, y2 = corners
    left, top, right, bottom = max(x1, 0.0), max(y1, 0.0), min(x2, float(width)), min(y2, float(height))
    return (left, top, right, bottom) if left < right and top < bottom else None


def source_image(
    name: str,
    image: Picture,
    annotation: Path | None,
    size: tuple[int, int],
    boxes: list[tuple[str, Corners]],
    subject: str = "",
) -> SourceImage:
    """A record of an image of ``size`` (width, height) whose upstream boxes (class, corners) are clipped to it."""
    inside = [(label, clipped(corners, *size)) for label, corners in boxes]
    kept = tuple(SourceBox(label, *corners) for label, corners in inside if corners is not None)
    return SourceImage(name, image, annotation, *size, kept, len(boxes) - len(kept), subject)


@dataclass(frozen=True)
class SourceReport:
    """A study with its images and its report as the data set has it, headings included."""

    id: str
    images: tuple[Picture, ...]
    text: str
    subject: str = ""
    """Patient upstream; empty when the data set does not say."""
    findings: frozenset[str] | None = None
    """Findings that the data set's own reading of the report has; None where it has none."""


def compose(findings: str, impression: str) -> str:
    """A report of sections that the data set keeps apart. Each becomes one line, so that nothing in it looks like a
    heading; an empty one is left out.
    """
    parts = (("FINDINGS", findings), ("IMPRESSION", impression))
    lines = [f"{name}: {' '.join(content.split())}" for name, content in parts if content.split()]
    return "\n".join(lines)


@dataclass(frozen=True)
class SourceQuestion:
    """One question as it is upstream, ``row`` being its place in the file or files (0-based, filtered rows counted).

    A multiple-choice question has ``options`` (letter → text) and ``label``, the letter of the right one; its
    ``answer`` is that option's text. ``groups`` are upstream descriptors for tables, such as organ or modality.
    ``origin`` says where the images come from (image, video), as upstream names it; without one their names do.
    """

    id: str
    row: int
    question: str
    answer: str
    images: tuple[Picture, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    label: str | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""

    @property
    def shows(self) -> frozenset[str]:
        """Keys that questions about the same images share: their origin, or the names of their images."""
        return frozenset([self.origin] if self.origin else [image.name for image in self.images])


class Questions(list[SourceQuestion]):
    """The questions of a data set in upstream order; ``left_out`` counts rows that cannot be asked, by reason."""

    def __init__(self, questions: Iterable[SourceQuestion], left_out: Mapping[str, int] | None = None) -> None:
        super().__init__(questions)
        self.left_out: Counter[str] = Counter(left_out or {})
