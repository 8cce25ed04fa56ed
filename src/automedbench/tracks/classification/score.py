"""Classification's report: diagnostics over the run, a table per class, and what a reader must know."""

from __future__ import annotations

from dataclasses import dataclass

from automedbench.metrics import classification as metrics
from automedbench.metrics.classification import Counts
from automedbench.tracks.classification.stage import NONE

Metrics = dict[str, float | None]


@dataclass(frozen=True)
class Labels:
    """Class numbers of every expected case, in manifest order; a prediction may be ``metrics.NONE``."""

    classes: list[str]
    truth: list[int]
    predicted: list[int]

    def confusion(self) -> Counts:
        """Truth × prediction, the last column without prediction."""
        return metrics.confusion_matrix(self.predicted, self.truth, n_classes=len(self.classes))


def overall(confusion: Counts) -> Metrics:
    """Both accuracies and the diagnostics over all cases."""
    n_cases, n_correct = int(confusion.sum()), int(confusion.trace())
    low, high = metrics.wilson_interval(n_correct, n_cases)
    return {
        "accuracy": metrics.accuracy(confusion),
        "balanced_accuracy": metrics.balanced_accuracy(confusion),
        "macro_f1": metrics.macro_f1(confusion),
        "n_cases": n_cases,
        "n_correct": n_correct,
        "n_predicted": int(confusion[:, :-1].sum()),
        "accuracy_low95": low,
        "accuracy_high95": high,
        "majority_share": metrics.majority_share(confusion),
        "best_permutation_accuracy": metrics.best_permutation_accuracy(confusion),
    }


def per_class(classes: list[str], confusion: Counts) -> dict[str, Metrics]:
    """Counts, rates and the row of the confusion matrix of every class of the card; null where undefined."""
    columns = [*classes, NONE]
    return {
        name: {
            "n_truth": scores.n_truth,
            "n_predictions": scores.n_predictions,
            "n_correct": scores.n_correct,
            "recall": scores.recall,
            "precision": scores.precision,
            "f1": scores.f1,
            **{f"predicted_as_{column}": count for column, count in zip(columns, row, strict=True)},
        }
        for name, scores, row in zip(classes, metrics.class_scores(confusion), confusion.tolist(), strict=True)
    }


def notes_on(score_metric: str, classes: list[str], summary: Metrics, confusion: Counts) -> list[str]:
    """Sentences for a reader of the numbers."""
    notes = []
    if score_metric != "accuracy":
        notes.append("The quality is the balanced accuracy (mean recall of the classes), not the accuracy.")
    absent = [name for name, n_truth in zip(classes, confusion.sum(axis=1).tolist(), strict=True) if not n_truth]
    if absent:
        notes.append(f"No case is of class {', '.join(absent)}; it is left out of the balanced accuracy.")
    if summary["majority_share"] == 1 and len(classes) > 2 and int(confusion.sum()) > 1:
        notes.append("Every prediction is the same class.")
    elif _renamed(summary, len(classes)):
        share = summary["best_permutation_accuracy"]
        notes.append(f"Below chance, but {share:.4f} after the best renaming of the classes: names may be mixed up.")
    return notes


def _renamed(summary: Metrics, n_classes: int) -> bool:
    accuracy, renamed = summary["accuracy"] or 0.0, summary["best_permutation_accuracy"] or 0.0
    return accuracy < 1 / n_classes < renamed
