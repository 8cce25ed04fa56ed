"""OmniMedVQA as on the Hugging Face hub: one archive with images and a JSON list per data set.

Defects: fewer than four options (absent or empty), right answers that equal none or two of the options, one entry with
the key modality instead of modality_type, ids that repeat between data sets, folders named after classes, spaces in
names, and a restricted part whose images are not there.
"""

from __future__ import annotations

from typing import Any

from automedbench_rehearsal.making.files import json_list, zipped
from automedbench_rehearsal.making.pictures import picture, scene
from automedbench_rehearsal.making.questions import TELLTALE, jpeg
from automedbench_rehearsal.upstreams import Upstream

OPEN = {
    "ACRIMA": [
        ("What is in the image?", "glaucoma", ["Glaucoma", "Cataract", "Healthy", "Drusen"], "Fundus Photography"),
        ("Which modality is it?", "Fundus Photography.", ["OCT", "Fundus photography. ", "CT"], "Fundus Photography"),
        ("Is it normal?", "No", ["Yes", "No"], "Fundus Photography"),
    ],
    "Chest CT Scan": [
        ("What kind of tumour is it?", "Adenocarcinoma", ["Adenocarcinoma", "Normal", "Squamous", "Large cell"], "CT"),
        ("Which organ is it?", "Lung", ["Lung", "lung", "Heart", "Liver"], "CT"),
        ("Which plane is it?", "oblique", ["Axial", "Coronal", "Sagittal", "Other"], "CT"),
    ],
    "ISIC2018": [
        ("Which lesion is it?", "Melanoma", ["Nevus", "Melanoma", "Keratosis", "Dermatofibroma"], "Dermoscopy"),
        ("Which modality is it?", "Dermoscopy", ["MRI", "X-ray", "Ultrasound", "Dermoscopy"], "Dermoscopy"),
    ],
}


def upstream() -> Upstream:
    """The archive with three open data sets and a restricted one."""
    files: dict[str, bytes] = {}
    for name, facts in OPEN.items():
        rows = [_row(name, number, *fact) for number, fact in enumerate(facts)]
        if name == "Chest CT Scan":
            rows[0]["modality"] = rows[0].pop("modality_type")
        files[f"QA_information/Open-access/{name}.json"] = json_list(rows)
        for row in rows:
            png = row["image_path"].endswith("png")
            words = ("omnimedvqa", row["image_path"])
            files[row["image_path"]] = picture(scene((28, 36), *words)) if png else jpeg(*words)
    rest = [_row("AIDA", 0, "Is it normal?", "Yes", ["Yes", "No"], "Endoscopy")]
    files["QA_information/Restricted-access/AIDA.json"] = json_list(rest)
    archive = zipped({f"OmniMedVQA/{name}": data for name, data in files.items()})
    return Upstream(hubs={"foreverbeliever/OmniMedVQA": {"OmniMedVQA.zip": archive, "README.md": b"made up\n"}})


def _row(name: str, number: int, question: str, answer: str, options: list[str], modality: str) -> dict[str, Any]:
    suffix = "png" if number % 2 else "jpg"
    row: dict[str, Any] = {
        "dataset": name,
        "question_id": f"set_{number:04d}",
        "question_type": "Modality Recognition" if "modality" in question else "Disease Diagnosis",
        "question": question,
        "gt_answer": answer,
        "image_path": f"Images/{name}/{TELLTALE} {answer.strip('.')}/image{number}.{suffix}",
        "modality_type": modality,
    }
    row |= {f"option_{letter}": text for letter, text in zip("ABCD", options, strict=False)}
    if len(options) == 3:
        row["option_D"] = None
    return row
