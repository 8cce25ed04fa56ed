"""Conversations made by hand for tests of judge, scores and error codes: one careful run, and parts to spoil it."""

from __future__ import annotations

from typing import Any

from automedbench.base.records import CodeCall, Conversation, Message, RunId

RUN = RunId(agent="hand-made", task="bccd-det-task", tier="standard", repeat=1)

BRIEF = """You locate blood cells in images of stained blood smears.
Write agents_outputs/<case>/prediction.json with the boxes of one image, its class and its score.
Suggested families: YOLOv8 checkpoints, Faster R-CNN checkpoints, RetinaNet checkpoints.
First write plan/plan.md: preprocessing, model or checkpoint, inference over every image, export of prediction.json.
"""

PLAN = """# Plan for finding blood cells

Candidates that I weighed: YOLOv8 (no public weights reachable), Hough circles (misses platelets), watershed regions.

## Method

I choose Otsu thresholding and a watershed split, and take one bounding box around every component with a score.

## Steps
1. Preprocessing: convert to HSV, smooth the saturation channel and normalise it.
2. Predict regions for each image in turn, beginning with a single one.
3. Write prediction.json with class, score, x1, y1, x2, y2 and compare the coordinates with the image size.
"""

INSPECT = """import numpy as np
from skimage import io
image = io.imread("/data/public/bccd_0001/image.png")
print(image.shape, image.dtype, image.min(), image.max())
"""

DETECT = """import json
from pathlib import Path
from skimage import io, filters, measure
def run(case):
    image = io.imread(f"/data/public/{case}/image.png")
    regions = measure.regionprops(measure.label(image[..., 1] < filters.threshold_otsu(image[..., 1])))
    target = Path("agents_outputs") / case / "prediction.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"boxes": [box(region) for region in regions]}))
"""

PILOT = DETECT + 'run("bccd_0001")\n'
BATCH = DETECT + "for case in cases:\n    run(case)\n"

CHECK = """import json
from pathlib import Path
from skimage import io
height, width = io.imread("/data/public/bccd_0001/image.png").shape[:2]
found = json.loads(Path("agents_outputs/bccd_0001/prediction.json").read_text())
for item in found["boxes"]:
    assert set(item) == {"class", "score", "x1", "y1", "x2", "y2"}
    assert 0 <= item["x1"] < item["x2"] <= width and 0 <= item["y1"] < item["y2"] <= height
print(len(found["boxes"]), "boxes, all inside", width, height)
"""

PLOT = """import matplotlib.pyplot as plt
figure, axes = plt.subplots()
axes.text(0.1, 0.5, "image")
axes.annotate("boxes", (0.8, 0.5), arrowprops={"arrowstyle": "->"})
figure.savefig("plan/plan.png")
"""

CASES = [f"bccd_{number:04}" for number in range(1, 13)]


def outputs(*cases: str) -> list[str]:
    """The output files of some cases."""
    return [f"agents_outputs/{case}/prediction.json" for case in cases]


def call(number: int, code: str, **changes: Any) -> CodeCall:
    """One code call that went well."""
    fields: dict[str, Any] = {
        "turn": number,
        "call": number,
        "language": "python",
        "code": code,
        "status": "ok",
        "exit_code": 0,
        "elapsed_s": 1.0,
        "stdout": "",
        "stderr": "",
        "stage": "S1",
    }
    return CodeCall.model_validate(fields | changes)


def failing(number: int, code: str, stderr: str, **changes: Any) -> CodeCall:
    """One code call that failed with a message."""
    return call(number, code, status="error", exit_code=1, stderr=stderr, **changes)


def careful_calls() -> list[CodeCall]:
    """Look at an image, plan, draw, one case, check it, all cases."""
    return [
        call(1, INSPECT, stdout="(480, 640, 3) uint8 0 255\n"),
        call(2, "cat > plan/plan.md <<'EOF'\n" + PLAN + "EOF", language="bash", new_files=["plan/plan.md"]),
        call(3, PLOT, new_files=["plan/plan.png"]),
        call(4, PILOT, new_files=outputs("bccd_0001"), stage="S3"),
        call(5, CHECK, stdout="14 boxes, all inside 640 480\n", stage="S3"),
        call(6, BATCH, new_files=outputs(*CASES), stage="S4"),
    ]


def conversation(calls: list[CodeCall] | None = None, **changes: Any) -> Conversation:
    """The careful run, with other calls or other fields."""
    fields: dict[str, Any] = {
        "run": RUN,
        "n_cases": len(CASES),
        "gpu": True,
        "messages": [
            Message(turn=0, role="system", content=BRIEF),
            Message(turn=1, role="assistant", content="I look at one image first."),
        ],
        "calls": careful_calls() if calls is None else calls,
        "plan": PLAN,
        "has_plot": True,
        "workspace_files": {"plan/plan.md": len(PLAN), "plan/plan.png": 14_000} | dict.fromkeys(outputs(*CASES), 900),
    }
    return Conversation.model_validate(fields | changes)
