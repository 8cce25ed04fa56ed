"""101-point AP, matching, and the agreement with pycocotools on random input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from automedbench.metrics.average_precision import (
    UNMATCHED,
    Boxes,
    Matching,
    average_precision,
    evaluate_thresholds,
    make_boxes,
    precision_recall_f1,
    rank,
)
from automedbench.tracks.detection.score import coco_average_precision

A, B, C = (0, 0, 10, 10), (20, 20, 30, 30), (50, 50, 60, 60)
NONE = make_boxes([], [], [])


def one_image(*corners: tuple[float, ...], scores: list[float] | None = None) -> Boxes:
    """Boxes of class 0 on image 0."""
    return make_boxes([0] * len(corners), [0] * len(corners), list(corners), scores)


def evaluate(predictions: Boxes, reference: Boxes, *, iou_threshold: float, **options: int) -> Matching:
    """At one threshold."""
    return evaluate_thresholds(predictions, reference, iou_thresholds=[iou_threshold], **options)[0]


def matching(predictions: Boxes, reference: Boxes, iou_threshold: float = 0.5, n_classes: int = 1) -> Matching:
    return evaluate(predictions, reference, n_classes=n_classes, iou_threshold=iou_threshold, max_detections=100)


@pytest.mark.parametrize(
    ("hits", "n_reference", "expected"),
    [
        pytest.param([], 3, 0.0, id="no predictions"),
        pytest.param([0, 0], 3, 0.0, id="only false positives"),
        pytest.param([1], 1, 1.0, id="perfect"),
        pytest.param([1, 0, 0], 1, 1.0, id="false positives after the last hit are free"),
        pytest.param([0, 1], 1, 0.5, id="false positive first"),
        pytest.param([1], 2, 51 / 101, id="half: recall points 0 to 50"),
        pytest.param([1, 0, 1], 2, (51 + 50 * 2 / 3) / 101, id="duplicate between two hits"),
        pytest.param([0, 1, 1], 2, 2 / 3, id="envelope lifts the first point"),
        pytest.param([1] * 57, 100, 58 / 101, id="57 of 100: recall equals a point"),
        pytest.param([1] * 35 + [0], 100, 36 / 101, id="35 of 100: a floating grid loses this point"),
        pytest.param([1], 3, 34 / 101, id="third: 33.3 points and 0"),
    ],
)
def test_average_precision(hits: list[int], n_reference: int, expected: float) -> None:
    """By hand: count the recall points that each precision covers."""
    assert average_precision(np.array(hits, dtype=bool), n_reference) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("predictions", "reference", "expected"),
    [
        pytest.param(NONE, NONE, [], id="nothing"),
        pytest.param(NONE, one_image(A), [], id="no predictions"),
        pytest.param(one_image(A), NONE, [UNMATCHED], id="no truth"),
        pytest.param(one_image((0, 0, 10, 5)), one_image(A), [0], id="IoU exactly at the threshold matches"),
        pytest.param(one_image((0, 0, 10, 4.9)), one_image(A), [UNMATCHED], id="below the threshold"),
        pytest.param(one_image(A, A), one_image(A), [0, UNMATCHED], id="duplicate is wrong"),
        pytest.param(one_image(A), one_image(A, A), [0], id="equal IoU: first truth box"),
        pytest.param(
            # IoU 2/3 and 9/11 for the first; 3/7 and 9/11 for the second, whose best is taken.
            one_image((2, 0, 12, 10), (4, 0, 14, 10), scores=[0.9, 0.8]),
            one_image((0, 0, 10, 10), (3, 0, 13, 10)),
            [1, UNMATCHED],
            id="best overlap first, no reassignment",
        ),
        pytest.param(
            one_image((0, 0, 10, 6), A, scores=[0.8, 0.9]), one_image(A), [0, UNMATCHED], id="higher score goes first"
        ),
        pytest.param(make_boxes([0], [1], [A]), one_image(A), [UNMATCHED], id="other class"),
        pytest.param(make_boxes([1], [0], [A]), one_image(A), [UNMATCHED], id="other image"),
    ],
)
def test_matching(predictions: Boxes, reference: Boxes, expected: list[int]) -> None:
    """By hand, in order of rank (docs/specification.md, 10.5)."""
    assert matching(predictions, reference, n_classes=2).matched.tolist() == expected


def test_classes_without_truth_have_no_ap() -> None:
    """Perfect class 0, missed class 1, predicted class 2 without truth: mean of 1 and 0."""
    result = matching(make_boxes([0, 0], [0, 2], [A, C]), make_boxes([0, 0], [0, 1], [A, B]), n_classes=4)
    assert np.isnan(result.ap).tolist() == [False, False, True, True]
    assert result.mean_ap == 0.5
    assert np.isnan(matching(one_image(A), NONE).mean_ap)


def test_rank_orders_ties_by_image_then_row() -> None:
    """Equal scores keep image order, then file order."""
    boxes = make_boxes([1, 0, 0, 1], [0, 0, 0, 0], [A, A, B, C], [0.5, 0.5, 0.5, 0.9])
    assert rank(boxes, 100).tolist() == [3, 1, 2, 0]


def test_rank_keeps_the_best_of_each_image_and_class() -> None:
    """Two per image and class: of scores 0.1, 0.9, 0.5 the last two; the other class and image are not touched."""
    boxes = make_boxes([0, 0, 0, 0, 1], [0, 0, 0, 1, 0], [A, A, A, A, A], [0.1, 0.9, 0.5, 0.2, 0.3])
    assert rank(boxes, 2).tolist() == [1, 2, 4, 3]


def test_the_101st_box_is_invisible() -> None:
    """A right box behind 100 wrong ones of the same image and class does not count; one place better it does."""
    wrong = [(100 + 2 * place, 0, 101 + 2 * place, 1) for place in range(100)]
    scores = [1 - place / 200 for place in range(100)]
    hidden = one_image(*wrong, A, scores=[*scores, 0.1])
    assert matching(hidden, one_image(A)).ap.tolist() == [0.0]
    shown = one_image(*wrong[1:], A, scores=[*scores[1:], 0.1])
    assert matching(shown, one_image(A)).ap.tolist() == pytest.approx([1 / 100])


def test_several_thresholds_equal_one_at_a_time() -> None:
    """IoU 0.7 against the only truth box: right up to 0.7, wrong beyond."""
    prediction, reference = one_image((0, 0, 10, 7)), one_image(A)
    results = evaluate_thresholds(
        prediction, reference, n_classes=1, iou_thresholds=[0.5, 0.7, 0.75], max_detections=100
    )
    assert [result.mean_ap for result in results] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("tp", "n_predictions", "n_reference", "expected"),
    [
        pytest.param(0, 0, 0, (None, None, None), id="nothing at all"),
        pytest.param(0, 0, 2, (None, 0.0, 0.0), id="no predictions"),
        pytest.param(0, 2, 0, (0.0, None, 0.0), id="no truth"),
        pytest.param(1, 2, 4, (0.5, 0.25, 1 / 3), id="1 of 2 predicted, 1 of 4 found"),
    ],
)
def test_precision_recall_f1(tp: int, n_predictions: int, n_reference: int, expected: tuple[float | None, ...]) -> None:
    """By hand; null where there is nothing to divide by."""
    assert tuple(precision_recall_f1(tp, n_predictions, n_reference).values()) == expected


# --- the independent twin -------------------------------------------------------------------------------------


@st.composite
def boxes(draw: st.DrawFn, with_score: bool) -> Boxes:
    """Boxes on a coarse grid of a few images, so that ties of score and overlap are common."""
    number = st.integers(0, 12)
    row = st.tuples(
        st.integers(0, 3), st.integers(0, 2), number, number, st.integers(1, 8), st.integers(1, 8), st.integers(0, 5)
    )
    drawn = draw(st.lists(row, max_size=30))
    corners = [(x, y, x + width, y + height) for _, _, x, y, width, height, _ in drawn]
    scores = [score / 5 for *_, score in drawn] if with_score else None
    return make_boxes([each[0] for each in drawn], [each[1] for each in drawn], corners, scores)


@settings(max_examples=200, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(boxes(True), boxes(False), st.sampled_from([0.3, 0.5, 0.75]), st.sampled_from([1, 3, 100]))
def test_own_ap_equals_pycocotools(
    predictions: Boxes, reference: Boxes, iou_threshold: float, max_detections: int
) -> None:
    """Per class, on any input: same definition, other implementation."""
    options = {"n_classes": 3, "iou_threshold": iou_threshold, "max_detections": max_detections}
    own = evaluate(predictions, reference, **options).ap
    np.testing.assert_allclose(own, coco_average_precision(predictions, reference, **options), rtol=0, atol=1e-9)


def test_twin_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    """pycocotools prints progress; the twin does not."""
    coco_average_precision(one_image(A), one_image(A), n_classes=1, iou_threshold=0.5, max_detections=100)
    assert capsys.readouterr().out == ""
