"""The source record of question answering: one question about one or more images, with its gold answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from automedbench.datasets.pictures import Picture


@dataclass(frozen=True)
class SourceQuestion:
    """One question as it is upstream, ``row`` being its place in the file (0-based, filtered rows counted).

    A multiple-choice question has ``options`` (letter → text) and ``label``, the letter of the right one; its
    ``answer`` is that option's text. ``groups`` are upstream descriptors for tables, such as organ or modality.
    """

    id: str
    row: int
    question: str
    answer: str
    images: tuple[Picture, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    label: str | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
