"""VQA-RAD as in the public copy of its common split files.

Defects: JPEG files are partly progressive, answers are partly numbers instead of texts, a question asks about an image
of the training file.
"""

from __future__ import annotations

from automedbench_rehearsal.making.files import json_list
from automedbench_rehearsal.making.questions import jpeg
from automedbench_rehearsal.upstreams import Upstream

ROWS = [
    (1, "synpic100.jpg", "CHEST", "Is there a pleural effusion?", "Yes", "CLOSED", "PRES"),
    (2, "synpic100.jpg", "CHEST", "Where is the opacity?", "right lower lobe ", "OPEN", "POS"),
    (3, "synpic200.jpg", "HEAD", "Is this an MRI?", "no", "CLOSED", "MODALITY"),
    (4, "synpic200.jpg", "HEAD", "How many lesions are there?", 2, "OPEN", "COUNT"),
    (5, "synpic300.jpg", "ABD", "Which organ is enlarged?", "the liver", "OPEN", "ORGAN"),
    (6, "synpic300.jpg", "ABD", "Is the lesion on the left or right?", "left", "CLOSED", "POS"),
]


def upstream() -> Upstream:
    """The repository with test and training questions and their images."""
    rows = [
        {
            "qid": qid,
            "image_name": image,
            "image_organ": organ,
            "answer": answer,
            "answer_type": answer_type,
            "question_type": question_type,
            "question": question,
            "phrase_type": "freeform",
        }
        for qid, image, organ, question, answer, answer_type, question_type in ROWS
    ]
    files = {
        "data_RAD/testset.json": json_list(rows),
        "data_RAD/trainset.json": json_list([rows[0] | {"qid": 100, "question": "Which plane is this?"}]),
        "README.md": b"made up\n",
    }
    for number in (100, 200, 300):
        files[f"data_RAD/images/synpic{number}.jpg"] = jpeg("vqa_rad", number, mode="L", progressive=number == 200)
    return Upstream(repositories={"https://github.com/longle0702/med-v2qa": files})
