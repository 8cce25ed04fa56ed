"""DENTEX: an archive with four folders of images, of which one is fully labelled, in a relative of COCO's form.

Defects: the same file names in every folder, boxes of floats that reach beyond the image, a box without area, ids as
text and as numbers, two sizes of images, an image without disease, Mac's shadow files.
"""

from __future__ import annotations

import json
from typing import Any

from automedbench_rehearsal.making.files import zipped
from automedbench_rehearsal.making.pictures import picture, scene
from automedbench_rehearsal.upstreams import Upstream

_TEETH = [{"id": number, "name": str(number + 1), "supercategory": str(number + 1)} for number in range(8)]
_DISEASES = ("Impacted", "Caries", "Periapical Lesion", "Deep Caries")
SIZES = {0: (96, 48), 1: (96, 48), 2: (80, 40), 3: (96, 48), 4: (80, 40), 5: (96, 48)}  # width, height
# Image, disease as upstream writes it, x, y, width, height.
BOXES: list[tuple[int, int | str, float, float, float, float]] = [
    (0, 0, 10.5, 8.25, 12.0, 16.5),
    (0, 1, 40, 10, 9, 14),
    (1, "1", 20, 12, 10, 12),
    (1, 2, 20, 12, 10, 12),
    (2, 3, 70, 30, 20, 18),  # reaches 10 beyond the right edge and 8 beyond the bottom
    (3, 1, -3.5, 5, 10, 10),  # begins 3.5 left of the image
    (3, 3, 50, 5, 8.5, 0),  # no area
    (5, 0, 60, 20, 12, 12),
]


def upstream() -> Upstream:
    """The archive of the training part, on the hub and at Zenodo."""
    files: dict[str, bytes] = {}
    for folder in ("quadrant", "quadrant_enumeration", "quadrant-enumeration-disease", "unlabelled"):
        for number, (width, height) in SIZES.items():
            pixels = scene((height, width), "dentex", folder, number)
            files[f"training_data/{folder}/xrays/train_{number}.png"] = picture(pixels)
    labels = {"quadrant": "train_quadrant", "quadrant_enumeration": "train_quadrant_enumeration"}
    for folder, name in labels.items():
        empty: dict[str, list[Any]] = {"images": [], "annotations": [], "categories": []}
        files[f"training_data/{folder}/{name}.json"] = json.dumps(empty).encode()
    place = "training_data/quadrant-enumeration-disease"
    files[f"{place}/train_quadrant_enumeration_disease.json"] = json.dumps(_annotations()).encode()
    files[f"__MACOSX/{place}/xrays/._train_0.png"] = b"\x00\x05\x16\x07"
    archive = zipped(files)
    hub = {"DENTEX/training_data.zip": archive, "DENTEX/validation_triple.json": b"{}", "README.md": b"# DENTEX\n"}
    url = "https://zenodo.org/records/7812323/files/training_data.zip"
    return Upstream(hubs={"ibrahimhamamci/DENTEX": hub}, files={url: archive})


def _annotations() -> dict[str, Any]:
    images = [
        {"height": height, "width": width, "id": number + 1, "file_name": f"train_{number}.png"}
        for number, (width, height) in SIZES.items()
    ]
    annotations = [
        {
            "iscrowd": 0,
            "image_id": image + 1,
            "bbox": [x, y, width, height],
            "segmentation": [[x, y, x + width, y, x + width, y + height, x, y + height]],
            "id": number,
            "area": width * height,
            "category_id_1": number % 4,
            "category_id_2": number % 8,
            "category_id_3": disease,
        }
        for number, (image, disease, x, y, width, height) in enumerate(BOXES, start=1)
    ]
    diseases = [{"id": number, "name": name, "supercategory": name} for number, name in enumerate(_DISEASES)]
    return {
        "images": images,
        "annotations": annotations,
        "categories_1": _TEETH[:4],
        "categories_2": _TEETH,
        "categories_3": diseases,
    }
