"""Classification metrics against values worked out by hand and against scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from automedbench.metrics import classification as metrics
from automedbench.metrics.classification import NONE
from automedbench.tracks.classification.score import accuracies

A, B, C, D = range(4)
THIRD = 1 / 3

CASES = [
    # id, truth, predicted, classes, accuracy, balanced accuracy, macro F1
    # F1 by hand: 2·TP / (cases + predictions) of every class that occurs or is predicted.
    ("nothing predicted", [A, B], [NONE, NONE], 2, 0, 0, 0),
    ("one case, right", [B], [B], 2, 1, 1, 1),
    ("one case, wrong", [B], [A], 2, 0, 0, 0),
    ("D.2: a case missing", [A, A, A, B], [A, A, A, NONE], 2, 0.75, 0.5, 0.5),
    ("D.2: constant on skewed data", [A, A, A, B], [A, A, A, A], 2, 0.75, 0.5, (6 / 7 + 0) / 2),
    ("D.2: class without truth", [A, A, B, C], [A, B, B, C], 4, 0.75, (0.5 + 1 + 1) / 3, (2 / 3 + 2 / 3 + 1) / 3),
    ("D.2: constant on balanced data", [A] * 25 + [B] * 25 + [C] * 25 + [D] * 25, [A] * 100, 4, 0.25, 0.25, 0.4 / 4),
    ("class predicted, never true", [A, B], [A, C], 3, 0.5, 0.5, (1 + 0 + 0) / 3),
]  # fmt: skip


@pytest.mark.parametrize(
    ("truth", "predicted", "n_classes", "accuracy", "balanced", "f1"),
    [row[1:] for row in CASES],
    ids=[row[0] for row in CASES],
)
def test_by_hand(
    truth: list[int], predicted: list[int], n_classes: int, accuracy: float, balanced: float, f1: float
) -> None:
    confusion = metrics.confusion_matrix(predicted, truth, n_classes=n_classes)
    assert metrics.accuracy(confusion) == accuracy
    assert metrics.balanced_accuracy(confusion) == pytest.approx(balanced, abs=1e-15)
    assert metrics.macro_f1(confusion) == pytest.approx(f1, abs=1e-15)
    assert accuracies(predicted, truth) == pytest.approx((accuracy, balanced), abs=1e-15)


def test_confusion_matrix() -> None:
    """Rows are the truth, the last column has no prediction."""
    confusion = metrics.confusion_matrix([A, NONE, B, B, A], [A, A, A, B, C], n_classes=3)
    assert confusion.tolist() == [[1, 1, 0, 1], [0, 1, 0, 0], [1, 0, 0, 0]]


@pytest.mark.parametrize(
    ("predicted", "truth"),
    [
        pytest.param([], [], id="no case"),
        pytest.param([A], [A, B], id="a prediction short"),
        pytest.param([2], [A], id="prediction is no class"),
        pytest.param([-2], [A], id="prediction below none"),
        pytest.param([A], [2], id="truth is no class"),
        pytest.param([A], [NONE], id="truth is none"),
    ],
)
def test_misuse(predicted: list[int], truth: list[int]) -> None:
    with pytest.raises(ValueError, match=r"needed|neither"):
        metrics.confusion_matrix(predicted, truth, n_classes=2)


def test_scores_of_a_class() -> None:
    """By hand; a class that neither occurs nor is predicted has no score at all."""
    confusion = metrics.confusion_matrix([A, B, NONE, A], [A, A, B, B], n_classes=3)
    first, second, third = metrics.class_scores(confusion)
    assert (first.n_truth, first.n_predictions, first.n_correct) == (2, 2, 1)
    assert (first.recall, first.precision, first.f1) == (0.5, 0.5, 0.5)
    assert (second.recall, second.precision, second.f1) == (0, 0, 0)
    assert (third.recall, third.precision, third.f1) == (None, None, None)


@pytest.mark.parametrize(
    ("n_correct", "n_cases", "low", "high"),
    [
        # Newcombe (1998), table I, method 3 (score): 81/263, 15/148, 0/20, 1/29.
        pytest.param(81, 263, 0.2553, 0.3662, id="81 of 263"),
        pytest.param(15, 148, 0.0624, 0.1605, id="15 of 148"),
        pytest.param(0, 20, 0.0000, 0.1611, id="none"),
        pytest.param(1, 29, 0.0061, 0.1718, id="1 of 29"),
        pytest.param(20, 20, 1 - 0.1611, 1.0000, id="all, by symmetry"),
    ],
)
def test_wilson_interval(n_correct: int, n_cases: int, low: float, high: float) -> None:
    assert metrics.wilson_interval(n_correct, n_cases) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    ("predicted", "truth", "expected"),
    [
        pytest.param([NONE, NONE], [A, B], None, id="nothing predicted"),
        pytest.param([A, A, NONE], [A, B, B], 1.0, id="constant where predicted"),
        pytest.param([A, B, B, C], [A, A, A, A], 0.5, id="half"),
    ],
)
def test_majority_share(predicted: list[int], truth: list[int], expected: float | None) -> None:
    assert metrics.majority_share(metrics.confusion_matrix(predicted, truth, n_classes=3)) == expected


@pytest.mark.parametrize(
    ("predicted", "truth", "expected"),
    [
        pytest.param([NONE, NONE], [A, B], 0.0, id="nothing predicted"),
        pytest.param([B, C, A, B], [A, B, C, A], 1.0, id="names turned round"),
        # A and B must take different names: 2 of A or 1 of A and 1 of B, whichever way.
        pytest.param([A, A, A, B], [A, A, B, B], 0.75, id="already the best"),
        pytest.param([A, A, A], [A, B, C], THIRD, id="constant"),
    ],
)
def test_best_permutation(predicted: list[int], truth: list[int], expected: float) -> None:
    confusion = metrics.confusion_matrix(predicted, truth, n_classes=3)
    assert metrics.best_permutation_accuracy(confusion) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("seed", range(12))
def test_against_scikit_learn(seed: int) -> None:
    """Random labels, classes that never occur included."""
    from sklearn.metrics import f1_score, precision_recall_fscore_support

    generator = np.random.default_rng(seed)
    n_classes, n_cases = int(generator.integers(2, 9)), int(generator.integers(1, 60))
    truth = generator.integers(0, max(2, n_classes - 2), n_cases).tolist()
    predicted = np.where(generator.random(n_cases) < 0.6, truth, generator.integers(NONE, n_classes, n_cases)).tolist()
    confusion = metrics.confusion_matrix(predicted, truth, n_classes=n_classes)
    found = (metrics.accuracy(confusion), metrics.balanced_accuracy(confusion))
    assert found == pytest.approx(accuracies(predicted, truth), abs=1e-12)
    occurring = sorted({*truth, *predicted} - {NONE})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f1 = f1_score(truth, predicted, labels=occurring, average="macro", zero_division=0)
        precision, recall, _, support = precision_recall_fscore_support(
            truth, predicted, labels=range(n_classes), zero_division=np.nan
        )
    assert metrics.macro_f1(confusion) == pytest.approx(f1, abs=1e-12)
    scores = metrics.class_scores(confusion)
    assert [each.n_truth for each in scores] == support.tolist()
    assert [np.nan if each.recall is None else each.recall for each in scores] == pytest.approx(recall, nan_ok=True)
    assert [np.nan if each.precision is None else each.precision for each in scores] == pytest.approx(
        precision, nan_ok=True
    )
