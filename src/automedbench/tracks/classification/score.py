"""Classification's report: diagnostics over the run, a table per class, and what a reader must know."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from automedbench.base.errors import InfrastructureError
from automedbench.base.records import CaseScore, CaseSubmission, Prior
from automedbench.metrics import classification as metrics
from automedbench.metrics.classification import Counts
from automedbench.tracks import Metrics, ScoringInputs, TrackScore, track_settings
from automedbench.tracks.classification.check import read_answers
from automedbench.tracks.classification.settings import ClassificationSettings
from automedbench.tracks.classification.stage import NONE, TRUTH, list_classes, read_truth


@dataclass(frozen=True)
class CaseLabels:
    """Class numbers of every expected case, in manifest order; a prediction may be ``metrics.NONE``."""

    classes: list[str]
    truth: list[int]
    predicted: list[int]

    def confusion(self) -> Counts:
        """Truth × prediction, the last column without prediction."""
        return metrics.confusion_matrix(self.predicted, self.truth, n_classes=len(self.classes))


def score(inputs: ScoringInputs) -> TrackScore:
    """The card's metric over all expected cases, a table per class and per case, and the diagnostics.

    Raises InfrastructureError when truth is missing or does not fit the card, or the submission was changed.
    """
    settings: ClassificationSettings = track_settings(inputs.card)
    labels = read_case_labels(inputs)
    confusion = labels.confusion()
    summary = overall(confusion)
    quality = summary[settings.score_metric]
    assert quality is not None  # both are defined as soon as there is a case
    return TrackScore(
        quality=quality,
        quality_name=settings.score_metric,
        task_score=quality,
        metrics=summary,
        groups=per_class(labels.classes, confusion),
        cases=[_case(labels, number, verdict) for number, verdict in enumerate(inputs.checked.cases)],
        prior=prior(labels, settings.score_metric),
        notes=write_notes(settings.score_metric, labels.classes, summary, confusion),
    )


def prior(labels: CaseLabels, score_metric: str) -> Prior:
    """The class that, given to every case, earns most by the card's metric."""
    n_cases, n_classes = len(labels.truth), len(labels.classes)
    earned = [
        overall(metrics.confusion_matrix([number] * n_cases, labels.truth, n_classes=n_classes))[score_metric] or 0.0
        for number in range(n_classes)
    ]
    best = max(range(n_classes), key=earned.__getitem__)
    return Prior(answers=f"{labels.classes[best]} for every case", value=earned[best])


def read_case_labels(inputs: ScoringInputs) -> CaseLabels:
    """Truth and prediction of every expected case, in manifest order."""
    card, cases = inputs.card, inputs.manifest.cases
    classes = list_classes(card)
    answers = read_answers(card, cases, inputs.submission)
    for answer, (_, verdict) in zip(answers, inputs.pairs, strict=True):
        if answer.verdict.files != verdict.files:
            raise InfrastructureError(
                f"{inputs.submission}: the prediction of {verdict.case} is not what was collected.\n"
                "Collect the submission again."
            )
    numbers = {name: number for number, name in enumerate(classes)}
    predicted = [metrics.NONE if answer.label is None else numbers[answer.label] for answer in answers]
    return CaseLabels(classes, [read_truth(inputs.private / case.id / TRUTH, classes) for case in cases], predicted)


def _case(labels: CaseLabels, number: int, verdict: CaseSubmission) -> CaseScore:
    truth, predicted = labels.truth[number], labels.predicted[number]
    return CaseScore(
        case=verdict.case,
        status=verdict.status,
        metrics={"correct": float(truth == predicted)},
        detail={
            "reference": labels.classes[truth],
            "predicted": None if predicted == metrics.NONE else labels.classes[predicted],
        },
    )


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


def write_notes(score_metric: str, classes: list[str], summary: Metrics, confusion: Counts) -> list[str]:
    """Sentences for a reader of the numbers."""
    notes = []
    if score_metric != "accuracy":
        notes.append("The quality is the balanced accuracy (mean recall of the classes), not the accuracy.")
    absent = [name for name, n_truth in zip(classes, confusion.sum(axis=1).tolist(), strict=True) if not n_truth]
    if absent:
        notes.append(f"No case is of class {', '.join(absent)}; it is left out of the balanced accuracy.")
    if summary["majority_share"] == 1 and len(classes) > 2 and int(confusion.sum()) > 1:
        notes.append("Every prediction is the same class.")
    elif (summary["accuracy"] or 0.0) < 1 / len(classes) < (share := summary["best_permutation_accuracy"] or 0.0):
        notes.append(f"Below chance, but {share:.4f} after the best renaming of the classes: names may be mixed up.")
    return notes


# --- verification ---------------------------------------------------------------------------------------------------


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """The quality again by scikit-learn, with missing predictions as a label of their own."""
    settings: ClassificationSettings = track_settings(inputs.card)
    labels = read_case_labels(inputs)
    plain, balanced = accuracies(labels.predicted, labels.truth)
    value = plain if settings.score_metric == "accuracy" else balanced
    return f"scikit-learn {version('scikit-learn')}", value, 1e-12


def accuracies(predicted: Sequence[int], truth: Sequence[int]) -> tuple[float, float]:
    """Accuracy and balanced accuracy of class numbers; a prediction without class is any number that no truth has."""
    from sklearn.metrics import accuracy_score, balanced_accuracy_score

    with warnings.catch_warnings():
        # It warns of labels that no truth has (they are left out of the mean, as meant) and of a single label.
        warnings.simplefilter("ignore")
        balanced = balanced_accuracy_score(truth, predicted)
    return float(accuracy_score(truth, predicted)), float(balanced)
