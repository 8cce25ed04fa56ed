"""A made-up release of the public benchmark's seven Lite tasks, in the layout of the true one (docs/presets.md).

``python tests/releases.py FOLDER`` writes one with few cases, ``--full`` one with the true numbers of cases.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from PIL import Image

FEW = {
    "skin-lesion-cls-task": 8,
    "msd-pancreas-ctsr-task": 2,
    "grazpedwri-det-task": 2,
    "tsg-multiorgan-seg-task": 2,
    "medxpertqa-mm-task": 4,
    "chexpert-plus-cxr-task": 2,
    "ldct-denoising-task": 2,
}
FULL = {
    "skin-lesion-cls-task": 100,
    "msd-pancreas-ctsr-task": 20,
    "grazpedwri-det-task": 100,
    "tsg-multiorgan-seg-task": 40,
    "medxpertqa-mm-task": 2005,
    "chexpert-plus-cxr-task": 100,
    "ldct-denoising-task": 20,
}
"""Counts of the public Lite-v0.1: 2 385 cases."""
CLASSES = ("actinic_keratoses", "basal_cell_carcinoma", "benign_keratosis_like_lesions", "dermatofibroma", "melanoma")
CLASSES += ("melanocytic_nevi", "melanocytic_nevi", "vascular_lesions")
"""Classes of the skin lesions, one for each case."""
EFFUSION = "A small pleural effusion is seen on the left side and the heart is of normal size."
CLEAR = "The lungs are well-expanded and clear without a pleural effusion on either side."
PATTERNS = {
    "effusion": {"description": "made up", "positive": [r"\bpleural effusion\b"], "negative": [r"\bwithout a pleural"]},
    "clear": {"description": "made up", "positive": [r"\bclear\b"]},
    "tube": {"description": "made up", "positive": [r"\btube\b"]},
}
"""Word patterns in the form of the release's, and none of its own."""


def make_release(root: Path, counts: dict[str, int] = FEW) -> None:
    """Fill ``root`` with a release that has so many cases of each task."""
    for task, count in counts.items():
        track, data, guidance, make = _TASKS[task]
        folder = root / f"benchmarks/AutoMedBench-{track}"
        make(folder / "data" / data / "public", folder / "data" / data / "private", count)
        texts = {f"lite_s{stage}.md": f"Hint {stage} of {task}: run `cat {{{{ here }}}}`.\n" for stage in (1, 2, 3)}
        texts["config.yaml"] = f"task_id: {task}\nscore_metric: made_up\nanswer_mode: multiple_choice\n"
        texts["model_info.yaml"] = "lite:\n  model_name: someone/locked-model\n  model_description: made up\n"
        for name, text in texts.items():
            _text(folder / guidance / name, text)
    for name, text in _package(counts).items():
        _text(root / "automedbench_release" / name, text)
    scorer = f'"""Made up."""\nimport not_installed_here\nOBSERVATION_SCHEMA = {PATTERNS!r}\n'
    _text(root / "benchmarks/AutoMedBench-report/eval_report_gen/report_scorer.py", scorer)


def _package(counts: dict[str, int]) -> dict[str, str]:
    """A stand-in of the release's own scorers: their interface, and of classification a balanced accuracy."""
    rows = {_TASKS[task][0]: (task, number, *_TASKS[task][1:3]) for task, number in counts.items()}
    markers = {"classification": "image.jpg", "detection": "image.png", "enhancement": "input.npy"}
    markers |= {"vqa": "question.json", "report": "manifest.json"}
    tasks = f"""
from pathlib import Path
from types import SimpleNamespace
TASK_BY_TRACK = {{
    track: SimpleNamespace(task_id=task, expected_public_cases=count, public_marker={markers!r}.get(track, "ct.nii.gz"),
        data_path=lambda release, place="benchmarks/AutoMedBench-" + track + "/data/" + data: Path(release, place))
    for track, (task, count, data, _) in {rows!r}.items()
}}
"""
    worker = f"""
import contextlib, csv, json
TRACK_LAYOUTS = {{track: {{"eval_dir": "benchmarks/AutoMedBench-" + track, "config": guidance + "/config.yaml",
    "modules": ["made_up"]}} for track, (_, _, _, guidance) in {rows!r}.items()}}
@contextlib.contextmanager
def _track_modules(eval_dir, modules):
    yield dict.fromkeys(modules)
def _classification(*, modules, output_dir, public_dir, private_dir, selected, config):
    print("a label that nobody may see")
    truth = {{case: json.loads((private_dir / case / "label.json").read_text())["label"] for case in selected}}
    answers = {{row["patient_id"]: row["label"] for row in csv.DictReader((output_dir / "predictions.csv").open())}}
    recall = [sum(answers.get(case) == label for case in selected if truth[case] == label)
        / sum(truth[case] == label for case in selected) for label in set(truth.values())]
    return sum(recall) / len(recall), {{"expected_outputs": len(selected), "valid_outputs": len(answers)}}, truth
_SCORERS = {{"classification": _classification}}
"""
    return {"__init__.py": "", "tasks.py": tasks, "raw_track_worker.py": worker}


def _skin(public: Path, private: Path, count: int) -> None:
    for number in range(count):
        name = f"ISIC_{number + 1:08d}"
        _picture(public / name / "image.jpg", number)
        _json(private / name / "label.json", {"label": CLASSES[number % len(CLASSES)]})


def _wrist(public: Path, private: Path, count: int) -> None:
    """Radiographs of 64 × 48 pixels: with a fracture and with a letter in turn."""
    boxes = [("fracture", 8, 12, 24, 36), ("text", 24, 18, 40, 30)]
    for number in range(count):
        name, (label, x1, y1, x2, y2) = f"GRAZPEDWRI_{number + 1:08d}", boxes[number % 2]
        _picture(public / name / "image.png", number)
        box = {"class": label, "x1": x1, "y1": y1, "x2": x2, "y2": y2}
        _json(private / name / "boxes.json", {"image_id": name, "width": 64, "height": 48, "boxes": [box]})


def _organs(public: Path, private: Path, count: int) -> None:
    """Scans with masks of aorta and liver; that of brain is empty, those of other structures are not there."""
    aorta, liver = np.zeros((2, 12, 10, 8), np.uint8)
    aorta[1:5, 1:5, 1:5], liver[4:10, 1:5, 1:5] = 1, 1  # they overlap in x = 4, where the higher number wins
    for number in range(count):
        name = f"TSG_{number + 1:08d}"
        _volume(public / name / "ct.nii.gz", _scan((12, 10, 8), number))
        for structure, mask in {"aorta": aorta, "liver": liver, "brain": 0 * aorta}.items():
            _volume(private / "masks" / name / f"{structure}.nii.gz", mask)


def _pancreas(public: Path, private: Path, count: int) -> None:
    for number in range(count):
        name, true = f"MSDPSR_{number + 1:04d}", _scan((16, 16, 12), number)
        _volume(private / name / "ct.nii.gz", true)
        _volume(public / name / "ct.nii.gz", (true // 2).astype(np.int16))


def _questions(public: Path, private: Path, count: int) -> None:
    """Questions whose right letters are A, B, C and D in turn."""
    rows = []
    for number in range(count):
        name, letter = f"MM-{number}", "ABCD"[number % 4]
        _picture(public / name / f"{name}-a.jpeg", number)
        options = {each: f"finding {each.lower()}" for each in "ABCDE"}
        asked = {"question_id": name, "question": f"Which finding is in picture {number}?", "options": options}
        _json(public / name / "question.json", asked | {"image_paths": [f"{name}-a.jpeg"], "reference_answer": letter})
        rows.append((name, letter, options[letter]))
    _table(private / "ground_truth.csv", ["question_id", "answer_label", "answer_text"], rows)


def _reports(public: Path, private: Path, count: int) -> None:
    """Studies with an effusion and with clear lungs in turn."""
    for number in range(count):
        name, text, labels = f"CXR{number + 1:04d}", (EFFUSION, CLEAR)[number % 2], ("effusion", "clear")
        _picture(public / name / "images/01.jpg", number)
        _json(public / name / "manifest.json", {"case_id": name, "image_count": 1, "image_files": ["01.jpg"]})
        _text(private / name / "report.txt", f"{text}\n")
        found = {label: int(label == labels[number % 2]) for label in PATTERNS}
        _json(private / name / "labels.json", {"labels": found})


def _slices(public: Path, private: Path, count: int) -> None:
    rows = []
    for number in range(count):
        name, noise = f"LDCT_{number + 1:04d}", np.random.default_rng(number)
        clean = (np.add.outer(np.arange(512.0), np.arange(512.0)) - 500 + number).astype(np.float32)
        _array(private / name / "reference.npy", clean)
        _array(public / name / "input.npy", (clean + noise.normal(0, 50, clean.shape)).astype(np.float32))
        rows.append((name, 4000.0))
    _table(private / "ground_truth.csv", ["patient_id", "data_range"], rows)


_TASKS: dict[str, tuple[str, str, str, Any]] = {
    "skin-lesion-cls-task": ("classification", "SkinLesionISIC", "eval_cls/skin-lesion-cls-task", _skin),
    "msd-pancreas-ctsr-task": (
        "synthesis", "MSD_Pancreas_CT_SR20", "eval_synthetic/msd-pancreas-ctsr-task", _pancreas,
    ),
    "grazpedwri-det-task": ("detection", "GRAZPEDWRI_Detection100", "eval_det2d/grazpedwri-det-task", _wrist),
    "tsg-multiorgan-seg-task": ("segmentation", "TSG_multi-organ", "eval_seg/tsg-multiorgan-seg-task", _organs),
    "medxpertqa-mm-task": ("vqa", "MedXpertQA_MM", "eval_vqa/tasks/medxpertqa-mm-task", _questions),
    "chexpert-plus-cxr-task": (
        "report", "CheXpert_Plus_Report/test_100_v1", "eval_report_gen/tasks/chexpert-plus-cxr-task", _reports,
    ),
    "ldct-denoising-task": ("enhancement", "LDCT_SimNICT", "eval_image_enhancement/ldct-denoising-task", _slices),
}  # fmt: skip
"""Task → track, folder of data and folder of guidance as they are called in the release, and what fills the data."""


def _scan(shape: tuple[int, int, int], seed: int) -> Any:
    return np.random.default_rng(seed).integers(-1000, 1000, shape).astype(np.int16)


def _volume(path: Path, values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(values, np.diag([-1.5, -1.5, 3.0, 1.0])), path)  # x and y are flipped, as of many scanners


def _picture(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (48, 64, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path)


def _array(path: Path, values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, values)


def _json(path: Path, content: Any) -> None:
    _text(path, json.dumps(content))


def _table(path: Path, header: list[str], rows: Iterable[Iterable[Any]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    _text(path, text.getvalue())


def _text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    make_release(options.folder, FULL if options.full else FEW)
