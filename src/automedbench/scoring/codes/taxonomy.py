"""Taxonomy of the five codes, in one place: the page and the docs take words from here.

Names and meanings follow tables 6, 15 and 16 of the paper, in our words. The public code of April 2026 uses the same
labels for other things (E1 hallucination, E2 resource, E3 logic, E4 code, E5 format): never put both into one table.
"""

from __future__ import annotations

from dataclasses import dataclass

TAXONOMY = "cause-v2"
CODES_VERSION = 6
"""Raised when a run could get other codes: its numbers are then put together again, and nothing else is repeated."""
KNOWLEDGE = "E1"
"""The one code of missing knowledge; the others are of engineering."""


@dataclass(frozen=True)
class CodeText:
    """One code: a short title, and what it means."""

    code: str
    title: str
    meaning: str


CODES: dict[str, CodeText] = {
    "E1": CodeText(
        "E1",
        "Understanding",
        "The agent solved another problem than the one it was given, chose a method that cannot produce what was asked "
        "for, or made up a requirement. A matter of knowledge; only a judge gives it.",
    ),
    "E2": CodeText(
        "E2",
        "Data or model set-up",
        "The task was understood, but data, a model, a package, an interface, time, memory or disk was not to be had "
        "or could not be loaded, and no way around it was found.",
    ),
    "E3": CodeText(
        "E3",
        "Verification",
        "Something showed that an intermediate or a final output was bad, and it was not noticed or not repaired.",
    ),
    "E4": CodeText(
        "E4",
        "Implementation",
        "The pipeline was sound, but its code failed while it ran, or broke off after a part, and was not repaired.",
    ),
    "E5": CodeText(
        "E5",
        "Submission",
        "Outputs exist or could exist, but they are missing, incomplete, under another name, at another place, of "
        "another form than asked for, or were never submitted.",
    ),
}
