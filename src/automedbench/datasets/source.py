"""What readers return: one typed record per source image, study or question, with names as they are upstream."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from automedbench.datasets.pictures import Picture


@dataclass(frozen=True)
class SourceBox:
    """A truth box in pixels of the image: 0-based, half-open, inside the image, of positive area."""

    source_class: str
    x1: float
    y1: float
    x2: float
    y2: float


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

    @property
    def classes(self) -> frozenset[str]:
        """Upstream names of the classes that occur."""
        return frozenset(box.source_class for box in self.boxes)
