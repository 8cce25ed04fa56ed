"""Detectors of E3 that read a track's records. Conditions: docs/specification.md, 10."""

from __future__ import annotations

from typing import Any

import pytest
from failed_runs import case, codes_of, found_by, metrics_of

from automedbench.base.records import CaseScore, CaseSubmission, Effect

NAMES = ["c1", "c2", "c3", "c4"]


def plain(count: int = 4) -> list[CaseSubmission]:
    return [case(name) for name in NAMES[:count]]


def all_with(*problems: str, status: str = "valid") -> list[CaseSubmission]:
    return [case(name, *problems, status=status) for name in NAMES]


def organ(name: str, predicted: int, reference: int, comparable: bool = True) -> CaseScore:
    targets = {"liver": {"predicted_voxels": predicted, "reference_voxels": reference}}
    return metrics_of(name, {}, targets=targets, comparable=comparable)


def volume(name: str, low: float, high: float) -> CaseScore:
    return metrics_of(name, {"ssim": 0.1}, range_hu=[low, high])


def image(name: str, low: float | None, high: float | None, scale: float = 255.0) -> CaseScore:
    return metrics_of(name, {"data_range": scale}, output_min=low, output_max=high)


def boxes(name: str, n_truth: int, scores: list[float]) -> CaseScore:
    return metrics_of(
        name, {"n_truth": n_truth, "n_predictions": len(scores)}, boxes=[{"score": score} for score in scores]
    )


def label(name: str, predicted: str | None) -> CaseScore:
    return metrics_of(name, {"correct": 0.0}, predicted=predicted)


def answers(*texts: str, labels: bool = False) -> list[CaseScore]:
    return [
        metrics_of(f"q{number}", {}, answer=text, label=text[:1] if labels else None)
        for number, text in enumerate(texts)
    ]


def questions(count: int, *problems: str) -> list[CaseSubmission]:
    status = "malformed" if problems else "valid"
    return [case(f"q{number}", *problems, status=status) for number in range(count)]


Row = tuple[str, str, str, dict[str, Any], bool]
ROWS: list[Row] = [
    # id, track, detector, what codes_of is given, fires
    # segmentation: empty masks accepted (paper, table 16)
    ("no voxel anywhere", "segmentation", "verify.empty_masks",
     {"cases": plain(), "scores": [organ(name, 0, 50) for name in NAMES]}, True),
    ("three of three hold nothing", "segmentation", "verify.empty_masks",
     {"cases": plain(3), "scores": [organ(name, 0, 9000) for name in NAMES[:3]]}, True),
    ("empty where nothing is", "segmentation", "verify.empty_masks",
     {"cases": plain(), "scores": [organ(name, 0, 0) for name in NAMES]}, False),
    ("one of four has voxels", "segmentation", "verify.empty_masks",
     {"cases": plain(), "scores": [organ("c1", 9, 50), *(organ(name, 0, 50) for name in NAMES[1:])]}, False),
    ("of another shape is not empty", "segmentation", "verify.empty_masks",
     {"cases": plain(), "scores": [organ(name, 0, 50, comparable=False) for name in NAMES]}, False),
    ("nothing submitted is not empty", "segmentation", "verify.empty_masks",
     {"cases": [case(name, status="missing") for name in NAMES], "scores": [organ(name, 0, 50) for name in NAMES]},
     False),
    ("masks elsewhere", "segmentation", "verify.other_grid", {"cases": all_with("affine_mismatch")}, True),
    ("three masks elsewhere", "segmentation", "verify.other_grid",
     {"cases": [case(name, "affine_mismatch") for name in NAMES[:3]]}, True),
    ("one mask elsewhere", "segmentation", "verify.other_grid",
     {"cases": [case("c1", "affine_mismatch"), *plain()[1:]]}, False),
    ("dice below a third of okay", "segmentation", "verify.far_below", {"cases": plain(), "quality": 0.09}, True),
    ("dice of a third of okay", "segmentation", "verify.far_below", {"cases": plain(), "quality": 0.11}, False),
    # detection: okay_threshold / 3 = 0.2 for this card
    ("map of an eighth", "detection", "verify.far_below", {"cases": plain(), "quality": 0.125}, True),
    ("map of a fifth and more", "detection", "verify.far_below", {"cases": plain(), "quality": 0.21}, False),
    ("what is missing is not poor", "detection", "verify.far_below",
     {"cases": [*plain(2), *(case(name, status="missing") for name in NAMES[2:])], "quality": 0.125}, False),
    ("no box at all", "detection", "verify.no_boxes",
     {"cases": plain(), "scores": [boxes(name, 5, []) for name in NAMES]}, True),
    ("no box, also where nothing is", "detection", "verify.no_boxes",
     {"cases": plain(), "scores": [*(boxes(name, 1, []) for name in NAMES[:3]), boxes("c4", 0, [])]}, True),
    ("no box where nothing is", "detection", "verify.no_boxes",
     {"cases": plain(), "scores": [boxes(name, 0, []) for name in NAMES]}, False),
    ("boxes on the images with objects", "detection", "verify.no_boxes",
     {"cases": plain(), "scores": [boxes("c1", 5, [0.5]), *(boxes(name, 0, []) for name in NAMES[1:])]}, False),
    ("boxes outside in every file", "detection", "verify.boxes_outside",
     {"cases": all_with("out_of_bounds", status="malformed")}, True),
    ("boxes outside in both files", "detection", "verify.boxes_outside",
     {"cases": [case(name, "out_of_bounds", status="malformed") for name in NAMES[:2]]}, True),
    ("boxes outside in one file", "detection", "verify.boxes_outside",
     {"cases": [case("c1", "out_of_bounds", status="malformed"), *plain()[1:]]}, False),
    ("all scores 0", "detection", "verify.zero_scores",
     {"cases": plain(), "scores": [boxes(name, 5, [0.0, 0.0]) for name in NAMES]}, True),
    ("a single box in each, score 0", "detection", "verify.zero_scores",
     {"cases": plain(3), "scores": [boxes(name, 1, [0.0]) for name in NAMES[:3]]}, True),
    ("one score above 0", "detection", "verify.zero_scores",
     {"cases": plain(), "scores": [boxes("c1", 5, [0.0, 0.1]), *(boxes(name, 5, [0.0]) for name in NAMES[1:])]},
     False),
    # synthesis: all volumes within [−1, 1] or [0, 255]
    ("never turned back from 0…1", "synthesis", "verify.value_range",
     {"cases": plain(), "scores": [volume(name, 0, 1) for name in NAMES]}, True),
    ("never turned back from −1…1", "synthesis", "verify.value_range",
     {"cases": plain(), "scores": [volume(name, -1, 0.9) for name in NAMES]}, True),
    ("grey values", "synthesis", "verify.value_range",
     {"cases": plain(), "scores": [volume(name, 0, 255) for name in NAMES]}, True),
    ("Hounsfield units", "synthesis", "verify.value_range",
     {"cases": plain(), "scores": [volume(name, -1024, 900) for name in NAMES]}, False),
    ("one volume in HU", "synthesis", "verify.value_range",
     {"cases": plain(), "scores": [volume("c1", -1024, 900), *(volume(name, 0, 1) for name in NAMES[1:])]}, False),
    ("hardly HU", "synthesis", "verify.value_range", {"cases": all_with("hu_range")}, True),
    ("one value everywhere", "synthesis", "verify.blank",
     {"cases": all_with("constant_volume", status="malformed")}, True),
    # enhancement: blank, clipped or unchanged images accepted (paper, table 16)
    ("blank images", "enhancement", "verify.blank",
     {"cases": plain(), "scores": [image(name, 7, 7) for name in NAMES]}, True),
    ("images with contrast", "enhancement", "verify.blank",
     {"cases": plain(), "scores": [image(name, 0, 7) for name in NAMES]}, False),
    ("nothing known of the values", "enhancement", "verify.blank",
     {"cases": plain(), "scores": [image(name, None, None) for name in NAMES]}, False),
    ("normalised images", "enhancement", "verify.value_range",
     {"cases": plain(), "scores": [image(name, 0, 1) for name in NAMES]}, True),
    ("the scale is 0…1", "enhancement", "verify.value_range",
     {"cases": plain(), "scores": [image(name, 0, 1, scale=1.0) for name in NAMES]}, False),
    ("far beyond the plausible", "enhancement", "verify.value_range", {"cases": all_with("range")}, True),
    ("fits the next case as well", "enhancement", "verify.mixed_up",
     {"cases": plain(), "metrics": {"mean_ssim": 0.3, "control_ssim": 0.31}}, True),
    ("fits both the same", "enhancement", "verify.mixed_up",
     {"cases": plain(), "metrics": {"mean_ssim": 0.4, "control_ssim": 0.4}}, True),
    ("fits its own case", "enhancement", "verify.mixed_up",
     {"cases": plain(), "metrics": {"mean_ssim": 0.3, "control_ssim": 0.2}}, False),
    ("no control", "enhancement", "verify.mixed_up",
     {"cases": plain(), "metrics": {"mean_ssim": 0.3, "control_ssim": None}}, False),
    ("rating F though all valid", "enhancement", "verify.far_below",
     {"cases": plain(), "metrics": {"rating": 0}}, True),
    ("rating C", "enhancement", "verify.far_below", {"cases": plain(), "metrics": {"rating": 1}}, False),
    ("rating F because one is missing", "enhancement", "verify.far_below",
     {"cases": [*plain(3), case("c4", status="missing")], "metrics": {"rating": 0}}, False),
    # classification: all predictions one class while K ≥ 3; accuracy < 1/K with valid format (K = 4)
    ("one class for all", "classification", "verify.one_class",
     {"cases": plain(), "scores": [label(name, "glioma") for name in NAMES]}, True),
    ("another class for three", "classification", "verify.one_class",
     {"cases": plain(3), "scores": [label(name, "notumor") for name in NAMES[:3]]}, True),
    ("two classes", "classification", "verify.one_class",
     {"cases": plain(), "scores": [label("c1", "pituitary"), *(label(name, "glioma") for name in NAMES[1:])]}, False),
    ("too few to tell", "classification", "verify.one_class",
     {"cases": plain(2), "scores": [label(name, "glioma") for name in NAMES[:2]]}, False),
    ("below chance", "classification", "verify.below_chance",
     {"cases": plain(), "metrics": {"accuracy": 0.2, "best_permutation_accuracy": 0.8}}, True),
    ("nothing right", "classification", "verify.below_chance",
     {"cases": plain(), "metrics": {"accuracy": 0.0, "best_permutation_accuracy": 0.25}}, True),
    ("at chance", "classification", "verify.below_chance", {"cases": plain(), "metrics": {"accuracy": 0.25}}, False),
    ("below chance, but not all valid", "classification", "verify.below_chance",
     {"cases": [*plain(3), case("c4", status="missing")], "metrics": {"accuracy": 0.2}}, False),
    # VQA: identical or invalid answers accepted (paper); accuracy near chance is no code
    ("always yes", "vqa", "verify.same_answer", {"cases": questions(10), "scores": answers(*["Yes"] * 10)}, True),
    ("yes and no", "vqa", "verify.same_answer",
     {"cases": questions(10), "scores": answers(*["yes", "no"] * 5)}, False),
    ("nine questions", "vqa", "verify.same_answer", {"cases": questions(9), "scores": answers(*["yes"] * 9)}, False),
    ("always the first option", "vqa", "verify.same_answer",
     {"cases": questions(10), "scores": answers(*[f"A text {n}" for n in range(10)], labels=True)}, True),
    ("stand-ins", "vqa", "verify.placeholders", {"cases": questions(6, "placeholder")}, True),
    ("three stand-ins of three", "vqa", "verify.placeholders", {"cases": questions(3, "placeholder")}, True),
    ("half are stand-ins", "vqa", "verify.placeholders",
     {"cases": [*questions(2, "placeholder"), case("x"), case("y")]}, False),
    ("near chance", "vqa", "verify.far_below", {"cases": questions(6), "quality": 0.01}, False),
    ("near chance, unread", "vqa", "verify.unread_poor", {"cases": questions(6), "quality": 0.01}, False),
    # reports: valid and micro F1 < 0.10 and ROUGE-L < 0.10
    ("nothing to compare", "report_generation", "verify.no_words", {"cases": all_with("nothing_to_compare")}, True),
    ("nothing to compare in two", "report_generation", "verify.no_words",
     {"cases": [case(name, "nothing_to_compare") for name in NAMES[:2]]}, True),
    ("no word in common", "report_generation", "verify.unrelated_text",
     {"cases": plain(), "metrics": {"micro_average_f1": 0.0, "ROUGE_L": 0.0}}, True),
    ("neither words nor findings", "report_generation", "verify.unrelated_text",
     {"cases": plain(), "metrics": {"micro_average_f1": 0.05, "ROUGE_L": 0.09}}, True),
    ("words, no findings", "report_generation", "verify.unrelated_text",
     {"cases": plain(), "metrics": {"micro_average_f1": 0.05, "ROUGE_L": 0.1}}, False),
    ("findings were not measured", "report_generation", "verify.unrelated_text",
     {"cases": plain(), "metrics": {"ROUGE_L": 0.01}}, False),
    # every track
    ("outputs that fit any case", "report_generation", "verify.no_effect",
     {"cases": plain(), "effect": Effect(verdict="none", reason="96 % of outputs are alike")}, True),
    ("outputs of their case", "report_generation", "verify.no_effect",
     {"cases": plain(), "effect": Effect(verdict="shown", reason="own 0.4, others 0.2")}, False),
    ("copies of the input", "synthesis", "verify.no_effect",
     {"cases": plain(), "effect": Effect(verdict="none", reason="4 of 4 outputs are the input")}, True),
    ("it cannot be told", "detection", "verify.no_effect",
     {"cases": plain(), "effect": Effect(verdict="unclear", reason="three outputs")}, False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("track", "detector", "given", "fires"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_signal(track: str, detector: str, given: dict[str, Any], fires: bool) -> None:
    code = found_by(codes_of(track, **given), detector)
    assert (code is not None) == fires
    if code is not None:
        assert (code.code, code.source) == ("E3", "rule")


@pytest.mark.parametrize("row", [row for row in ROWS if row[4]], ids=[row[0] for row in ROWS if row[4]])
def test_signals_of_one_track_are_silent_in_the_others(row: Row) -> None:
    """Records of another track never have these keys, but a detector must not even look."""
    _, track, detector, given, _ = row
    others = {"segmentation", "enhancement", "vqa", "report_generation", "detection", "classification", "synthesis"}
    shared = {"verify.no_effect", "verify.value_range", "verify.blank", "verify.far_below"}
    if detector not in shared:
        for other in others - {track}:
            assert found_by(codes_of(other, **given), detector) is None


EVIDENCE = [
    ("synthesis", "verify.value_range", {"cases": plain(), "scores": [volume(name, 0, 1) for name in NAMES]},
     "all 4 volumes have values from 0 to 1, HU are requested"),
    ("classification", "verify.below_chance",
     {"cases": plain(), "metrics": {"accuracy": 0.2, "best_permutation_accuracy": 0.8}},
     "accuracy 0.2000, chance is 0.2500; 0.8000 after the best renaming of the classes"),
    ("vqa", "verify.same_answer", {"cases": questions(10), "scores": answers(*["Yes"] * 10)},
     "10 of 10 questions are answered 'yes'"),
    ("segmentation", "verify.far_below", {"cases": plain(), "quality": 0.09},
     "macro_dice 0.0900 over what was submitted, less than a third of 0.3 (okay)"),
    ("synthesis", "verify.no_effect",
     {"cases": plain(), "effect": Effect(verdict="none", reason="16 of 16 outputs are the input")},
     "16 of 16 outputs are the input"),
]  # fmt: skip


@pytest.mark.parametrize(("track", "detector", "given", "evidence"), EVIDENCE, ids=[row[1] for row in EVIDENCE])
def test_evidence_says_what_was_found(track: str, detector: str, given: dict[str, Any], evidence: str) -> None:
    code = found_by(codes_of(track, **given), detector)
    assert code is not None
    assert (code.stage, code.evidence) == ("S4", evidence)
