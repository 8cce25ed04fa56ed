"""Detection's pictures: the image with the boxes that counted and the true ones, and whether each found its pair."""

from __future__ import annotations

from typing import Any, Literal

from automedbench.base.records import CaseScore
from automedbench.base.views import Box, Frame
from automedbench.tracks import Drawing, ScoringInputs
from automedbench.tracks.common.pictures import photo_layer

MAX_BOXES = 300
"""Boxes of a side that are drawn: the best-scored predictions."""


def show(inputs: ScoringInputs, case: CaseScore) -> Drawing:
    """The image with the boxes of the report; parts of boxes outside the image are cut off."""
    layer, (width, height) = photo_layer("input", inputs.given(case.case) / inputs.card.inputs[0].file)
    size = (case.detail["width"], case.detail["height"])
    predicted = sorted(case.detail["boxes"], key=lambda box: -float(box["score"]))
    boxes = [
        box
        for side, found in (("reference", case.detail["reference"]), ("prediction", predicted))
        for box in (_box(side, each, size) for each in found[:MAX_BOXES])  # type: ignore[arg-type]
        if box is not None
    ]
    more = len(predicted) - MAX_BOXES
    title = f"image of {size[0]} × {size[1]} pixels" + (f" · {more} low-scored boxes not drawn" if more > 0 else "")
    return Drawing(frames=[Frame(title=title, width=width, height=height, layers=[layer], boxes=boxes)])


def _box(side: Literal["prediction", "reference"], drawn: dict[str, Any], size: tuple[int, int]) -> Box | None:
    """A box as shares of the image; None where nothing of it lies inside."""
    x0, x1 = (min(1.0, max(0.0, drawn[name] / size[0])) for name in ("x1", "x2"))
    y0, y1 = (min(1.0, max(0.0, drawn[name] / size[1])) for name in ("y1", "y2"))
    if x0 >= x1 or y0 >= y1:
        return None
    score = min(1.0, max(0.0, drawn["score"])) if "score" in drawn else None
    return Box(side=side, label=drawn["class"][:100], x0=x0, y0=y0, x1=x1, y1=y1, score=score, matched=drawn["matched"])
