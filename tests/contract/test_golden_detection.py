"""Detection against the golden data: IoU, matching, AP and whole submissions.

Cases marked ``reference_right`` give the reference's numbers; the others give ``recommended``, or what the judgement
says, entered here by hand.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_data import golden as golden_of
from toys._bench import inputs
from toys.detection import make_card

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import write_bytes
from automedbench.base.records import CaseEntry, Manifest
from automedbench.metrics.average_precision import (
    UNMATCHED,
    Boxes,
    Matching,
    evaluate_thresholds,
    make_boxes,
    paired_iou,
    precision_recall_f1,
)
from automedbench.tracks.detection import TRACK as detection
from automedbench.tracks.detection.score import coco_average_precision

golden = functools.partial(golden_of, "det")
CORNERS = ("x1", "y1", "x2", "y2")

# The notes in words: no truth leaves recall undefined; there is no wild card.
MATCH_BY_HAND: dict[str, dict[str, Any]] = {
    "no_gt": {"tp": 0, "fp": 1, "fn": 0, "precision": 0.0, "recall": None, "f1": 0.0},
    "pred_wildcard": {"tp": 0, "fp": 1, "fn": 1, "precision": 0.0, "recall": 0.0, "f1": 0.0},
}


def answered(case: Any) -> bool:
    """Whether a matching case has an expected answer of well-formed boxes."""
    return not case or case["judgement"]["reference_right"] or case["id"] in MATCH_BY_HAND


def name_of(box: dict[str, Any]) -> str:
    return str(box["class"]).strip().lower()


def as_boxes(images: dict[str, list[dict[str, Any]]], order: list[str], classes: list[str]) -> Boxes:
    """Boxes of all images; a missing score is 1."""
    rows = [(number, box) for number, image in enumerate(order) for box in images.get(image, [])]
    return make_boxes(
        [number for number, _ in rows],
        [classes.index(name_of(box)) for _, box in rows],
        [[box[key] for key in CORNERS] for _, box in rows],
        [box.get("score", 1.0) for _, box in rows],
    )


@pytest.mark.parametrize("case", golden("iou"))
def test_iou(case: Any) -> None:
    """Two boxes."""
    found = paired_iou(np.array([case["a"]], float), np.array([case["b"]], float))
    assert found[0] == pytest.approx(case["expected"], abs=1e-12)


@pytest.mark.parametrize("case", [each for each in golden("match") if answered(each.values[0])])
def test_match(case: Any) -> None:
    """One image: counts, rates, and which prediction got which truth box."""
    classes = sorted({name_of(box) for box in case["pred"] + case["gt"]}) or ["none"]
    predictions, reference = (as_boxes({"i": case[key]}, ["i"], classes) for key in ("pred", "gt"))
    result = evaluate(
        predictions,
        reference,
        n_classes=len(classes),
        iou_threshold=case["iou_threshold"],
        max_detections=10**6,
    )
    tp = int((result.matched != UNMATCHED).sum())
    found = {"tp": tp, "fp": len(predictions) - tp, "fn": len(reference) - tp}
    found |= precision_recall_f1(tp, len(predictions), len(reference))
    expected = MATCH_BY_HAND.get(case["id"], case["expected"])
    assert found == pytest.approx({key: expected[key] for key in found}, abs=1e-9)
    if "matches" in expected:
        assert assignments(result) == {match["pred_index"]: match["gt_index"] for match in expected["matches"]}


def evaluate(predictions: Boxes, reference: Boxes, *, iou_threshold: float, **options: int) -> Matching:
    """At one threshold."""
    return evaluate_thresholds(predictions, reference, iou_thresholds=[iou_threshold], **options)[0]


def assignments(result: Matching) -> dict[int, int | None]:
    """Row of the prediction → row of the truth box or None."""
    pairs = zip(result.ranked.tolist(), result.matched.tolist(), strict=True)
    return {prediction: None if truth == UNMATCHED else truth for prediction, truth in pairs}


@pytest.mark.parametrize("case", golden("map"))
def test_map(case: Any) -> None:
    """Several images: AP per class and mean, by our own code and by its twin."""
    order = sorted({*case["pred"], *case["gt"]})
    every = [box for images in (case["pred"], case["gt"]) for boxes in images.values() for box in boxes]
    classes = sorted({name_of(box) for box in every}) or ["none"]
    predictions, reference = (as_boxes(case[key], order, classes) for key in ("pred", "gt"))
    options = {"n_classes": len(classes), "iou_threshold": case["iou_threshold"], "max_detections": 100}
    result = evaluate(predictions, reference, **options)
    recommended = case["recommended"]
    expected = [recommended["ap"].get(name, np.nan) for name in classes]
    np.testing.assert_allclose(result.ap, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(coco_average_precision(predictions, reference, **options), expected, rtol=0, atol=1e-9)
    mean = np.nan if recommended["map"] is None else recommended["map"]
    np.testing.assert_allclose(result.mean_ap, mean, rtol=0, atol=1e-9)
    if case["judgement"]["reference_right"]:
        assert result.mean_ap == pytest.approx(case["reference"]["mAP"], abs=1e-9)


def lay_out(case: Any, folder: Path) -> Manifest:
    """Private and submitted files exactly as the golden case writes them."""
    for name, specification in case["files"].items():
        text = json.dumps(specification["json"]) if "json" in specification else specification.get("text")
        if text is not None:
            write_bytes(folder / name.replace("agent/", "submission/agents_outputs/", 1), text.encode())
    width, height = case["task"]["size"]
    geometry = {"width": width, "height": height}
    cases = [CaseEntry(id=name, inputs={}, private={}, geometry=geometry) for name in case["patients"]]
    return Manifest(task="golden", task_version=1, track="detection", dataset="golden", sampling="", cases=cases)


@pytest.mark.parametrize("case", golden("pipeline"))
def test_pipeline(case: Any, tmp_path: Path) -> None:
    """A whole submission: format check, quality, completion, and the flags behind S4 and S5."""
    card = make_card(*case["task"]["classes"], iou_threshold=case["iou_threshold"])
    manifest = lay_out(case, tmp_path)
    given = inputs(card, manifest, tmp_path / "submission", tmp_path / "private")
    checked = given.checked
    recommended = case["recommended"]
    if "harness_error" in recommended:
        with pytest.raises(InfrastructureError):
            detection.score(given)
        return
    score = detection.score(given)
    ap = {name: group["ap50"] for name, group in score.groups.items() if group["ap50"] is not None}
    # Recommended values of this file are rounded to six digits (README).
    assert ap == pytest.approx(recommended["ap"], abs=1e-6)
    assert score.quality == pytest.approx(recommended["mAP"], abs=1e-6)
    assert score.quality * checked.completion_rate == pytest.approx(recommended["task_score"], abs=1e-6)
    assert checked.completion_rate == pytest.approx(recommended["completion_rate"], abs=1e-6)
    assert checked.valid_rate == pytest.approx(recommended["valid_rate"], abs=1e-6)
    assert 0.5 * checked.completion_rate + 0.5 * checked.submitted_valid == pytest.approx(recommended["s4"])
    assert 0.5 * (score.quality > 0) + 0.5 * checked.all_valid == pytest.approx(recommended["s5"])
    assert abs(detection.verify(given)[1] - score.quality) <= 1e-9
