"""Boxes as readers return them: one typed record per source image, with names as they are upstream."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from automedbench.datasets.forms.pictures import Picture

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
