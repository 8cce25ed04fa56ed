"""PMC-VQA as on the Hugging Face hub: CSV tables and an archive of figures.

Defects: choices begin with their letter, the right one is told by text or by letter, cells hold quotes and line breaks,
one right answer is none of the choices, and captions give answers away.
"""

from __future__ import annotations

from automedbench_rehearsal.making.files import table, zipped
from automedbench_rehearsal.making.questions import TELLTALE, jpeg
from automedbench_rehearsal.upstreams import Upstream

CHOICES = ("Diffuse uptake", 'A "halo" sign', "No uptake,\nnone at all", "Cannot be determined")
# figure, answer
CLEAN = [
    ("PMC1_F1.jpg", CHOICES[1]),
    ("PMC1_F2.jpg", " A:Diffuse uptake "),
    ("PMC2_F1.jpg", "C"),
    ("PMC3_F1.jpg", "cannot be determined"),
    ("PMC4_F1.jpg", "Something else"),
    ("PMC4_F1.jpg", CHOICES[0]),
]
TRAIN = [("PMC5_F1.jpg", "B"), ("PMC5_F2.jpg", "D")]


def upstream() -> Upstream:
    """The cleaned test table, the training table with letters in a column of their own, and the figures."""
    clean = [_row(number, *facts) | {"split": "test"} for number, facts in enumerate(CLEAN)]
    train = [
        _row(number, figure, CHOICES["ABCD".index(letter)]) | {"Answer_label": letter}
        for number, (figure, letter) in enumerate(TRAIN)
    ]
    figures = {figure for figure, _ in [*CLEAN, *TRAIN]}
    files = {
        "test_clean.csv": table(clean),
        "train.csv": table(train),
        "test.csv": table(clean[:1]),
        "images.zip": zipped({f"images/{name}": jpeg("pmc_vqa", name) for name in sorted(figures)}),
    }
    return Upstream(hubs={"RadGenome/PMC-VQA": files})


def _row(number: int, figure: str, answer: str) -> dict[str, str]:
    row = {
        "index": str(number),
        "Figure_path": figure,
        "Caption": f'{TELLTALE}, "figure {number}": {answer}',
        "Question": f"What does figure {number}, shown here, tell?",
    }
    row |= {f"Choice {letter}": f" {letter}:{text} " for letter, text in zip("ABCD", CHOICES, strict=True)}
    return row | {"Answer": answer}
