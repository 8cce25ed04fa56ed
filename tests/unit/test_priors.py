"""What constant answers earn, per track, worked out by hand."""

from __future__ import annotations

import pytest

from automedbench.base.records import CaseSubmission
from automedbench.tracks.detection.check import Prediction
from automedbench.tracks.detection.score import DetectionEvidence
from automedbench.tracks.detection.score import prior as box_prior
from automedbench.tracks.detection.settings import DetectionSettings
from automedbench.tracks.detection.stage import BoxTruth
from automedbench.tracks.segmentation.compare import CaseCounts, TargetCounts
from automedbench.tracks.segmentation.score import SegmentationReport
from automedbench.tracks.segmentation.settings import SegmentationSettings


def truth(width: int, *corners: tuple[float, float, float, float]) -> BoxTruth:
    boxes = [{"class": "cell", "x1": a, "y1": b, "x2": c, "y2": d} for a, b, c, d in corners]
    return BoxTruth.model_validate({"image_id": "a", "width": width, "height": 100, "boxes": boxes})


def test_the_median_box_of_a_class() -> None:
    """Three images, the middle box at a tenth to a half of each: the constant hits two of three truth boxes.

    Images of 100 and 200 pixels; boxes as shares: (.1, .1, .5, .5) twice and (.6, .6, .9, .9). The medians of the
    corners are (.1, .1, .5, .5): hits in images 1 and 2, a miss in image 3. All scores are equal, so the order is that
    of images: precision is 1 up to a recall of 2/3, and AP over 101 points is 67/101.
    """
    truths = [truth(100, (10, 10, 50, 50)), truth(200, (20, 10, 100, 50)), truth(100, (60, 60, 90, 90))]
    evidence = DetectionEvidence(["cell"], truths, [Prediction([], [], 0)] * 3)
    assert box_prior(evidence, DetectionSettings()).value == pytest.approx(67 / 101)


@pytest.mark.parametrize(("policy", "expected"), [("one", 0.25), ("skip", 0.0)])
def test_masks_without_a_voxel(policy: str, expected: float) -> None:
    """Liver is in both cases, the lesion in one: absent and not found counts 1, so (0 + ½) / 2, or is left out."""
    verdict = CaseSubmission(case="a", status="missing", completed=False, files={}, problems=[])
    cases = [
        CaseCounts(verdict, {"liver": TargetCounts(50, 40, 30), "lesion": TargetCounts(lesion, 5, 0)}, False, 0.001)
        for lesion in (9, 0)
    ]
    report = SegmentationReport(cases, ["liver", "lesion"], SegmentationSettings.model_validate({"both_empty": policy}))
    assert report.prior().value == expected
