"""SLAKE as on the Hugging Face hub: JSON lists and an archive of image folders.

Defects: half of the rows are Chinese, all images are called source.jpg and lie beside files that tell answers, one
image is absent, one is damaged, and an answer typed CLOSED is neither yes nor no.
"""

from __future__ import annotations

from typing import Any

from automedbench_rehearsal.making.files import json_list, zipped
from automedbench_rehearsal.making.pictures import picture, scene
from automedbench_rehearsal.making.questions import TELLTALE, jpeg
from automedbench_rehearsal.upstreams import Upstream

# image, question, answer, language, type
TEST = [
    (1, "What modality is used to take this image?", "CT", "en", "OPEN"),
    (1, "Is the lung healthy?", "No", "en", "CLOSED"),
    (1, "图中是什么器官？", "肺", "zh", "OPEN"),
    (2, "Which is bigger, the left or the right lung?", "Right Lung", "en", "CLOSED"),
    (2, "How many kidneys are there?", "2", "en", "OPEN"),
    (2, "有异常吗？", "没有", "zh", "CLOSED"),
    (3, "What is the main organ in the image?", "Lung, Spinal Cord", "en", "OPEN"),
    (4, "Where is the liver?", "Upper left", "en", "OPEN"),
    (9, "Is this an X-ray?", "Yes", "en", "CLOSED"),
]
TRAIN = [(5, "Is there a fracture?", "No", "en", "CLOSED"), (5, "这是什么？", "骨", "zh", "OPEN")]
DAMAGED, ABSENT = 4, 9


def upstream() -> Upstream:
    """Test, training and validation questions and the images."""
    archive: dict[str, bytes] = {}
    for number in (1, 2, 3, DAMAGED, 5):
        image = jpeg("slake", number, mode="L" if number == 3 else "RGB")
        folder = f"imgs/xmlab{number}"
        archive[f"{folder}/source.jpg"] = image[:200] if number == DAMAGED else image
        archive[f"{folder}/mask.png"] = picture(scene((28, 36), "slake mask", number))
        archive[f"{folder}/question.json"] = archive[f"{folder}/detection.json"] = f'["{TELLTALE}"]'.encode()
    files = {
        "test.json": json_list([_row(1000 + place, *facts) for place, facts in enumerate(TEST)]),
        "train.json": json_list([_row(place, *facts) for place, facts in enumerate(TRAIN)]),
        "validation.json": json_list([_row(500, *TRAIN[0])]),
        "imgs.zip": zipped(archive),
        "KG.zip": zipped({"KG/en_disease.csv": b"made up\n"}),
    }
    return Upstream(hubs={"BoKelvin/SLAKE": files})


def _row(qid: int, image: int, question: str, answer: str, language: str, kind: str) -> dict[str, Any]:
    return {
        "img_id": image,
        "img_name": f"xmlab{image}/source.jpg",
        "question": question,
        "answer": answer,
        "q_lang": language,
        "location": "Lung" if image < 3 else "Abdomen",
        "modality": "CT" if image != 2 else "X-Ray",
        "answer_type": kind,
        "base_type": "vqa",
        "triple": ["vhead", "_", "_"],
        "qid": qid,
        "content_type": "Organ",
    }
