"""MedFrameQA as on the Hugging Face hub: several frames per question.

Defects: a row with six options, one without any frame, frames that are empty or hold an empty record, two questions
about one video, and a column (reasoning_chain) that gives the answer away.
"""

from __future__ import annotations

from typing import Any

from automedbench_rehearsal.making.questions import TELLTALE, cell, hub_table
from automedbench_rehearsal.upstreams import Upstream

FRAMES = [f"image_{number}" for number in range(1, 6)]
# frames, number of options, right letter, video
ROWS = [
    (2, 5, "C", "v1"),
    (5, 5, "A", "v2"),
    (3, 6, "F", "v3"),
    (0, 5, "B", "v4"),
    (4, 5, "E", "v5"),
    (2, 5, "D", "v1"),
    (3, 4, "B", "v6"),
]


def upstream() -> Upstream:
    """One test file of seven rows."""
    rows = [_row(number, *facts) for number, facts in enumerate(ROWS, 1)]
    table = hub_table(rows, FRAMES, ["options"])
    return Upstream(hubs={"SuhaoYu1020/MedFrameQA": {"data/test-00000-of-00001.parquet": table, "README.md": b"x\n"}})


def _row(number: int, frames: int, options: int, label: str, video: str) -> dict[str, Any]:
    shown = {name: cell("medframeqa", video, number, name, name="f.jpg") for name in FRAMES[:frames]}
    empty: dict[str, Any] = dict.fromkeys(FRAMES[frames:])
    if frames == 2:
        empty["image_5"] = {"bytes": None, "path": None}
    return {
        "question_id": f"q{number:04d}",
        "question": f"Which change do the frames of case {number} show?",
        "options": [f"finding {letter} of {number}" for letter in "ABCDEF"[:options]],
        "correct_answer": label,
        **shown,
        **empty,
        "system": "respiratory system",
        "organ": "lung" if number % 2 else "pleura",
        "modality": "CT" if number % 3 else "MRI",
        "video_id": video,
        "reasoning_chain": f"{TELLTALE}: the answer is {label}",
    }
