"""Reports as readers return them: one record per study or captioned image."""

from __future__ import annotations

from dataclasses import dataclass

from automedbench.datasets.forms.pictures import Picture


@dataclass(frozen=True)
class SourceReport:
    """A study with its images and its report as the data set has it, headings included."""

    id: str
    images: tuple[Picture, ...]
    text: str
    subject: str = ""
    """Patient upstream; empty when the data set does not say."""


def compose(findings: str, impression: str) -> str:
    """A report of sections that the data set keeps apart. Each becomes one line, so that nothing in it looks like a
    heading; an empty one is left out.
    """
    parts = (("FINDINGS", findings), ("IMPRESSION", impression))
    lines = [f"{name}: {' '.join(content.split())}" for name, content in parts if content.split()]
    return "\n".join(lines)
