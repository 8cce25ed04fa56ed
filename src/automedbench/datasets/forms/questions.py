"""The source record of question answering: one question about one or more images, with its gold answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from automedbench.datasets.forms.pictures import Picture


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
        """What tells that two questions show the same: their origin, or the names of their images."""
        return frozenset([self.origin] if self.origin else [image.name for image in self.images])


class Questions(list[SourceQuestion]):
    """The questions of a data set in upstream order; ``left_out`` counts rows that cannot be asked, by reason."""

    def __init__(self, questions: Iterable[SourceQuestion], left_out: Mapping[str, int] | None = None) -> None:
        super().__init__(questions)
        self.left_out: Counter[str] = Counter(left_out or {})
