"""Made-up releases of the public benchmark's seven Lite tasks, in the layout that docs/presets.md states."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from PIL import Image

SENTENCE = "The heart is of normal size and the lungs are clear on both sides"
CLASSES = ("akiec", "bcc", "bkl", "df", "mel", "nv", "nv", "vasc")
"""Upstream codes of the skin lesions, one for each case."""


def make_release(task: str, folder: Path) -> str:
    """Fill ``folder`` with the made-up release of a task; the SHA-256 of its manifest."""
    cases = _MAKERS[task](folder)
    return write_manifest(task, folder, cases)


def write_manifest(task: str, folder: Path, cases: Iterable[str]) -> str:
    """``manifest.json`` of what lies in the folder; its SHA-256."""
    names = sorted(
        path for path in folder.rglob("*") if path.is_file() and path.name not in ("manifest.json", "receipt.json")
    )
    files = {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in names}
    text = json.dumps({"task": task, "cases": list(cases), "files": files})
    (folder / "manifest.json").write_text(text)
    return hashlib.sha256(text.encode()).hexdigest()


def _skin(folder: Path) -> list[str]:
    rows = {f"ISIC_{24306 + number:07d}": code for number, code in enumerate(CLASSES)}
    for number, name in enumerate(rows):
        _picture(folder / f"images/{name}.jpg", number)
    _table(folder / "labels.csv", ["case_id", "label"], rows.items())
    return list(rows)


def _wrist(folder: Path) -> list[str]:
    """Two radiographs of 64 × 48 pixels: one with a fracture, one with a letter."""
    boxes = {"0001_a": "3 0.25 0.5 0.25 0.5\n", "0002_b": "8 0.5 0.5 0.5 0.25\n"}
    (folder / "labels").mkdir(parents=True)
    for number, (name, line) in enumerate(boxes.items()):
        _picture(folder / f"images/{name}.png", number)
        (folder / f"labels/{name}.txt").write_text(line)
    return list(boxes)


def _organs(folder: Path) -> list[str]:
    """Two scans, each with the same two of the 117 structures: aorta (3) and liver (44)."""
    labels = np.zeros((12, 10, 8), np.uint8)
    labels[1:5, 1:5, 1:5], labels[6:10, 1:5, 1:5] = 3, 44
    for name in ("s0011", "s0058"):
        _volume(folder / f"images/{name}.nii.gz", _scan((12, 10, 8), ord(name[-1])))
        _volume(folder / f"labels/{name}.nii.gz", labels)
    return ["s0011", "s0058"]


def _pancreas(folder: Path) -> list[str]:
    for number, name in enumerate(("pancreas_001", "pancreas_002")):
        _volume(folder / f"volumes/{name}.nii.gz", _scan((16, 16, 12), number))
    return ["pancreas_001", "pancreas_002"]


def _questions(folder: Path) -> list[str]:
    """Four questions, whose right letters are A, B, C and D."""
    rows = []
    for number, letter in enumerate("ABCD"):
        name = f"MM-{number}"
        _picture(folder / f"images/{name}.jpg", number)
        options = {each: f"finding {each.lower()}" for each in "ABCDE"}
        question = {"id": name, "question": f"Which finding is in picture {number}?", "options": options}
        rows.append(json.dumps(question | {"label": letter, "images": [f"{name}.jpg"]}))
    (folder / "questions.jsonl").write_text("\n".join(rows) + "\n")
    return [f"MM-{number}" for number in range(4)]


def _reports(folder: Path) -> list[str]:
    rows = []
    for number, name in enumerate(("patient64541_study1", "patient64542_study1")):
        _picture(folder / f"images/{name}.png", number)
        rows.append((name, f"{name}.png", f"FINDINGS: {SENTENCE}."))
    _table(folder / "reports.csv", ["case_id", "image", "report"], rows)
    return [row[0] for row in rows]


def _slices(folder: Path) -> list[str]:
    for part in ("reference", "input"):
        (folder / part).mkdir(parents=True)
    for number, name in enumerate(("L067_a", "L096_b")):
        noise = np.random.default_rng(number)
        clean = np.add.outer(np.arange(512.0), np.arange(512.0)) - 500 + number
        np.save(folder / f"reference/{name}.npy", clean.astype(np.float32))
        np.save(folder / f"input/{name}.npy", (clean + noise.normal(0, 50, clean.shape)).astype(np.float32))
    return ["L067_a", "L096_b"]


_MAKERS = {
    "skin-lesion-cls-task": _skin,
    "msd-pancreas-ctsr-task": _pancreas,
    "grazpedwri-det-task": _wrist,
    "tsg-multiorgan-seg-task": _organs,
    "medxpertqa-mm-task": _questions,
    "chexpert-plus-cxr-task": _reports,
    "ldct-denoising-task": _slices,
}


def _scan(shape: tuple[int, int, int], seed: int) -> Any:
    return np.random.default_rng(seed).integers(-1000, 1000, shape).astype(np.int16)


def _volume(path: Path, values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(values, np.diag([1.5, 1.5, 3.0, 1.0])), path)


def _picture(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (48, 64, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path)


def _table(path: Path, header: list[str], rows: Iterable[Iterable[str]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    path.write_text(text.getvalue())
