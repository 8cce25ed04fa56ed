"""Stages told from what a call did. Expected values: docs/specification.md, 8.8."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from automedbench.agent.workspace import infer_stage, read_stage_label
from automedbench.base.records import Stage

LOOKS = partial(infer_stage, "print(1)")
PLAN = partial(infer_stage, "x", changed_files=["plan/plan.md"])
MANY = 40  # cases; a tenth of them is four

TABLE: dict[str, tuple[Callable[..., Stage], Stage, Stage]] = {
    "nothing seen, at the start": (LOOKS, "S1", "S1"),
    "nothing seen, later": (LOOKS, "S3", "S3"),
    "plan": (PLAN, "S1", "S1"),
    "plan drawn": (partial(infer_stage, "x", changed_files=["plan/plan.png"]), "S1", "S1"),
    "pip install": (partial(infer_stage, "pip install --user torch"), "S1", "S2"),
    "python -m pip install": (partial(infer_stage, "python3 -m pip -q install torch"), "S1", "S2"),
    "virtual environment": (partial(infer_stage, "python3 -m venv env"), "S1", "S2"),
    "weights in the cache": (partial(infer_stage, "x", cache_growth=2 << 20), "S1", "S2"),
    "model loaded, no output": (partial(infer_stage, "m = AutoModel.from_pretrained('x')"), "S1", "S2"),
    "model loaded for one case": (partial(infer_stage, "torch.load('w')", cases_written=1, n_cases=MANY), "S2", "S3"),
    "up to a tenth of the cases": (partial(infer_stage, "x", cases_written=4, n_cases=MANY), "S2", "S3"),
    "more than a tenth": (partial(infer_stage, "x", cases_written=5, n_cases=MANY), "S2", "S4"),
    "two of three cases are few": (partial(infer_stage, "x", cases_written=2, n_cases=3), "S2", "S3"),
    "three of three are all": (partial(infer_stage, "x", cases_written=3, n_cases=3), "S2", "S4"),
    "reads outputs, all exist": (partial(infer_stage, "ls agents_outputs", all_outputs_exist=True), "S4", "S5"),
    "reads outputs, some are missing": (partial(infer_stage, "ls agents_outputs"), "S4", "S4"),
    "writes outputs again": (
        partial(infer_stage, "agents_outputs", cases_written=9, n_cases=9, all_outputs_exist=True),
        "S4",
        "S4",
    ),
    "label without evidence": (partial(infer_stage, "# S3: one image\nx"), "S1", "S3"),
    "label breaks a tie": (
        partial(infer_stage, "# s2 set-up\npip install x", changed_files=["plan/plan.md"]),
        "S1",
        "S2",
    ),
    "label against evidence": (partial(infer_stage, "# S5 done\nx", cases_written=1, n_cases=MANY), "S2", "S3"),
    "never back": (PLAN, "S4", "S4"),
}


@pytest.mark.parametrize(("stage_after", "previous", "expected"), TABLE.values(), ids=TABLE.keys())
def test_stage(stage_after: Callable[..., Stage], previous: Stage, expected: Stage) -> None:
    assert stage_after(previous) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("", None),
        ("print(1)  # s3", None),
        ("# Stage S4: all cases", "S4"),
        ("\n\n# s2", "S2"),
        ("import os\nimport sys\n# [S3] check", "S3"),
        ("a\nb\nc\n# s3", None),
        ("# s6 does not exist", None),
        ("# ssd300 is a model", None),
    ],
)
def test_label(code: str, expected: Stage | None) -> None:
    assert read_stage_label(code) == expected
