"""Small made-up tasks in which a simple method sees something: a card and raw data in the upstream form for each.

What is to be found is drawn into the inputs, with noise: classical programs find most of it, constants nothing.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from automedbench.base.cards import TaskCard, load_card

ROOT = Path(__file__).resolve().parents[2]
TASKS = ROOT / "config/tasks"
WORDNET = ROOT / "demo/data/wordnet"
Array = NDArray[Any]
Noise = np.random.Generator


@dataclass(frozen=True)
class Toy:
    """A made-up task: its card, and what writes raw data into a folder."""

    CARD: TaskCard
    make_raw: Callable[[Path], None]
    RESOURCES: dict[str, Path]


def ball(shape: tuple[int, ...], centre: Any, radii: Any) -> Array:
    """Voxels or pixels of an ellipsoid."""
    axes = np.ogrid[tuple(slice(size) for size in shape)]
    parts = zip(axes, centre, np.broadcast_to(radii, len(shape)), strict=True)
    return np.asarray(sum(((axis - middle) / radius) ** 2 for axis, middle, radius in parts) < 1)


def grey(values: Array) -> Image.Image:
    """An 8-bit picture."""
    return Image.fromarray(np.clip(np.rint(values), 0, 255).astype(np.uint8))


def _card(name: str, change: Callable[[dict[str, Any]], None]) -> TaskCard:
    value = load_card(TASKS / f"{name}.yaml").model_dump()
    change(value)
    return TaskCard.model_validate(value)


# --- classification: 100 slices, four classes, half of them without a tumour ------------------------------------

SIDE = 40
CLASSES = {"notumor": 46, "glioma": 18, "meningioma": 18, "pituitary": 18}


def _classification(card: dict[str, Any]) -> None:
    card["staging"]["sampling"] |= {"count": None, "options": {}}


def _slice(chance: Noise, name: str) -> Array:
    """A head with a bright spot inside (glioma), at the rim (meningioma), at its base (pituitary), or without."""
    height, width = chance.uniform(15, 18), chance.uniform(12, 15)
    values = np.where(ball((SIDE, SIDE), (20, 20), (height, width)), chance.uniform(85, 105), 5.0)
    angle = chance.uniform(0, 2 * np.pi)
    far = {"glioma": chance.uniform(0, 0.4), "meningioma": 0.8}.get(name, 0)
    place = (20 + far * height * np.sin(angle), 20 + far * width * np.cos(angle))
    if name == "pituitary":
        place = (20 + 0.6 * height, 20 + chance.uniform(-1, 1))
    if name != "notumor":
        values[ball((SIDE, SIDE), place, chance.uniform(2.5, 4))] = chance.uniform(150, 190)
    return np.asarray(values + chance.normal(0, 12, values.shape))


def raw_classification(raw: Path) -> None:
    """Class folders of JPEG."""
    chance = np.random.default_rng(1)
    for name, count in CLASSES.items():
        (raw / "Testing" / name).mkdir(parents=True)
        for number in range(count):
            picture = grey(_slice(chance, name)).convert("RGB")
            picture.save(raw / f"Testing/{name}/Te-{name}_{number:04d}.jpg", quality=95)


# --- detection: 30 smears ------------------------------------------------------------------------------------------

SMEAR = (72, 96)
CELLS = {"RBC": ((200, 90, 90), 5.0, 6.5), "WBC": ((110, 60, 160), 9.0, 11.0), "Platelets": ((150, 70, 150), 2.0, 2.6)}


def raw_detection(raw: Path) -> None:
    """Pascal VOC: two to seven red cells, mostly one white one, up to three platelets; none overlap."""
    chance = np.random.default_rng(2)
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (raw / "BCCD" / folder).mkdir(parents=True)
    names = [f"BloodImage_{number:05d}" for number in range(30)]
    for name in names:
        values, cells = _smear(chance)
        grey(values).save(raw / f"BCCD/JPEGImages/{name}.jpg", quality=95)
        objects = "".join(_voc(*cell) for cell in cells)
        (raw / f"BCCD/Annotations/{name}.xml").write_text(f"<annotation>{objects}</annotation>")
    (raw / "BCCD/ImageSets/Main/test.txt").write_text("".join(f"{name}\n" for name in names))


def _smear(chance: Noise) -> tuple[Array, list[tuple[str, Array, float]]]:
    values = np.full((*SMEAR, 3), 225.0)
    wanted = ["WBC"] * int(chance.choice([0, 1, 1, 2])) + ["RBC"] * int(chance.integers(2, 8))
    placed: list[tuple[str, Array, float]] = []
    for name in wanted + ["Platelets"] * int(chance.integers(0, 4)):
        colour, low, high = CELLS[name]
        radius = float(chance.uniform(low, high))
        for _ in range(50):
            centre = chance.uniform(radius + 1, np.array(SMEAR) - radius - 1)
            if all(np.hypot(*(centre - other)) > radius + size + 2 for _, other, size in placed):
                values[ball(SMEAR, centre, radius)] = colour
                placed.append((name, centre, radius))
                break
    return values + chance.normal(0, 8, values.shape), placed


def _voc(name: str, centre: Array, radius: float) -> str:
    low, high = np.rint(centre - radius + 1).astype(int), np.rint(centre + radius + 1).astype(int)
    box = f"<xmin>{low[1]}</xmin><ymin>{low[0]}</ymin><xmax>{high[1]}</xmax><ymax>{high[0]}</ymax>"
    return f"<object><name>{name}</name><bndbox>{box}</bndbox></object>"


# --- segmentation: 30 trunks with three organs -----------------------------------------------------------------

TRUNK = (28, 24, 16)
ORGANS = {"liver": 110.0, "spleen": 170.0, "aorta": 260.0}


def _segmentation(card: dict[str, Any]) -> None:
    card["targets"] = [{"id": number, "name": name} for number, name in enumerate(ORGANS, start=1)]
    card["staging"]["sampling"] |= {"count": 30, "options": {}}


def raw_segmentation(raw: Path) -> None:
    """TotalSegmentator's layout: a CT, one mask per structure, the table."""
    chance = np.random.default_rng(3)
    affine = np.diag([1.5, 1.5, 1.5, 1])
    for number in range(30):
        folder = raw / f"s{number + 1:04d}"
        (folder / "segmentations").mkdir(parents=True)
        scan = np.where(ball(TRUNK, (14, 12, 8), (13.5, 11.5, 30)), 30.0, -1000.0)
        for name, mask in _organs(chance).items():
            scan[mask] = ORGANS[name]
            _volume(folder / f"segmentations/{name}.nii.gz", mask.astype(np.uint8), affine)
        _volume(folder / "ct.nii.gz", (scan + chance.normal(0, 18, TRUNK)).astype(np.int16), affine)
    rows = "".join(f"s{number + 1:04d};50;m;A;x;test\n" for number in range(30))
    (raw / "meta.csv").write_text("image_id;age;gender;institute;study_type;split\n" + rows)


def _organs(chance: Noise) -> dict[str, Array]:
    """The three at places of their own; the aorta passes before the others."""
    move = [chance.uniform(-2, 2, 3) for _ in ORGANS]
    liver = ball(TRUNK, np.array([8, 11, 9]) + move[0], chance.uniform(4, 5.5, 3))
    spleen = ball(TRUNK, np.array([21, 13, 8]) + move[1], chance.uniform(2.5, 4, 3))
    aorta = ball(TRUNK, np.array([14.5, 17, 8]) + move[2], (1.9, 1.9, 30))
    return {"liver": liver & ~aorta, "spleen": spleen & ~aorta & ~liver, "aorta": aorta}


def _volume(path: Path, values: Array, affine: Array) -> None:
    kind: Any = nibabel.Nifti1Image
    image = kind(values, affine)
    path.write_bytes(gzip.compress(image.to_bytes(), 1, mtime=0))


# --- enhancement: 24 slices with noise, 24 X-rays at half the resolution --------------------------------------------

FINE = (48, 48)


def scene(chance: Noise, *shape: int) -> Array:
    """Something with flat parts, edges and fine stripes, 0 to 1 (rows, columns)."""
    down, across = np.mgrid[: shape[0], : shape[1]] / shape[0]
    waves = np.sin(chance.uniform(2, 5) * down + chance.uniform(0, 6)) * np.cos(chance.uniform(2, 5) * across)
    values = 0.35 + 0.1 * waves
    for _ in range(6):
        place, size = chance.uniform(0, shape[0], 2), chance.uniform(3, shape[0] / 4, 2)
        values[ball(shape, place, size)] = chance.uniform(0.1, 0.9)
    stripes = 0.08 * np.sin(chance.uniform(0.9, 1.6) * shape[0] * (down * chance.uniform(0.3, 1) + across))
    return np.asarray(np.clip(values + stripes * (values > 0.5), 0, 1))


def _denoising(card: dict[str, Any]) -> None:
    card["staging"]["options"] |= {"size": list(FINE)}
    card["staging"]["sampling"] |= {"count": 24}
    card["staging"]["degradation"] |= {"sigma": 0.1}
    card["metric"]["settings"] |= {"output_shape": list(FINE), "lpips": "off"}


def raw_denoising(raw: Path) -> None:
    """DeepLesion's layout: 16-bit PNG, HU + 32768, of 24 patients."""
    chance = np.random.default_rng(4)
    for number in range(1, 25):
        folder = raw / f"Images_png/{number:06d}_01_01"
        folder.mkdir(parents=True)
        stored = np.rint(scene(chance, *FINE) * 2000 - 1000 + 32768).astype(np.uint16)
        Image.fromarray(stored).save(folder / "103.png")


def _super_resolution(card: dict[str, Any]) -> None:
    card["staging"]["options"] |= {"size": list(FINE)}
    card["staging"]["sampling"] |= {"count": 24, "options": {}}
    card["metric"]["settings"] |= {"output_shape": list(FINE), "lpips": "off"}


def raw_super_resolution(raw: Path) -> None:
    """NIH's layout: 8-bit PNG of 24 patients."""
    chance = np.random.default_rng(5)
    (raw / "images").mkdir(parents=True)
    for number in range(24):
        grey(255 * scene(chance, *FINE)).save(raw / f"images/{number + 1:08d}_000.png")


# --- synthesis: 16 CT of which every fourth slice is kept ------------------------------------------------------

SCAN = (20, 20, 24)


def _synthesis(card: dict[str, Any]) -> None:
    card["staging"]["sampling"] |= {"count": None}
    card["staging"]["sampling"]["options"] |= {"min_slices": 16, "min_in_plane": 16}


def raw_synthesis(raw: Path) -> None:
    """TotalSegmentator's layout: a body with a spine and balls."""
    chance = np.random.default_rng(6)
    for number in range(16):
        folder = raw / f"s{number + 1:04d}"
        folder.mkdir(parents=True)
        values = np.where(ball(SCAN, (10, 10, 12), (9, 8, 60)), 40.0, -1000.0)
        for _ in range(5):
            place = chance.uniform(3, np.array(SCAN) - 3)
            values[ball(SCAN, place, chance.uniform(2, 5, 3))] = chance.choice([-700, -300, 200, 500])
        values[ball(SCAN, (10 + chance.uniform(-2, 2), 14, 12), (2.5, 2.5, 60))] = 800
        scan = np.rint(values + chance.normal(0, 8, SCAN)).astype(np.int16)
        _volume(folder / "ct.nii.gz", scan, np.diag([1.5, 1.5, 1.5, 1]))


# --- VQA: 96 questions about 24 pictures ---------------------------------------------------------------------------

COUNTS = ("zero", "one", "two", "three")


def raw_vqa(raw: Path) -> None:
    """VQA-RAD's layout: four questions about each picture of a head or a chest with up to three bright spots."""
    chance = np.random.default_rng(7)
    (raw / "data_RAD/images").mkdir(parents=True)
    rows: list[dict[str, Any]] = []
    for number in range(24):
        values, facts = _scene_with_spots(chance)
        name = f"synpic{number + 100}.jpg"
        grey(values).save(raw / "data_RAD/images" / name, quality=95)
        for question, answer in facts:
            kind = "CLOSED" if answer in ("yes", "no") else "OPEN"
            row = {"qid": len(rows) + 1, "image_name": name, "question": question, "answer": answer}
            rows.append(row | {"answer_type": kind, "question_type": "PRES", "image_organ": "HEAD"})
    (raw / "data_RAD/testset.json").write_text(json.dumps(rows))


def _scene_with_spots(chance: Noise) -> tuple[Array, list[tuple[str, str]]]:
    head, count, left = bool(chance.integers(2)), int(chance.integers(4)), bool(chance.integers(2))
    values = np.where(ball((48, 48), (24, 24), (22, 18)), 90.0, 3.0) if head else np.full((48, 48), 120.0)
    for number in range(count):
        values[ball((48, 48), (12 + 11 * number, (16 if left else 32) + chance.uniform(-2, 2)), 3.5)] = 215
    side = "left" if left else "right"
    facts = [
        ("Is there a lesion?", "yes" if count else "no"),
        ("Is this an image of the brain?", "yes" if head else "no"),
        ("How many lesions are there?", COUNTS[count]),
        ("On which side of the picture are the lesions?", side if count else "neither"),
    ]
    return values + chance.normal(0, 10, values.shape), facts


# --- reports: 40 drawn chests ------------------------------------------------------------------------------------

HEART = {
    False: ["The heart is normal in size.", "Cardiac silhouette is within normal limits."],
    True: ["The heart is enlarged.", "There is cardiomegaly."],
}
EFFUSION = {
    "": ["No pleural effusion is seen.", "The costophrenic angles are sharp."],
    "left": ["There is a left pleural effusion.", "Blunting of the left costophrenic angle is noted."],
    "right": ["There is a right pleural effusion.", "Blunting of the right costophrenic angle is noted."],
}
NODULE = {
    "": ["The lungs are clear.", "No focal opacity is present."],
    "left": ["A nodule is present in the left upper lung.", "There is a focal opacity in the left lung."],
    "right": ["A nodule is present in the right upper lung.", "There is a focal opacity in the right lung."],
}


def raw_reports(raw: Path) -> None:
    """CheXpert Plus' layout: one frontal picture per patient, findings made of the same sentences in two wordings."""
    chance = np.random.default_rng(8)
    with open(raw / "invented_reports.csv", "w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(
            ["path_to_image", "frontal_lateral", "deid_patient_id", "section_findings", "section_impression"]
        )
        for number in range(40):
            study = f"valid/patient{number + 1:05d}/study1"
            values, text = _chest(chance)
            (raw / "PNG" / study).mkdir(parents=True)
            grey(values).save(raw / "PNG" / study / "view1_frontal.png")
            table.writerow([f"{study}/view1_frontal.jpg", "Frontal", f"patient{number + 1:05d}", text, "See findings."])


def _chest(chance: Noise) -> tuple[Array, str]:
    large = bool(chance.random() < 0.4)
    fluid, nodule = (str(chance.choice(["", "", "left", "right"])) for _ in range(2))
    values = np.full((56, 56), 150.0)
    columns = {"right": 16, "left": 40}  # the patient's right is on the picture's left
    for column in columns.values():
        values[ball((56, 56), (28, column), (22, 11))] = 50
    values[ball((56, 56), (38, 29), (9, 15 if large else 9))] = 170
    if fluid:
        values[40:52, columns[fluid] - 11 : columns[fluid] + 11] = 190
    if nodule:
        values[ball((56, 56), (16, columns[nodule]), 3)] = 200
    sentences = [HEART[large], NODULE[nodule], EFFUSION[fluid]]
    return values + chance.normal(0, 10, values.shape), " ".join(str(chance.choice(each)) for each in sentences)


def make_toys() -> dict[str, Toy]:
    """Every made-up task by a short name."""
    wordnet = {"wordnet": WORDNET}
    reports = load_card(ROOT / "demo/tasks/report_generation/demo-cxr-report-task.yaml")
    return {
        "classification": Toy(_card("classification/braintumor-cls-task", _classification), raw_classification, {}),
        "detection": Toy(load_card(TASKS / "detection/bccd-det-task.yaml"), raw_detection, {}),
        "segmentation": Toy(_card("segmentation/tsg-multiorgan-seg-task", _segmentation), raw_segmentation, {}),
        "denoising": Toy(_card("enhancement/deeplesion-denoising-task", _denoising), raw_denoising, {}),
        "super_resolution": Toy(_card("enhancement/nih-cxr-sr-task", _super_resolution), raw_super_resolution, {}),
        "synthesis": Toy(_card("synthesis/totalsegmentator-ctsr-task", _synthesis), raw_synthesis, {}),
        "vqa": Toy(load_card(TASKS / "vqa/vqa-rad-task.yaml"), raw_vqa, {}),
        "reports": Toy(reports, raw_reports, wordnet),
    }
