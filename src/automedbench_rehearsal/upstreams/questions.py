"""Questions: fixtures of visual question answering, tables of questions beside pictures or with them."""

from __future__ import annotations

from typing import Any

from automedbench_rehearsal.making.files import json_lines, json_list, table, zipped
from automedbench_rehearsal.making.pictures import TELLTALE, cell, hub_table, picture, scene, telltale_jpeg
from automedbench_rehearsal.upstreams import Upstream

# image, question, answer
_FILES: list[list[tuple[str, str, str | None]]] = [
    [
        ("a", "Are there any abnormalities in the image?", "polyp"),
        ("a", "How many polyps are in the image?", "1"),
        ("a", "What color is the abnormality?", "pink; red"),
        ("b", "Is there text?", "no"),
        ("b", "Are there any instruments in the image?", "none"),
    ],
    [
        ("c", "Where in the image is the instrument?", "center; lower-right"),
        ("d", "Have all polyps been removed?", "not relevant"),
        ("e", "Is this finding easy to detect?", "yes"),
        ("f", "What type of procedure is the image taken from?", None),
    ],
]


def kvasir_vqa() -> Upstream:
    """Kvasir-VQA as on the Hugging Face hub: many rows per image, in one split.

    Two files of the one split.

    Defects: a column (source) that names the finding, answers with several values and "none", an answer that is absent,
    images with EXIF.
    """
    tables = [hub_table([_kvasir_row(*facts) for facts in rows], ["image"]) for rows in _FILES]
    files = {f"data/{number:05d}.parquet": table for number, table in enumerate(tables)}
    return Upstream(hubs={"SimulaMet-HOST/Kvasir-VQA": files | {"README.md": b"made up\n"}})


def _kvasir_row(image: str, question: str, answer: str | None) -> dict[str, Any]:
    return {
        "image": cell("kvasir", image, name=f"{image}.jpg"),
        "source": f"polyps {TELLTALE}",
        "question": question,
        "answer": answer,
        "img_id": f"clb0{image}",
    }


_FRAMES = [f"image_{number}" for number in range(1, 6)]
# frames, number of options, right letter, video
_MEDFRAMEQA_ROWS = [
    (2, 5, "C", "v1"),
    (5, 5, "A", "v2"),
    (3, 6, "F", "v3"),
    (0, 5, "B", "v4"),
    (4, 5, "E", "v5"),
    (2, 5, "D", "v1"),
    (3, 4, "B", "v6"),
]


def medframeqa() -> Upstream:
    """MedFrameQA as on the Hugging Face hub: several frames per question.

    One test file of seven rows.

    Defects: a row with six options, one without any frame, frames that are empty or hold an empty record, two questions
    about one video, and a column (reasoning_chain) that gives the answer away.
    """
    rows = [_medframeqa_row(number, *facts) for number, facts in enumerate(_MEDFRAMEQA_ROWS, 1)]
    table = hub_table(rows, _FRAMES, ["options"])
    return Upstream(hubs={"SuhaoYu1020/MedFrameQA": {"data/test-00000-of-00001.parquet": table, "README.md": b"x\n"}})


def _medframeqa_row(number: int, frames: int, options: int, label: str, video: str) -> dict[str, Any]:
    shown = {name: cell("medframeqa", video, number, name, name="f.jpg") for name in _FRAMES[:frames]}
    empty: dict[str, Any] = dict.fromkeys(_FRAMES[frames:])
    if frames == 2:
        empty["image_5"] = {"bytes": None, "path": None}
    return {
        "question_id": f"q{number:04d}",
        "question": f"Which change do the frames of case {number} show?",
        "options": [f"finding {letter} of {number}" for letter in "ABCDEF"[:options]],
        "correct_answer": label,
        **shown,
        **empty,
        "system": "respiratory system",
        "organ": "lung" if number % 2 else "pleura",
        "modality": "CT" if number % 3 else "MRI",
        "video_id": video,
        "reasoning_chain": f"{TELLTALE}: the answer is {label}",
    }


# images, right letter
_MEDXPERTQA_TEST = [(1, "A"), (1, "E"), (6, "C"), (2, "B"), (1, "D")]
_DEV = [(1, "C"), (2, "A")]
_SUFFIXES = ("jpeg", "png", "jpg")


def medxpertqa() -> Upstream:
    """MedXpertQA as on the Hugging Face hub: JSON Lines and one archive of images.

    Five test and two dev questions of the MM subset; of the text subset a file that nothing needs.

    Defects: the question's text ends with the options, image names have several suffixes, and the archive also holds
    what no question names.
    """
    test = [_medxpertqa_row("MM", number, *facts) for number, facts in enumerate(_MEDXPERTQA_TEST)]
    dev = [_medxpertqa_row("MM-dev", number, *facts) for number, facts in enumerate(_DEV)]
    images = {f"images/{name}": _image(name) for row in [*test, *dev] for name in row["images"]}
    images["images/MM-1999-a.jpeg"] = telltale_jpeg("medxpertqa", "of no question")
    files = {
        "MM/test.jsonl": json_lines(test),
        "MM/dev.jsonl": json_lines(dev),
        "Text/test.jsonl": json_lines([{"id": "Text-0"}]),
        "images.zip": zipped(images),
    }
    return Upstream(hubs={"TsinghuaC3I/MedXpertQA": files})


def _medxpertqa_row(prefix: str, number: int, images: int, label: str) -> dict[str, Any]:
    options = {letter: f"diagnosis {letter} of {prefix} {number}" for letter in "ABCDE"}
    choices = " ".join(f"({letter}) {text}" for letter, text in options.items())
    suffix = _SUFFIXES[number % len(_SUFFIXES)]
    return {
        "id": f"{prefix}-{number}",
        "question": f"A patient has sign {number}. What is the diagnosis?\nAnswer Choices: {choices}",
        "options": options,
        "label": label,
        "images": [f"{prefix}-{number}-{letter}.{suffix}" for letter in "abcdef"[:images]],
        "medical_task": ("Diagnosis", "Treatment", "Basic Science")[number % 3],
        "body_system": ("Cardiovascular", "Nervous")[number % 2],
        "question_type": ("Reasoning", "Understanding")[number % 2],
    }


def _image(name: str) -> bytes:
    return picture(scene((28, 36), "medxpertqa", name)) if name.endswith("png") else telltale_jpeg("medxpertqa", name)


_SUBJECTS = (
    *("Basic_Medical_Science", "Clinical_Medicine", "Diagnostics_and_Laboratory_Medicine"),
    *("Pharmacy", "Public_Health"),
)
_IMAGES = [f"image_{number}" for number in range(1, 8)]
# question, options, answer, columns with an image; the same in every subject
_MMMU_ROWS: list[tuple[str, list[str], str, tuple[int, ...]]] = [
    (
        "Which cell is shown in <image 1>?",
        ["Macrophage", "Don't know: it's a 'blast'", "Neutrophil", "T cell"],
        "B",
        (1,),
    ),
    ("Which of these is the drug?", ["<image 1>", "<image 2>", "<image 3>"], "C", (1, 2, 3)),
    ("How many cases are in <image 1>?", [], "42", (1,)),
    ("Compare <image 3> with <image 1>: is it larger?", ["Yes", "No"], "A", (1, 3)),
]


def mmmu() -> Upstream:
    """MMMU as on the Hugging Face hub: a folder per subject, of which five belong to Health & Medicine.

    Four validation rows and one dev row per subject; one of the four is an open question.

    Defects: options are a list written as a text, some are images, their number differs; an open question; an image
    column that is skipped; an explanation that gives the answer away; a subject of another discipline.
    """
    files: dict[str, bytes] = {"README.md": b"made up\n"}
    for subject in (*_SUBJECTS, "Accounting"):
        validation = [_mmmu_row("validation", subject, number, *facts) for number, facts in enumerate(_MMMU_ROWS, 1)]
        files[f"{subject}/validation-00000-of-00001.parquet"] = hub_table(validation, _IMAGES)
        files[f"{subject}/dev-00000-of-00001.parquet"] = hub_table(
            [_mmmu_row("dev", subject, 1, *_MMMU_ROWS[0])], _IMAGES
        )
    return Upstream(hubs={"MMMU/MMMU": files})


def _mmmu_row(
    split: str, subject: str, number: int, question: str, options: list[str], answer: str, images: tuple[int, ...]
) -> dict[str, Any]:
    name = f"{split}_{subject}_{number}"
    pictures = {f"image_{place}": cell("mmmu", name, place, name=f"{name}_{place}.png") for place in images}
    return {
        "id": name,
        "question": question,
        "options": repr(options),
        "explanation": f"{TELLTALE}: {answer}",
        **dict.fromkeys(_IMAGES),
        **pictures,
        "img_type": "['Microscopic Images']",
        "answer": answer,
        "topic_difficulty": "Medium",
        "question_type": "multiple-choice" if options else "open",
        "subfield": f"Field {number}",
    }


_OPEN = {
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


def omnimedvqa() -> Upstream:
    """OmniMedVQA as on the Hugging Face hub: one archive with images and a JSON list per data set.

    The archive with three open data sets and a restricted one.

    Defects: fewer than four options (absent or empty), right answers that equal none or two of the options, one entry
    with the key modality instead of modality_type, ids that repeat between data sets, folders named after classes,
    spaces in names, and a restricted part whose images are not there.
    """
    files: dict[str, bytes] = {}
    for name, facts in _OPEN.items():
        rows = [_omnimedvqa_row(name, number, *fact) for number, fact in enumerate(facts)]
        if name == "Chest CT Scan":
            rows[0]["modality"] = rows[0].pop("modality_type")
        files[f"QA_information/Open-access/{name}.json"] = json_list(rows)
        for row in rows:
            png = row["image_path"].endswith("png")
            words = ("omnimedvqa", row["image_path"])
            files[row["image_path"]] = picture(scene((28, 36), *words)) if png else telltale_jpeg(*words)
    rest = [_omnimedvqa_row("AIDA", 0, "Is it normal?", "Yes", ["Yes", "No"], "Endoscopy")]
    files["QA_information/Restricted-access/AIDA.json"] = json_list(rest)
    archive = zipped({f"OmniMedVQA/{name}": data for name, data in files.items()})
    return Upstream(hubs={"foreverbeliever/OmniMedVQA": {"OmniMedVQA.zip": archive, "README.md": b"made up\n"}})


def _omnimedvqa_row(
    name: str, number: int, question: str, answer: str, options: list[str], modality: str
) -> dict[str, Any]:
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


_PATHVQA_TEST = [
    [
        ("liver", "where is the pigment located?", "in the portal tract"),
        ("liver", "is fibrosis present?", "yes"),
        ("skin", "what is covered by keratin?", " Squamous Epithelium "),
    ],
    [("kidney", "does this image show a glomerulus?", "Yes"), ("kidney", "are crescents present?", "no")],
    [("ink", "what does this image show?", "metastatic carcinoma"), ("lung", "how many granulomas are seen?", "two")],
]
_VALIDATION = [
    ("spleen", "is the white pulp expanded?", "yes"),
    ("colon", "what is in the crypts?", "neutrophils"),
    ("bone", "is there necrosis?", "no"),
]


def pathvqa() -> Upstream:
    """PathVQA as on the Hugging Face hub: Parquet with pictures in it and no ids.

    Three test files, the first of three validation files, and a training file that nothing needs.

    Defects: pictures repeat from row to row, one is CMYK, answers vary in case and white space.
    """
    files = {f"data/test-{number:05d}-of-00003.parquet": _table(rows) for number, rows in enumerate(_PATHVQA_TEST)}
    files["data/validation-00000-of-00003.parquet"] = _table(_VALIDATION)
    files["data/train-00000-of-00007.parquet"] = _table(_VALIDATION[:1])
    files["README.md"] = b"made up\n"
    return Upstream(hubs={"flaviagiammarino/path-vqa": files})


def _table(rows: list[tuple[str, str, str]]) -> bytes:
    cells = [
        {
            "image": cell("pathvqa", picture, mode="CMYK" if picture == "ink" else "RGB"),
            "question": question,
            "answer": answer,
        }
        for picture, question, answer in rows
    ]
    return hub_table(cells, ["image"])


_CHOICES = ("Diffuse uptake", 'A "halo" sign', "No uptake,\nnone at all", "Cannot be determined")
# figure, answer
_CLEAN = [
    ("PMC1_F1.jpg", _CHOICES[1]),
    ("PMC1_F2.jpg", " A:Diffuse uptake "),
    ("PMC2_F1.jpg", "C"),
    ("PMC3_F1.jpg", "cannot be determined"),
    ("PMC4_F1.jpg", "Something else"),
    ("PMC4_F1.jpg", _CHOICES[0]),
]
_PMC_VQA_TRAIN = [("PMC5_F1.jpg", "B"), ("PMC5_F2.jpg", "D")]


def pmc_vqa() -> Upstream:
    """PMC-VQA as on the Hugging Face hub: CSV tables and an archive of figures.

    The cleaned test table, the training table with letters in a column of their own, and the figures.

    Defects: choices begin with their letter, the right one is told by text or by letter, cells hold quotes and line
    breaks, one right answer is none of the choices, and captions give answers away.
    """
    clean = [_pmc_vqa_row(number, *facts) | {"split": "test"} for number, facts in enumerate(_CLEAN)]
    train = [
        _pmc_vqa_row(number, figure, _CHOICES["ABCD".index(letter)]) | {"Answer_label": letter}
        for number, (figure, letter) in enumerate(_PMC_VQA_TRAIN)
    ]
    figures = {figure for figure, _ in [*_CLEAN, *_PMC_VQA_TRAIN]}
    files = {
        "test_clean.csv": table(clean),
        "train.csv": table(train),
        "test.csv": table(clean[:1]),
        "images.zip": zipped({f"images/{name}": telltale_jpeg("pmc_vqa", name) for name in sorted(figures)}),
    }
    return Upstream(hubs={"RadGenome/PMC-VQA": files})


def _pmc_vqa_row(number: int, figure: str, answer: str) -> dict[str, str]:
    row = {
        "index": str(number),
        "Figure_path": figure,
        "Caption": f'{TELLTALE}, "figure {number}": {answer}',
        "Question": f"What does figure {number}, shown here, tell?",
    }
    row |= {f"Choice {letter}": f" {letter}:{text} " for letter, text in zip("ABCD", _CHOICES, strict=True)}
    return row | {"Answer": answer}


# image, question, answer, language, type
_SLAKE_TEST = [
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
_SLAKE_TRAIN = [(5, "Is there a fracture?", "No", "en", "CLOSED"), (5, "这是什么？", "骨", "zh", "OPEN")]
_DAMAGED, _ABSENT = 4, 9


def slake() -> Upstream:
    """SLAKE as on the Hugging Face hub: JSON lists and an archive of image folders.

    Test, training and validation questions and the images.

    Defects: half of the rows are Chinese, all images are called source.jpg and lie beside files that tell answers, one
    image is absent, one is damaged, and an answer typed CLOSED is neither yes nor no.
    """
    archive: dict[str, bytes] = {}
    for number in (1, 2, 3, _DAMAGED, 5):
        image = telltale_jpeg("slake", number, mode="L" if number == 3 else "RGB")
        folder = f"imgs/xmlab{number}"
        archive[f"{folder}/source.jpg"] = image[:200] if number == _DAMAGED else image
        archive[f"{folder}/mask.png"] = picture(scene((28, 36), "slake mask", number))
        archive[f"{folder}/question.json"] = archive[f"{folder}/detection.json"] = f'["{TELLTALE}"]'.encode()
    files = {
        "test.json": json_list([_slake_row(1000 + place, *facts) for place, facts in enumerate(_SLAKE_TEST)]),
        "train.json": json_list([_slake_row(place, *facts) for place, facts in enumerate(_SLAKE_TRAIN)]),
        "validation.json": json_list([_slake_row(500, *_SLAKE_TRAIN[0])]),
        "imgs.zip": zipped(archive),
        "KG.zip": zipped({"KG/en_disease.csv": b"made up\n"}),
    }
    return Upstream(hubs={"BoKelvin/SLAKE": files})


def _slake_row(qid: int, image: int, question: str, answer: str, language: str, kind: str) -> dict[str, Any]:
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


_VQA_RAD_ROWS = [
    (1, "synpic100.jpg", "CHEST", "Is there a pleural effusion?", "Yes", "CLOSED", "PRES"),
    (2, "synpic100.jpg", "CHEST", "Where is the opacity?", "right lower lobe ", "OPEN", "POS"),
    (3, "synpic200.jpg", "HEAD", "Is this an MRI?", "no", "CLOSED", "MODALITY"),
    (4, "synpic200.jpg", "HEAD", "How many lesions are there?", 2, "OPEN", "COUNT"),
    (5, "synpic300.jpg", "ABD", "Which organ is enlarged?", "the liver", "OPEN", "ORGAN"),
    (6, "synpic300.jpg", "ABD", "Is the lesion on the left or right?", "left", "CLOSED", "POS"),
]


def vqa_rad() -> Upstream:
    """VQA-RAD as in the public copy of its common split files.

    The repository with test and training questions and their images.

    Defects: JPEG files are partly progressive, answers are partly numbers instead of texts, a question asks about an
    image of the training file.
    """
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
        for qid, image, organ, question, answer, answer_type, question_type in _VQA_RAD_ROWS
    ]
    files = {
        "data_RAD/testset.json": json_list(rows),
        "data_RAD/trainset.json": json_list([rows[0] | {"qid": 100, "question": "Which plane is this?"}]),
        "README.md": b"made up\n",
    }
    for number in (100, 200, 300):
        files[f"data_RAD/images/synpic{number}.jpg"] = telltale_jpeg(
            "vqa_rad", number, mode="L", progressive=number == 200
        )
    return Upstream(repositories={"https://github.com/longle0702/med-v2qa": files})


UPSTREAMS = {
    maker.__name__: maker
    for maker in (kvasir_vqa, medframeqa, medxpertqa, mmmu, omnimedvqa, pathvqa, pmc_vqa, slake, vqa_rad)
}
"""Data set → what makes its fixture."""
