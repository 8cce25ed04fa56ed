"""PathVQA as on the Hugging Face hub: Parquet with pictures in it and no ids.

Defects: pictures repeat from row to row, one is CMYK, answers vary in case and white space.
"""

from __future__ import annotations

from automedbench_rehearsal.making.questions import cell, hub_table
from automedbench_rehearsal.upstreams import Upstream

TEST = [
    [
        ("liver", "where is the pigment located?", "in the portal tract"),
        ("liver", "is fibrosis present?", "yes"),
        ("skin", "what is covered by keratin?", " Squamous Epithelium "),
    ],
    [("kidney", "does this image show a glomerulus?", "Yes"), ("kidney", "are crescents present?", "no")],
    [("ink", "what does this image show?", "metastatic carcinoma"), ("lung", "how many granulomas are seen?", "two")],
]
VALIDATION = [
    ("spleen", "is the white pulp expanded?", "yes"),
    ("colon", "what is in the crypts?", "neutrophils"),
    ("bone", "is there necrosis?", "no"),
]


def upstream() -> Upstream:
    """Three test files, the first of three validation files, and a training file that nothing needs."""
    files = {f"data/test-{number:05d}-of-00003.parquet": _table(rows) for number, rows in enumerate(TEST)}
    files["data/validation-00000-of-00003.parquet"] = _table(VALIDATION)
    files["data/train-00000-of-00007.parquet"] = _table(VALIDATION[:1])
    files["README.md"] = b"made up\n"
    return Upstream(hubs={"flaviagiammarino/path-vqa": files})


def _table(rows: list[tuple[str, str, str]]) -> bytes:
    cells = [
        {
            "image": cell("pathvqa", picture, mode="CMYK" if picture == "ink" else "RGB"),
            "question": question,
            "answer": answer,
        }
        for picture, question, answer in rows
    ]
    return hub_table(cells, ["image"])
