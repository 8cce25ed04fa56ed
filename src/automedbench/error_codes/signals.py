"""E3 by what a track's records say: empty, blank, constant or misplaced outputs, and quality far below okay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from automedbench.base.records import CaseScore
from automedbench.error_codes.facts import Detector, Found, RunFacts, first_problem, has_problem
from automedbench.error_codes.verification import FEWEST, MOST

FAR_BELOW = 1 / 3
"""Of the okay threshold (docs/specification.md, 10.5)."""
TEXT_FLOOR = 0.10
"""Below it in both measures a report has nothing to do with its study (docs/specification.md, 10.4)."""
FEWEST_ANSWERS = 10
"""Fewer questions may well share an answer: half of them can only be answered with yes or no."""
SMALL_RANGES = ((-1.0, 1.0), (0.0, 255.0))
"""Where values lie that were never turned back into HU (docs/specification.md, 10.7)."""


# --- all outputs have the same fault --------------------------------------------------------------------------


def _most(
    facts: RunFacts, wrong: Callable[[CaseScore], bool], what: str, show: Callable[[CaseScore], str]
) -> Found | None:
    """Nearly all scored cases are wrong in the same way; the first of them is shown."""
    hits = [case for case in facts.scored if wrong(case)]
    if not hits or len(hits) < MOST * len(facts.scored):
        return None
    return Found("S4", f"{what} in {len(hits)} of {len(facts.scored)} outputs; {hits[0].case}: {show(hits[0])}")


def _remarked(facts: RunFacts, code: str, what: str) -> Found | None:
    """Nearly all submitted cases have the same problem or remark."""
    hits = [case for case in facts.there if has_problem(case, code)]
    if not hits or len(hits) < MOST * len(facts.there):
        return None
    return Found("S4", f"{what} in {len(hits)} of {len(facts.there)} outputs; {first_problem(hits[0], code)}")


# --- volumes and images ---------------------------------------------------------------------------------------


def empty_masks(facts: RunFacts) -> Found | None:
    """Segmentation: nothing is marked in any case although something is there."""
    return _most(facts, _unmarked, "nothing is marked", lambda case: "0 voxels predicted")


def _unmarked(case: CaseScore) -> bool:
    targets: Iterable[dict[str, Any]] = case.detail.get("targets", {}).values()
    sums = [sum(target.get(side) or 0 for target in targets) for side in ("predicted_voxels", "reference_voxels")]
    return bool(case.detail.get("comparable")) and sums[0] == 0 < sums[1]


def other_grid(facts: RunFacts) -> Found | None:
    """Segmentation: the masks lie elsewhere than the scans (their form is valid, so that it is no E5)."""
    return _remarked(facts, "affine_mismatch", "another affine")


def value_range(facts: RunFacts) -> Found | None:
    """Synthesis: all volumes lie in −1…1 or 0…255 where HU are asked for, or are hardly HU."""
    return _never_rescaled(facts) or _remarked(facts, "hu_range", "values that are hardly HU")


def _never_rescaled(facts: RunFacts) -> Found | None:
    ranges = [found for case in facts.scored if (found := _range(case.detail.get("range_hu")))]
    if not ranges or len(ranges) < len(facts.scored):
        return None
    low, high = min(first for first, _ in ranges), max(last for _, last in ranges)
    for least, most in SMALL_RANGES:
        if least <= low and high <= most:
            return Found("S4", f"all {len(ranges)} volumes have values from {low:g} to {high:g}, HU are asked for")
    return None


def blank_volumes(facts: RunFacts) -> Found | None:
    """Synthesis: one value everywhere."""
    return _remarked(facts, "constant_volume", "one value everywhere")


def implausible_values(facts: RunFacts) -> Found | None:
    """Enhancement: values far outside the plausible range, or all within −1…1 where the scale is far wider."""
    found = _remarked(facts, "range", "values outside the plausible range")
    return found or _most(facts, _normalised, "values that were never scaled back", _extremes)


def _normalised(case: CaseScore) -> bool:
    shown, scale = (
        _range([case.detail.get("output_min"), case.detail.get("output_max")]),
        case.metrics.get("data_range"),
    )
    return shown is not None and scale is not None and scale >= 10 and -1 <= shown[0] <= shown[1] <= 1


def blank_images(facts: RunFacts) -> Found | None:
    """Enhancement: one value everywhere."""
    return _most(facts, _blank, "one value everywhere", _extremes)


def _blank(case: CaseScore) -> bool:
    shown = _range([case.detail.get("output_min"), case.detail.get("output_max")])
    return shown is not None and shown[0] == shown[1]


def _extremes(case: CaseScore) -> str:
    return f"values from {case.detail.get('output_min'):g} to {case.detail.get('output_max'):g}"


def mixed_up(facts: RunFacts) -> Found | None:
    """Enhancement: outputs fit the next case's reference as well as their own."""
    own, other = facts.detail.metrics.get("mean_ssim"), facts.detail.metrics.get("control_ssim")
    if own is None or other is None or other < own or len(facts.scored) < FEWEST:
        return None
    return Found("S4", f"outputs fit the next case as well as their own: SSIM {other:.4f} against {own:.4f}")


def _range(values: Any) -> tuple[float, float] | None:
    if (
        not isinstance(values, Sequence)
        or len(values) != 2
        or not all(isinstance(each, (int, float)) for each in values)
    ):
        return None
    return float(values[0]), float(values[1])


# --- boxes ----------------------------------------------------------------------------------------------------


def no_boxes(facts: RunFacts) -> Found | None:
    """Detection: not one box on images that have objects."""
    return _most(_with_objects(facts), lambda case: not case.metrics.get("n_predictions"), "no box", _n_objects)


def _with_objects(facts: RunFacts) -> RunFacts:
    cases = [case for case in facts.detail.cases if case.metrics.get("n_truth")]
    return RunFacts(
        facts.run, facts.submission, facts.detail.model_copy(update={"cases": cases}), facts.card, facts.conversation
    )


def _n_objects(case: CaseScore) -> str:
    return f"0 boxes, {case.metrics.get('n_truth') or 0:g} objects"


def boxes_outside(facts: RunFacts) -> Found | None:
    """Detection: boxes that leave their image, in nearly every file."""
    return _remarked(facts, "out_of_bounds", "boxes outside the image")


def zero_scores(facts: RunFacts) -> Found | None:
    """Detection: every box has the score 0."""
    scores = [box.get("score") for case in facts.scored for box in case.detail.get("boxes", [])]
    if not scores or any(scores):
        return None
    return Found("S4", f"all {len(scores)} boxes have the score 0")


# --- labels, answers and texts --------------------------------------------------------------------------------


def one_class(facts: RunFacts) -> Found | None:
    """Classification: one class for every case, of three or more."""
    labels = Counter(label for case in facts.scored if (label := case.detail.get("predicted")) is not None)
    n_classes = len(facts.card.targets)
    if n_classes < 3 or len(labels) != 1 or labels.total() < FEWEST:
        return None
    label, count = labels.most_common(1)[0]
    return Found("S4", f"all {count} predictions are '{label}', one of {n_classes} classes")


def below_chance(facts: RunFacts) -> Found | None:
    """Classification: valid, but right less often than by chance: the names of the classes may be mixed up."""
    accuracy, n_classes = facts.detail.metrics.get("accuracy"), len(facts.card.targets)
    if accuracy is None or n_classes < 2 or not facts.submission.all_valid or accuracy >= 1 / n_classes:
        return None
    best = facts.detail.metrics.get("best_permutation_accuracy")
    renamed = "" if best is None else f"; {best:.4f} after the best renaming of the classes"
    return Found("S4", f"accuracy {accuracy:.4f}, chance is {1 / n_classes:.4f}{renamed}")


def same_answer(facts: RunFacts) -> Found | None:
    """VQA: nearly every question has the same option or the same text for an answer."""
    answers = [_answer(case) for case in facts.scored if "answer" in case.detail]
    if len(answers) < FEWEST_ANSWERS:
        return None
    answer, count = Counter(answers).most_common(1)[0]
    if count < MOST * len(answers):
        return None
    return Found("S4", f"{count} of {len(answers)} questions are answered '{answer}'")


def _answer(case: CaseScore) -> str:
    label = case.detail.get("label")
    return f"option {label}" if label else str(case.detail["answer"]).strip().lower()


def placeholders(facts: RunFacts) -> Found | None:
    """VQA: more than half of the answers are stand-ins and no output of a model."""
    stand_ins = [case for case in facts.there if has_problem(case, "placeholder")]
    if len(stand_ins) * 2 <= len(facts.there):
        return None
    return Found(
        "S4",
        f"{len(stand_ins)} of {len(facts.there)} answers are stand-ins; {first_problem(stand_ins[0], 'placeholder')}",
    )


def no_words(facts: RunFacts) -> Found | None:
    """Report generation: nothing to compare in nearly every report."""
    return _remarked(facts, "nothing_to_compare", "no words to compare")


def unrelated_text(facts: RunFacts) -> Found | None:
    """Report generation: valid reports that share neither words nor findings with their studies."""
    findings, words = (facts.detail.metrics.get(name) for name in ("micro_average_f1", "ROUGE_L"))
    if findings is None or words is None or not facts.submission.all_valid or max(findings, words) >= TEXT_FLOOR:
        return None
    return Found("S4", f"micro F1 {findings:.4f} and ROUGE-L {words:.4f}, both below {TEXT_FLOOR:g}")


# --- quality --------------------------------------------------------------------------------------------------


def far_below(facts: RunFacts) -> Found | None:
    """Segmentation and detection: less than a third of okay; enhancement: valid, but below every baseline's band."""
    name, quality, okay = facts.detail.quality_name, facts.quality_of_completed, facts.okay_from
    if facts.detail.track == "enhancement":
        rating = facts.detail.metrics.get("rating")
        if rating != 0 or not facts.submission.all_valid:
            return None
        return Found("S4", f"{name} {facts.detail.quality:.4f}, below the band of every baseline (rating F)")
    if quality is None or okay is None or quality >= FAR_BELOW * okay:
        return None
    return Found("S4", f"{name} {quality:.4f} over what was submitted, less than a third of {okay:g} (okay)")


DETECTORS = (
    Detector("verify.empty_masks", "E3", "no voxel marked in nearly all cases", empty_masks, ("segmentation",)),
    Detector("verify.other_grid", "E3", "masks placed elsewhere than their scans", other_grid, ("segmentation",)),
    Detector("verify.value_range", "E3", "volumes in −1…1 or 0…255, or beyond HU", value_range, ("synthesis",)),
    Detector("verify.blank", "E3", "volumes with one value everywhere", blank_volumes, ("synthesis",)),
    Detector("verify.value_range", "E3", "values off the plausible scale", implausible_values, ("enhancement",)),
    Detector("verify.blank", "E3", "images with one value everywhere", blank_images, ("enhancement",)),
    Detector("verify.mixed_up", "E3", "outputs that fit another case as well", mixed_up, ("enhancement",)),
    Detector("verify.no_boxes", "E3", "no box on nearly all images with objects", no_boxes, ("detection",)),
    Detector(
        "verify.boxes_outside", "E3", "boxes outside the image in nearly all files", boxes_outside, ("detection",)
    ),
    Detector("verify.zero_scores", "E3", "every box has the score 0", zero_scores, ("detection",)),
    Detector("verify.one_class", "E3", "one class for every case", one_class, ("classification",)),
    Detector("verify.below_chance", "E3", "accuracy below chance", below_chance, ("classification",)),
    Detector("verify.same_answer", "E3", "the same answer to nearly all questions", same_answer, ("vqa",)),
    Detector("verify.placeholders", "E3", "stand-ins instead of a model's output", placeholders, ("vqa",)),
    Detector("verify.no_words", "E3", "reports with nothing to compare", no_words, ("report_generation",)),
    Detector("verify.unrelated_text", "E3", "micro F1 and ROUGE-L below 0.1", unrelated_text, ("report_generation",)),
    Detector(
        "verify.far_below", "E3", "quality far below okay", far_below, ("segmentation", "detection", "enhancement")
    ),
)
