"""Classification with one label per case: accuracy, recall per class, macro F1, confusion matrix, intervals.

Labels are class numbers 0 … n_classes - 1; a prediction may also be NONE (missing, unknown or contradictory), which is
wrong for every class. Definitions are those of scikit-learn with NONE as a label of its own that never is the truth
(``accuracy_score``, ``balanced_accuracy_score``, ``f1_score(average="macro")``), without dropping such cases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

NONE = -1
"""The prediction of a case that has none."""
_Z_95 = 1.959963984540054  # 97.5 % quantile of the standard normal distribution


@dataclass(frozen=True)
class ClassScores:
    """One class: cases of the class, predictions of it, and how many of them are right; null where undefined."""

    n_truth: int
    n_predictions: int
    n_correct: int

    @property
    def recall(self) -> float | None:
        """Share of the class's cases that were found; null without any."""
        return self.n_correct / self.n_truth if self.n_truth else None

    @property
    def precision(self) -> float | None:
        """Share of the predictions of the class that are right; null without any."""
        return self.n_correct / self.n_predictions if self.n_predictions else None

    @property
    def f1(self) -> float | None:
        """2·TP / (cases + predictions); null when the class neither occurs nor is predicted."""
        both = self.n_truth + self.n_predictions
        return 2 * self.n_correct / both if both else None


def confusion_matrix(predicted: Sequence[int], truth: Sequence[int], *, n_classes: int) -> Counts:
    """Counts (n_classes, n_classes + 1): rows are the truth, columns the prediction, the last column is NONE.

    Raises ValueError when the lengths differ, there is no case, or a number is no class.
    """
    if len(predicted) != len(truth) or not len(truth):
        raise ValueError(f"{len(predicted)} predictions for {len(truth)} cases: one each, and at least one, is needed")
    columns, rows = np.asarray(predicted, dtype=np.int64), np.asarray(truth, dtype=np.int64)
    if rows.min() < 0 or max(rows.max(), columns.max()) >= n_classes or columns.min() < NONE:
        raise ValueError(f"a label is neither one of the {n_classes} classes nor, as a prediction, NONE")
    counts = np.zeros((n_classes, n_classes + 1), dtype=np.int64)
    np.add.at(counts, (rows, np.where(columns == NONE, n_classes, columns)), 1)
    return counts


def accuracy(confusion: Counts) -> float:
    """Share of all cases whose prediction is right; a case without prediction is wrong."""
    return int(np.trace(confusion)) / int(confusion.sum())


def class_scores(confusion: Counts) -> list[ClassScores]:
    """Scores of every class, in class order."""
    n_truth, n_predictions = confusion.sum(axis=1).tolist(), confusion[:, :-1].sum(axis=0).tolist()
    correct = np.diagonal(confusion).tolist()
    return [ClassScores(*counts) for counts in zip(n_truth, n_predictions, correct, strict=True)]


def balanced_accuracy(confusion: Counts) -> float:
    """Unweighted mean of the recalls of the classes that have cases; predictions of others do not count."""
    return _mean([scores.recall for scores in class_scores(confusion)])


def macro_f1(confusion: Counts) -> float:
    """Unweighted mean of the F1 of the classes that occur or are predicted."""
    return _mean([scores.f1 for scores in class_scores(confusion)])


def wilson_interval(n_correct: int, n_cases: int) -> tuple[float, float]:
    """95 % score interval of a share (Wilson 1927, equal to statsmodels' ``proportion_confint(method="wilson")``)."""
    share, z2 = n_correct / n_cases, _Z_95**2
    middle = (share + z2 / (2 * n_cases)) / (1 + z2 / n_cases)
    half = _Z_95 * math.sqrt(share * (1 - share) / n_cases + z2 / (4 * n_cases**2)) / (1 + z2 / n_cases)
    return max(0.0, middle - half), min(1.0, middle + half)


def majority_share(confusion: Counts) -> float | None:
    """Share of the most frequent class among the predictions; 1 is a constant answer, null no answer at all."""
    per_class = confusion[:, :-1].sum(axis=0)
    return int(per_class.max()) / int(per_class.sum()) if per_class.any() else None


def best_permutation_accuracy(confusion: Counts) -> float:
    """Accuracy after the best one-to-one renaming of the predicted classes (assignment by ``scipy.optimize``).

    Well above the accuracy it shows that classes were told apart but their names mixed up.
    """
    from scipy.optimize import linear_sum_assignment

    square = confusion[:, :-1]
    rows, columns = linear_sum_assignment(square, maximize=True)
    return int(square[rows, columns].sum()) / int(confusion.sum())


def _mean(values: list[float | None]) -> float:
    defined = [value for value in values if value is not None]
    return math.fsum(defined) / len(defined)
