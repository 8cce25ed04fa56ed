"""Made-up runs of realistic size, one per track, as staging and collection leave them: what their scoring reads."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from synthetic_volumes import kidney_pair, save

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from toys import enhancement as toy_enhancement
from toys import report_generation as toy_reports
from toys import vqa as toy_vqa
from toys._bench import collected, manifest_of
from toys.detection import box, write_truth

from automedbench.base.cards import TaskCard, load_card
from automedbench.base.files import write_bytes, write_record
from automedbench.base.records import CaseEntry, Manifest
from automedbench.base.untrusted.npy import npy_bytes
from automedbench.datasets.forms.degradation import degrade_z
from automedbench.datasets.forms.volumes import Volume
from automedbench.tracks import ScoringInputs
from automedbench.tracks.common.cases import OUTPUTS
from automedbench.tracks.enhancement.settings import BaselineQuality
from automedbench.tracks.enhancement.truth import BANDS, make_bands
from automedbench.tracks.synthesis.stage import TRUTH, _geometry

ROOT = Path(__file__).resolve().parents[1]
TASKS = ROOT / "config/tasks"
WORDS = [
    first + second for first in ("cardio", "pneumo", "hepato", "nephro", "costo") for second in "abcdefghijklmnopqrst"
]
Written = tuple[TaskCard, Manifest]


def make_run(track: str, folder: Path) -> ScoringInputs:
    """A checked submission of a run of this track, its answers and the public files below ``folder``."""
    random = np.random.default_rng(1)
    card, manifest = RUNS[track](folder, random)
    module: Mapping[str, Any] = {"report_generation": toy_reports.RESOURCES}
    return ScoringInputs(
        card=card,
        manifest=manifest,
        submission=folder / "submission",
        private=folder / "private",
        checked=collected(card, manifest, folder / "submission"),
        resources=module.get(track, {}),
        public=folder / "public",
    )


def _names(n: int) -> list[str]:
    return [f"case_{number:04d}" for number in range(n)]


def _put(folder: Path, case: str, name: str, data: bytes) -> None:
    write_bytes(folder / "submission" / OUTPUTS / case / name, data)


def _classification(folder: Path, random: np.random.Generator) -> Written:
    """A hundred labels, half of them right."""
    card = load_card(TASKS / "classification/braintumor-cls-task.yaml")
    names = [target.name for target in card.targets]
    rows = ["patient_id,label"]
    for case in _names(100):
        truth = str(random.choice(names))
        write_bytes(folder / "private" / case / "label.json", json.dumps({"label": truth}).encode())
        rows.append(f"{case},{truth if random.random() < 0.5 else random.choice(names)}")
    write_bytes(folder / "submission" / OUTPUTS / "predictions.csv", "\n".join(rows).encode())
    return card, manifest_of("classification", {case: {} for case in _names(100)})


def _detection(folder: Path, random: np.random.Generator) -> Written:
    """A thousand images of up to six boxes, and twenty predicted boxes in each."""
    card = load_card(TASKS / "detection/vindr-cxr-det-task.yaml")
    names = [target.name.lower() for target in card.targets]

    def drawn(scored: bool) -> dict[str, Any]:
        x, y = random.uniform(0, 70, 2)
        corners = (x, y, x + random.uniform(5, 30), y + random.uniform(5, 30))
        return box(str(random.choice(names)), *corners, score=float(random.random()) if scored else None)

    truth = {case: [drawn(False) for _ in range(random.integers(0, 7))] for case in _names(1000)}
    manifest = write_truth(folder / "private", truth)
    for case, boxes in truth.items():
        found = [each | {"score": 0.9} for each in boxes[::2]] + [drawn(True) for _ in range(20)]
        _put(folder, case, "prediction.json", json.dumps({"boxes": found}).encode())
    return card, manifest


def _vqa(folder: Path, random: np.random.Generator) -> Written:
    """A thousand questions, half of them open."""
    kinds = ["open", "yes_no"] * 500
    for case, kind in zip(_names(1000), kinds, strict=True):
        gold = " ".join(random.choice(WORDS, 3)) if kind == "open" else str(random.choice(["yes", "no"]))
        truth = {"question": "What is seen?", "answer_text": gold, "answer_label": None, "kind": kind, "groups": {}}
        write_bytes(folder / "private" / case / "answer.json", json.dumps(truth).encode())
        answer = gold if random.random() < 0.4 else " ".join(random.choice(WORDS, 3))
        _put(folder, case, "answer.json", json.dumps(toy_vqa.record(case, predicted_answer=answer)).encode())
    return toy_vqa.CARD, manifest_of("vqa", {case: {"options": {}} for case in _names(1000)})


def _reports(folder: Path, random: np.random.Generator) -> Written:
    """Five hundred reports of sixty words."""
    for case in _names(500):
        truth, other = (" ".join(random.choice(WORDS, 60)) for _ in range(2))
        write_bytes(folder / "private" / case / "report.txt", f"FINDINGS: {truth}.".encode())
        _put(folder, case, "report.txt", f"FINDINGS: {truth[:200]} {other[:200]}.".encode())
    return toy_reports.CARD, manifest_of("report_generation", {case: {} for case in _names(500)})


def _enhancement(folder: Path, random: np.random.Generator) -> Written:
    """A hundred noisy images of 512 × 512, smoothed."""
    card = load_card(TASKS / "enhancement/deeplesion-denoising-task.yaml")
    down, across = np.mgrid[0:512, 0:512] / 90
    for number, case in enumerate(_names(100)):
        image = (np.sin((1 + number % 7) * down + number) * np.cos((1 + number % 5) * across) / 2 + 0.5).astype(
            np.float32
        )
        noisy = (image + 0.05 * random.standard_normal(image.shape)).astype(np.float32)
        write_bytes(folder / "private" / case / "reference.npy", npy_bytes(image))
        write_bytes(folder / "public" / case / "input.npy", npy_bytes(noisy))
        _put(folder, case, "enhanced.npy", npy_bytes((noisy + image) / 2))
    known = {"classical": BaselineQuality(mean_ssim=0.9, mean_psnr=30)}
    write_record(folder / "private" / BANDS, make_bands(card.id, known, classical="classical", source="published"))
    return card, toy_enhancement.make_manifest(dict.fromkeys(_names(100), (512, 512)))


def _segmentation(folder: Path, random: np.random.Generator) -> Written:
    """Twenty volumes of 512 × 512 × 200 with kidneys, tumours and a cyst; all files are links to one pair."""
    value = load_card(TASKS / "segmentation/tsg-multiorgan-seg-task.yaml").model_dump()
    value["targets"] = value["targets"][:3]
    names = _names(20)
    truth, prediction = kidney_pair(1.0)
    save(truth, folder / "private" / names[0] / "dseg.nii.gz")
    save(prediction, folder / "submission" / OUTPUTS / names[0] / "dseg.nii.gz")
    for below in (folder / "private", folder / "submission" / OUTPUTS):
        for case in names[1:]:
            (below / case).mkdir(parents=True)
            os.link(below / names[0] / "dseg.nii.gz", below / case / "dseg.nii.gz")
    geometry = {"shape": list(truth.shape), "spacing": [1.0] * 3, "affine": np.eye(4).tolist()}
    return TaskCard.model_validate(value), manifest_of("segmentation", dict.fromkeys(names, geometry))


def _synthesis(folder: Path, random: np.random.Generator) -> Written:
    """Four CTs of 512 × 512 × 120 with a quarter of their slices, and a prediction halfway to the truth."""
    card = load_card(TASKS / "synthesis/totalsegmentator-ctsr-task.yaml")
    entries = []
    x, y, z = np.meshgrid(np.arange(512), np.arange(512), np.arange(120), indexing="ij", sparse=True)
    for number, case in enumerate(_names(4)):
        body = ((x - 256) / 200) ** 2 + ((y - 256) / (150 + 5 * number)) ** 2 < 1
        texture = 100 * np.sin(0.05 * x + number) * np.cos(0.9 * z) + 20 * random.standard_normal((512, 512, 120))
        values = np.asarray(np.where(body, texture, -1000), dtype=np.int16)
        given = degrade_z(values, 4)
        write_volumes = {
            folder / "private" / case / TRUTH: values,
            folder / "public" / case / "ct.nii.gz": given,
            folder / "submission" / OUTPUTS / case / "sct.nii.gz": ((values + given) / 2).astype(np.int16),
        }
        for path, volume in write_volumes.items():
            save(volume, path)
        geometry = _geometry(Volume(values, np.eye(4)), given).model_dump(mode="json")
        entries.append(CaseEntry(id=case, inputs={}, private={}, geometry=geometry))
    return card, card.manifest("by hand", entries)


RUNS: dict[str, Callable[[Path, np.random.Generator], Written]] = {
    "classification": _classification,
    "detection": _detection,
    "enhancement": _enhancement,
    "report_generation": _reports,
    "segmentation": _segmentation,
    "synthesis": _synthesis,
    "vqa": _vqa,
}
