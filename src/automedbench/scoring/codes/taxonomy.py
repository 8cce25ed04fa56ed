"""Taxonomy of the five codes, in one place: the page, ``automedbench explain`` and the docs take words from here.

Names and meanings follow tables 6, 15 and 16 of the paper, in our words. The public code of April 2026 uses the same
labels for other things (E1 hallucination, E2 resource, E3 logic, E4 code, E5 format): never put both into one table.
"""

from __future__ import annotations

from dataclasses import dataclass

from automedbench.base.records import Stage

TAXONOMY = "cause-v2"
CODES_VERSION = 6
"""Raised when a run could get other codes: its numbers are then put together again, and nothing else is repeated."""
KNOWLEDGE = "E1"
"""The one code of missing knowledge; the others are of engineering."""


@dataclass(frozen=True)
class CodeText:
    """One code: a short title, what it means, and what it says in the stages where it occurs."""

    code: str
    title: str
    meaning: str
    stages: dict[Stage, str]


CODES: dict[str, CodeText] = {
    "E1": CodeText(
        "E1",
        "Understanding",
        "The agent solved another problem than the one it was given, chose a method that cannot produce what was asked "
        "for, or made up a requirement. A matter of knowledge; only a judge gives it.",
        {
            "S1": "The plan aims at another result, or at a method that cannot give it.",
            "S4": "What was produced answers another question.",
        },
    ),
    "E2": CodeText(
        "E2",
        "Data or model set-up",
        "The task was understood, but data, a model, a package, an interface, time, memory or disk was not to be had "
        "or could not be loaded, and no way around it was found.",
        {
            "S2": "Packages, weights or data could not be found, fetched, installed or loaded.",
            "S3": "A resource ran out while one case was tried.",
            "S4": "A resource ran out in the full run: the time limit, memory, disk.",
            "S5": "Time ran out before submit_results was called.",
        },
    ),
    "E3": CodeText(
        "E3",
        "Verification",
        "Something showed that an intermediate or a final output was bad, and it was not noticed or not repaired.",
        {
            "S3": "No code read an output back and checked it, or a check failed and nothing was changed.",
            "S4": "The final outputs are bad in a way that a look at them shows: empty, blank, alike, off the scale.",
            "S5": "The answer to submit_results named bad outputs, and they were submitted as they were.",
        },
    ),
    "E4": CodeText(
        "E4",
        "Implementation",
        "The pipeline was sound, but its code failed while it ran, or broke off after a part, and was not repaired.",
        {
            "S1": "Code failed before any set-up, and nothing later made an output.",
            "S2": "Code failed during set-up for a reason of its own.",
            "S3": "The attempt at a single case failed and was given up.",
            "S4": "The full run failed or broke off after some cases.",
            "S5": "The last repair before the submission failed.",
        },
    ),
    "E5": CodeText(
        "E5",
        "Submission",
        "Outputs exist or could exist, but they are missing, incomplete, under another name, at another place, of "
        "another form than asked for, or were never submitted.",
        {
            "S4": "Outputs are missing, malformed, misnamed or misplaced.",
            "S5": "submit_results was never called, or never accepted.",
        },
    ),
}
