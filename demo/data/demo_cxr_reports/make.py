"""Draws the invented chest across-rays of this folder and writes the table of their invented reports.

Nothing here comes from a patient. `python make.py` writes `invented_reports.csv` and `PNG/` beside itself; the same
NumPy and Pillow give the same files.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

SIZE = 224
down, across = np.mgrid[0:SIZE, 0:SIZE] / SIZE
# Centres of what is drawn, as fractions of the image. The patient's right is on the left of the picture.
LUNG_X = {"right": 0.31, "left": 0.69}
SPOT_X = {"right": 0.285, "left": 0.715}
PLACES = {"upper": 0.32, "mid": 0.46, "lower": 0.62}


@dataclass(frozen=True)
class Study:
    """What is drawn and what is said about it."""

    findings: str
    impression: str
    heart: float = 0.15
    """Half the width of the heart; the thorax is 0.68 wide."""
    height: float = 0.30
    """Half the height of the lungs."""
    opacities: tuple[tuple[str, str, float], ...] = ()
    """Side, height and radius."""
    effusions: tuple[str, ...] = ()
    pneumothorax: str = ""
    pacemaker: bool = False
    catheter: bool = False
    lateral: bool = field(default=False, kw_only=True)
    """A second, lateral view exists."""


STUDIES = [
    Study(
        "The lungs are clear. The heart size is normal. No pleural effusion or pneumothorax is seen.",
        "No acute cardiopulmonary abnormality.",
        lateral=True,
    ),
    Study(
        "Heart and mediastinum are within normal limits. The lungs are well expanded and clear. "
        "There is no pneumothorax and no pleural effusion.",
        "Normal chest radiograph.",
        heart=0.14,
    ),
    Study(
        "The heart is enlarged. The lungs are clear. There is no pleural effusion or pneumothorax.",
        "Cardiomegaly without edema.",
        heart=0.21,
    ),
    Study(
        "The cardiac silhouette is enlarged. A small left pleural effusion is present. "
        "No focal consolidation is seen. No pneumothorax.",
        "Cardiomegaly and small left effusion.",
        heart=0.215,
        effusions=("left",),
    ),
    Study(
        "There is a focal opacity in the right lower lung, which may represent pneumonia. The left lung is clear. "
        "Heart size is normal. No pleural effusion or pneumothorax.",
        "Right lower lung pneumonia.",
        opacities=(("right", "lower", 0.062),),
        lateral=True,
    ),
    Study(
        "A focal consolidation is present in the left upper lung. The right lung is clear. The heart is not enlarged. "
        "There is no pleural effusion or pneumothorax.",
        "Left upper lung pneumonia.",
        opacities=(("left", "upper", 0.066),),
    ),
    Study(
        "Small bilateral pleural effusions are seen. The heart is enlarged. No pneumothorax is identified.",
        "Cardiac failure with effusions.",
        heart=0.22,
        effusions=("right", "left"),
    ),
    Study(
        "A pacemaker projects over the left chest. The heart size is normal. The lungs are clear. "
        "No pleural effusion or pneumothorax is seen.",
        "Pacemaker in place, no acute abnormality.",
        pacemaker=True,
    ),
    Study(
        "There is a right apical pneumothorax. The left lung is clear. The heart size is normal. "
        "No pleural effusion is seen.",
        "Right pneumothorax.",
        pneumothorax="right",
    ),
    Study(
        "A right central venous catheter ends over the superior vena cava. The lungs are clear. "
        "The heart size is normal. No pneumothorax or pleural effusion.",
        "Catheter in good position.",
        catheter=True,
    ),
    Study(
        "The lung volumes are low with crowding of the vessels. No focal consolidation is seen. "
        "The heart size is normal. There is no pleural effusion or pneumothorax.",
        "Low lung volumes.",
        height=0.225,
    ),
    Study(
        "A small right pleural effusion is present with an opacity in the right mid lung. The left lung is clear. "
        "The heart size is normal. No pneumothorax is seen.",
        "Right effusion with consolidation.",
        opacities=(("right", "mid", 0.055),),
        effusions=("right",),
    ),
    Study(
        "A round nodule is seen in the left mid lung. The lungs are otherwise clear. The heart is normal in size. "
        "No pleural effusion or pneumothorax.",
        "Left lung nodule; follow-up is advised.",
        opacities=(("left", "mid", 0.028),),
        lateral=True,
    ),
    Study(
        "A pacemaker is seen over the left chest. The cardiac silhouette is enlarged. There is a small right pleural "
        "effusion. No pneumothorax.",
        "Cardiomegaly with small right effusion.",
        heart=0.205,
        effusions=("right",),
        pacemaker=True,
    ),
]


def ellipse(x: float, y: float, width: float, height: float) -> np.ndarray:
    """Pixels of an ellipse given by its centre and half axes."""
    return ((across - x) / width) ** 2 + ((down - y) / height) ** 2 <= 1


def frontal(study: Study, seed: int) -> Image.Image:
    """The frontal view: soft tissue, ribs, lungs, heart, and what the report says."""
    picture = np.full((SIZE, SIZE), 20.0)
    picture[ellipse(0.5, 0.62, 0.46, 0.66)] = 150
    middle = 0.46 + (0.30 - study.height) / 2
    bottom = middle + study.height
    lungs = {side: ellipse(x, middle, 0.155, study.height) for side, x in LUNG_X.items()}
    for side, lung in lungs.items():
        picture[lung] = 62
        for rib in range(6):
            curve = 0.22 + 0.085 * rib + 0.35 * (across - LUNG_X[side]) ** 2 / 0.1
            picture[lung & (np.abs(down - curve) < 0.008)] += 14
    for side, height, radius in study.opacities:
        picture[lungs[side] & ellipse(SPOT_X[side], PLACES[height], radius, radius)] = 150
    for side in study.effusions:
        slope = 0.35 * (across - LUNG_X[side]) * (1 if side == "left" else -1)
        picture[lungs[side] & (down > bottom - 0.10 - slope)] = 165
    if study.pneumothorax:
        side = study.pneumothorax
        inner = ellipse(LUNG_X[side], middle + 0.05, 0.135, study.height - 0.05)
        picture[lungs[side] & ~inner & (down < middle)] = 8
    picture[np.abs(across - 0.5) < 0.055] = np.maximum(picture[np.abs(across - 0.5) < 0.055], 175)
    picture[ellipse(0.53, bottom - 0.13, study.heart, 0.13)] = 180
    picture[down > bottom + 0.02] = np.where(picture[down > bottom + 0.02] > 30, 170, picture[down > bottom + 0.02])
    if study.pacemaker:
        picture[ellipse(0.80, 0.20, 0.05, 0.04)] = 255
        picture[(np.abs(down - 0.20 - 0.9 * (0.80 - across)) < 0.008) & (across < 0.80) & (across > 0.56)] = 255
    if study.catheter:
        picture[(np.abs(across - 0.465) < 0.007) & (down > 0.05) & (down < 0.36)] = 250
    return finish(picture, seed)


def lateral(study: Study, seed: int) -> Image.Image:
    """The lateral view: one lung outline with heart and spine, and the first opacity."""
    picture = np.full((SIZE, SIZE), 20.0)
    picture[ellipse(0.5, 0.62, 0.36, 0.66)] = 150
    picture[ellipse(0.5, 0.46, 0.27, 0.30)] = 75
    picture[ellipse(0.38, 0.62, 0.12, 0.11)] = 170
    picture[(np.abs(across - 0.72) < 0.04) & (down > 0.15)] = 185
    for _, height, radius in study.opacities[:1]:
        picture[ellipse(0.55, PLACES[height], radius, radius)] = 150
    return finish(picture, seed)


def finish(picture: np.ndarray, seed: int) -> Image.Image:
    """Blur and film grain, as an 8-bit grey image."""
    grain = np.random.default_rng(seed).normal(0, 5, picture.shape)
    clipped = np.clip(picture + grain, 0, 255).astype(np.uint8)
    return Image.fromarray(clipped).filter(ImageFilter.GaussianBlur(1.0))


def main(folder: Path) -> None:
    rows = []
    for number, study in enumerate(STUDIES, start=1):
        views = [("frontal", frontal), ("lateral", lateral)][: 2 if study.lateral else 1]
        for view, (name, draw) in enumerate(views, start=1):
            relative = f"valid/patient{90000 + number}/study1/view{view}_{name}.jpg"
            path = folder / "PNG" / Path(relative).with_suffix(".png")
            path.parent.mkdir(parents=True, exist_ok=True)
            draw(study, 10 * number + view).save(path, optimize=True)
            rows.append([relative, name.capitalize(), f"patient{90000 + number}", study.findings, study.impression])
    with (folder / "invented_reports.csv").open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(
            ["path_to_image", "frontal_lateral", "deid_patient_id", "section_findings", "section_impression"]
        )
        table.writerows(rows)


if __name__ == "__main__":
    main(Path(__file__).resolve().parent)
