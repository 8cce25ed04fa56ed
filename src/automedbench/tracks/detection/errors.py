"""Errors of detection runs: no boxes, boxes beside the image, or without scores."""

from __future__ import annotations

from dataclasses import replace

from automedbench.base.records import CaseScore
from automedbench.tracks import Outputs, Signal
from automedbench.tracks.common.signals import QUALITY_FAR_BELOW, most, remarked

MISHAPS = {
    "E1": "The class of the whole image instead of boxes.",
    "E2": "Weights or the list of their classes are missing.",
    "E3": "Boxes beside the image, or all with the score 0.",
    "E4": "Non-maximum suppression or the way back to pixels fails.",
    "E5": "Corners as centre and size instead of two corners.",
}


def no_boxes(outputs: Outputs) -> str | None:
    """Not one box on images that have objects."""
    return most(_with_objects(outputs), lambda case: not case.metrics.get("n_predictions"), "no box", _n_objects)


def _with_objects(outputs: Outputs) -> Outputs:
    cases = [case for case in outputs.detail.cases if case.metrics.get("n_truth")]
    return replace(outputs, detail=outputs.detail.model_copy(update={"cases": cases}))


def _n_objects(case: CaseScore) -> str:
    return f"0 boxes, {case.metrics.get('n_truth') or 0:g} objects"


def boxes_outside(outputs: Outputs) -> str | None:
    """Boxes that leave their image, in nearly every file."""
    return remarked(outputs, "out_of_bounds", "boxes outside the image")


def zero_scores(outputs: Outputs) -> str | None:
    """Every box has the score 0."""
    scores = [box.get("score") for case in outputs.scored for box in case.detail.get("boxes", [])]
    if not scores or any(scores):
        return None
    return f"all {len(scores)} boxes have the score 0"


SIGNALS = (
    Signal("verify.no_boxes", "no box on nearly all images with objects", no_boxes),
    Signal("verify.boxes_outside", "boxes outside the image in nearly all files", boxes_outside),
    Signal("verify.zero_scores", "every box has the score 0", zero_scores),
    QUALITY_FAR_BELOW,
)
