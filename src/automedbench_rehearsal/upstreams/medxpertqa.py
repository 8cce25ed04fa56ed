"""MedXpertQA as on the Hugging Face hub: JSON Lines and one archive of images.

Defects: the question's text ends with the options, image names have several suffixes, and the archive also holds what
no question names.
"""

from __future__ import annotations

from typing import Any

from automedbench_rehearsal.making.files import json_lines, zipped
from automedbench_rehearsal.making.pictures import picture, scene
from automedbench_rehearsal.making.questions import jpeg
from automedbench_rehearsal.upstreams import Upstream

# images, right letter
TEST = [(1, "A"), (1, "E"), (6, "C"), (2, "B"), (1, "D")]
DEV = [(1, "C"), (2, "A")]
SUFFIXES = ("jpeg", "png", "jpg")


def upstream() -> Upstream:
    """Five test and two dev questions of the MM subset; of the text subset a file that nothing needs."""
    test = [_row("MM", number, *facts) for number, facts in enumerate(TEST)]
    dev = [_row("MM-dev", number, *facts) for number, facts in enumerate(DEV)]
    images = {f"images/{name}": _image(name) for row in [*test, *dev] for name in row["images"]}
    images["images/MM-1999-a.jpeg"] = jpeg("medxpertqa", "of no question")
    files = {
        "MM/test.jsonl": json_lines(test),
        "MM/dev.jsonl": json_lines(dev),
        "Text/test.jsonl": json_lines([{"id": "Text-0"}]),
        "images.zip": zipped(images),
    }
    return Upstream(hubs={"TsinghuaC3I/MedXpertQA": files})


def _row(prefix: str, number: int, images: int, label: str) -> dict[str, Any]:
    options = {letter: f"diagnosis {letter} of {prefix} {number}" for letter in "ABCDE"}
    choices = " ".join(f"({letter}) {text}" for letter, text in options.items())
    suffix = SUFFIXES[number % len(SUFFIXES)]
    return {
        "id": f"{prefix}-{number}",
        "question": f"A patient has sign {number}. What is the diagnosis?\nAnswer Choices: {choices}",
        "options": options,
        "label": label,
        "images": [f"{prefix}-{number}-{letter}.{suffix}" for letter in "abcdef"[:images]],
        "medical_task": ("Diagnosis", "Treatment", "Basic Science")[number % 3],
        "body_system": ("Cardiovascular", "Nervous")[number % 2],
        "question_type": ("Reasoning", "Understanding")[number % 2],
    }


def _image(name: str) -> bytes:
    return picture(scene((28, 36), "medxpertqa", name)) if name.endswith("png") else jpeg("medxpertqa", name)
