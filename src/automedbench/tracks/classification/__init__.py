"""Classification: one label per case; quality is the accuracy over all expected cases.

A missing, unknown or contradictory label is wrong, so that quality already counts what is missing and is not
multiplied by the completion rate. A card may ask for the balanced accuracy (mean recall of the classes) instead.
"""

from __future__ import annotations

from collections import Counter

from automedbench.tracks import Outputs, Signal, Track, TrackText
from automedbench.tracks.classification import check, effect, score, settings, show, stage
from automedbench.tracks.common.signals import FEWEST


def one_class(outputs: Outputs) -> str | None:
    """One class for every case, of three or more."""
    labels = Counter(label for case in outputs.scored if (label := case.detail.get("predicted")) is not None)
    n_classes = len(outputs.card.targets)
    if n_classes < 3 or len(labels) != 1 or labels.total() < FEWEST:
        return None
    label, count = labels.most_common(1)[0]
    return f"all {count} predictions are '{label}', one of {n_classes} classes"


def below_chance(outputs: Outputs) -> str | None:
    """Valid, but right less often than by chance: the names of the classes may be mixed up."""
    accuracy, n_classes = outputs.detail.metrics.get("accuracy"), len(outputs.card.targets)
    if accuracy is None or n_classes < 2 or not outputs.submission.all_valid or accuracy >= 1 / n_classes:
        return None
    best = outputs.detail.metrics.get("best_permutation_accuracy")
    renamed = "" if best is None else f"; {best:.4f} after the best renaming of the classes"
    return f"accuracy {accuracy:.4f}, chance is {1 / n_classes:.4f}{renamed}"


SIGNALS = (
    Signal("verify.one_class", "one class for every case", one_class),
    Signal("verify.below_chance", "accuracy below chance", below_chance),
)


TRACK = Track(
    version=2,
    quality="accuracy",
    case_quality="correct",
    settings=settings.ClassificationSettings,
    stage=stage.stage,
    check=check.check,
    score=score.score,
    verify=score.verify,
    effect=effect.read_effect,
    show=show.show,
    text=TrackText("Classification", "Class", "accuracy over all cases; a missing case is wrong"),
    signals=SIGNALS,
)
