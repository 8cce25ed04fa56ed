"""MMMU as on the Hugging Face hub: a folder per subject, of which five belong to Health & Medicine.

Defects: options are a list written as a text, some are images, their number differs; an open question; an image column
that is skipped; an explanation that gives the answer away; a subject of another discipline.
"""

from __future__ import annotations

from typing import Any

from automedbench_rehearsal.making.questions import TELLTALE, cell, hub_table
from automedbench_rehearsal.upstreams import Upstream

SUBJECTS = (
    *("Basic_Medical_Science", "Clinical_Medicine", "Diagnostics_and_Laboratory_Medicine"),
    *("Pharmacy", "Public_Health"),
)
IMAGES = [f"image_{number}" for number in range(1, 8)]
# question, options, answer, columns with an image; the same in every subject
ROWS: list[tuple[str, list[str], str, tuple[int, ...]]] = [
    (
        "Which cell is shown in <image 1>?",
        ["Macrophage", "Don't know: it's a 'blast'", "Neutrophil", "T cell"],
        "B",
        (1,),
    ),
    ("Which of these is the drug?", ["<image 1>", "<image 2>", "<image 3>"], "C", (1, 2, 3)),
    ("How many cases are in <image 1>?", [], "42", (1,)),
    ("Compare <image 3> with <image 1>: is it larger?", ["Yes", "No"], "A", (1, 3)),
]


def upstream() -> Upstream:
    """Four validation rows and one dev row per subject; one of the four is an open question."""
    files: dict[str, bytes] = {"README.md": b"made up\n"}
    for subject in (*SUBJECTS, "Accounting"):
        validation = [_row("validation", subject, number, *facts) for number, facts in enumerate(ROWS, 1)]
        files[f"{subject}/validation-00000-of-00001.parquet"] = hub_table(validation, IMAGES)
        files[f"{subject}/dev-00000-of-00001.parquet"] = hub_table([_row("dev", subject, 1, *ROWS[0])], IMAGES)
    return Upstream(hubs={"MMMU/MMMU": files})


def _row(
    split: str, subject: str, number: int, question: str, options: list[str], answer: str, images: tuple[int, ...]
) -> dict[str, Any]:
    name = f"{split}_{subject}_{number}"
    pictures = {f"image_{place}": cell("mmmu", name, place, name=f"{name}_{place}.png") for place in images}
    return {
        "id": name,
        "question": question,
        "options": repr(options),
        "explanation": f"{TELLTALE}: {answer}",
        **dict.fromkeys(IMAGES),
        **pictures,
        "img_type": "['Microscopic Images']",
        "answer": answer,
        "topic_difficulty": "Medium",
        "question_type": "multiple-choice" if options else "open",
        "subfield": f"Field {number}",
    }
