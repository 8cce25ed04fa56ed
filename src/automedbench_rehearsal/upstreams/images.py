"""Images: fixtures of classification and detection, pictures with a label or with boxes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from automedbench.base.files import sha256_bytes
from automedbench_rehearsal.making.files import generator, gzipped, hdf5, physionet, table, zipped
from automedbench_rehearsal.making.pictures import coarse, deep, jpeg, picture, scene
from automedbench_rehearsal.making.scans import radiograph
from automedbench_rehearsal.upstreams import Upstream

_BRAIN_TUMOR_URL = (
    "https://www.kaggle.com/api/v1/datasets/download/masoudnickparvar/brain-tumor-mri-dataset?datasetVersionNumber=1"
)
_BRAIN_TUMOR_CLASSES = {"glioma": "gl", "meningioma": "me", "notumor": "no", "pituitary": "pi"}
_PER_CLASS = 3


def brain_tumor_mri() -> Upstream:
    """Brain Tumor MRI (Kaggle): class folders in one archive; grey, colour, alpha, metadata, duplicates.

    Three images of each class for testing, one for training; one is in both parts.
    """
    files = {}
    for label, short in _BRAIN_TUMOR_CLASSES.items():
        for number in range(10, 10 + _PER_CLASS):
            colours = 1 if label == "notumor" or number == 11 else 3
            size = (48 + 4 * number % 20, 48)
            # Upstream's sources are compressed in their own ways; texts name the class.
            quality = {"glioma": 75, "notumor": 95}.get(label, 88)
            extra: dict[str, Any] = {"about": f"{label} case {number}", "comment": label} if number == 10 else {}
            files[f"Testing/{label}/Te-{short}_{number:04d}.jpg"] = jpeg(
                size, "brain", label, number, colours=colours, quality=quality, **extra
            )
        if label == "pituitary":  # a PNG with an alpha channel under a JPEG's name
            rgb = scene((50, 48), "brain", label, 12, colours=3)
            alpha = np.full((50, 48, 1), 255, np.uint8)
            files[f"Testing/{label}/Te-{short}_0012.jpg"] = picture(np.concatenate([rgb, alpha], axis=2))
        files[f"Training/{label}/Tr-{short}_0010.jpg"] = files[f"Testing/{label}/Te-{short}_0010.jpg"]
    return Upstream(files={_BRAIN_TUMOR_URL: zipped(files)})


_CRC_URL = "https://zenodo.org/records/1214456/files/CRC-VAL-HE-7K.zip"
_CRC_CLASSES = ("ADI", "BACK", "DEB", "LYM", "MUC", "MUS", "NORM", "STR", "TUM")
_LETTERS = ("YLVCMEHK", "AAFNIRKP")


def crc_val_he_7k() -> Upstream:
    """CRC-VAL-HE-7K: class folders of TIFF tiles, 224×224, with leftovers of file managers.

    Two tiles of each class, one more of TUM; names begin with the class.
    """
    files = {}
    for label in _CRC_CLASSES:
        for letters in (*_LETTERS, *(["WQFHHSDV"] if label == "TUM" else [])):
            pixels = coarse(224, 8, "crc", label, letters)
            files[f"CRC-VAL-HE-7K/{label}/{label}-TCGA-{letters}.tif"] = picture(
                pixels, "TIFF", description=f"tissue {label}"
            )
        files[f"CRC-VAL-HE-7K/{label}/Thumbs.db"] = b"thumbnails"
        files[f"CRC-VAL-HE-7K/{label}/._{label}-TCGA-YLVCMEHK.tif"] = b"\0\5\26\7resource fork"
    return Upstream(files={_CRC_URL: zipped(files)})


_PLACE = "https://dataverse.harvard.edu/api/access/datafile"
# Image → lesion and diagnosis, in the order of the table. Lesions 118 and 2730 have two images.
_HAM10000_IMAGES = {
    27419: (118, "bkl"),
    25030: (118, "bkl"),
    26769: (2730, "nv"),
    25661: (2730, "nv"),
    31633: (1466, "mel"),
    27850: (1467, "mel"),
    29176: (2761, "akiec"),
    29068: (5132, "bcc"),
    25837: (3299, "df"),
    25209: (1396, "vasc"),
    25276: (4234, "nv"),
    29396: (4235, "nv"),
    25984: (4236, "nv"),
    25767: (4237, "bcc"),
}


def ham10000() -> Upstream:
    """HAM10000 at Harvard Dataverse: two archives without a folder inside and a table; several images of one lesion.

    Fourteen images of twelve lesions, every diagnosis present.
    """
    parts: tuple[dict[str, bytes], dict[str, bytes]] = ({}, {})
    rows = []
    for place, (image, (lesion, diagnosis)) in enumerate(_HAM10000_IMAGES.items()):
        name = f"ISIC_{image:07d}"
        # Sources compress in their own way.
        quality = 75 if diagnosis in ("bcc", "mel") else 92
        parts[place % 2][f"{name}.jpg"] = jpeg((45, 60), "ham", image, quality=quality, about=f"{name} {diagnosis}")
        rows.append(
            {
                "lesion_id": f"HAM_{lesion:07d}",
                "image_id": name,
                "dx": diagnosis,
                "dx_type": "histo",
                "age": "" if place == 3 else 80.0,
                "sex": "male",
                "localization": "lower extremity",
                "dataset": "vidir_modern",
            }
        )
    return Upstream(
        files={
            f"{_PLACE}/4338392?format=original": table(rows),
            f"{_PLACE}/3172585": zipped(parts[0]),
            f"{_PLACE}/3172584": zipped(parts[1]),
        }
    )


_KERMANY_URL = (
    "https://data.mendeley.com/public-files/datasets/rscbjbr9sj/files/"
    "f12eaf6d-6023-432f-acc9-80c9d7393433/file_downloaded"
)
# The first two of each class are one patient.
_NORMAL = ("IM-0001-0001", "IM-0001-0002", "IM-0115-0001", "NORMAL2-IM-0021-0001", "IM-0511-0001-0002")
_PNEUMONIA = ("person1_virus_6", "person1_virus_7", "person100_bacteria_475", "person11_virus_38", "person3_virus_15")


def kermany_chest_xray() -> Upstream:
    """Kermany's chest X-rays: names tell class and patient, colour is stored for pneumonia alone, macOS leftovers.

    Five images of four patients in each class of the test part, one of each for training.
    """
    files = {"chest_xray/.DS_Store": b"\0\0\0\1Bud1", "__MACOSX/chest_xray/._.DS_Store": b"\0\5\26\7"}
    for folder, names in (("NORMAL", _NORMAL), ("PNEUMONIA", _PNEUMONIA)):
        for number, name in enumerate(names):
            larger = 20 if folder == "NORMAL" else 0
            # Stored as colour: some with pneumonia, never a normal one.
            colours = 3 if folder == "PNEUMONIA" and number in (0, 3) else 1
            files[f"chest_xray/test/{folder}/{name}.jpeg"] = jpeg(
                (60 + 7 * number + larger, 80 + 5 * number + larger),
                "kermany",
                name,
                colours=colours,
                quality=90 if folder == "NORMAL" else 85,
                about=name,
            )
            files[f"__MACOSX/chest_xray/test/{folder}/._{name}.jpeg"] = b"\0\5\26\7resource fork"
        files[f"chest_xray/train/{folder}/train-{folder}-0001.jpeg"] = jpeg(
            (60, 60), "kermany train", folder, colours=1
        )
    return Upstream(files={_KERMANY_URL: zipped(files)})


_PCAM_URL = "https://zenodo.org/records/2546921/files/camelyonpatch_level_2_split_test"
# (slide, label): upstream's order; slide 2 has more patches of both classes than may be taken.
_PATCHES = [(1, 0), (2, 1), (2, 1), (2, 0), (2, 1), (3, 0), (2, 1), (4, 0), (5, 1), (2, 0), (2, 0), (6, 0)]


def patchcamelyon() -> Upstream:
    """PatchCamelyon: gzipped HDF5 arrays and a table with a column that has no name; many patches of one slide.

    Twelve patches of six slides.
    """
    images = np.stack([coarse(96, 4, "pcam", place, label) for place, (_, label) in enumerate(_PATCHES)])
    labels = np.array([label for _, label in _PATCHES], np.uint8).reshape(-1, 1, 1, 1)
    rows = [",coord_y,coord_x,tumor_patch,center_tumor_patch,wsi"]
    for place, (slide, label) in enumerate(_PATCHES):
        # Tumour in the patch, but not in its centre, is no tumour.
        anywhere = bool(label) or place == 3
        rows.append(
            f"{place},{1000 + 96 * place},{2000 + 96 * slide},{anywhere},{bool(label)},camelyon16_test_{slide:03d}"
        )
    return Upstream(
        files={
            f"{_PCAM_URL}_x.h5.gz": gzipped(hdf5({"x": images})),
            f"{_PCAM_URL}_y.h5.gz": gzipped(hdf5({"y": labels})),
            f"{_PCAM_URL}_meta.csv": ("\n".join(rows) + "\n").encode(),
        }
    )


_BCCD_WIDTH, _BCCD_HEIGHT = 64, 48
_DEGENERATE = (338, 343)
_SPLITS = {"test": (7, 11, 338, 343), "train": (0, 1), "val": (2,)}


def bccd() -> Upstream:
    """BCCD: a git repository in Pascal VOC's layout.

    The repository with the parts that are read, and a script that is not.

    Defects: two images with a box of no area, as upstream; coordinates from 1 on.
    """
    numbers = sorted(number for part in _SPLITS.values() for number in part)
    files: dict[str, bytes] = {"LICENSE": b"MIT License\n", "plot.py": b"print('not data')\n"}
    for number in numbers:
        pixels = 255 - scene((_BCCD_HEIGHT, _BCCD_WIDTH), "bccd", number, colours=3) // 2
        files[f"BCCD/JPEGImages/BloodImage_{number:05d}.jpg"] = picture(pixels, "JPEG", quality=90)
        files[f"BCCD/Annotations/BloodImage_{number:05d}.xml"] = _annotation(number)
    parts = {**_SPLITS, "trainval": _SPLITS["train"] + _SPLITS["val"]}
    for name, chosen in parts.items():
        lines = "".join(f"BloodImage_{number:05d}\n" for number in chosen)
        files[f"BCCD/ImageSets/Main/{name}.txt"] = lines.encode()
    return Upstream(repositories={"https://github.com/Shenggan/BCCD_Dataset": files})


def _annotation(number: int) -> bytes:
    chance = generator("bccd", number)
    boxes = [(name, *_corners(chance)) for name in ("WBC", "RBC", "RBC", "Platelets")]
    if number in _DEGENERATE:
        boxes.append(("RBC", 30, 20, 30, 20))
    objects = "".join(
        f"<object><name>{name}</name><pose>Unspecified</pose><truncated>0</truncated><difficult>0</difficult><bndbox>"
        f"<xmin>{x1}</xmin><ymin>{y1}</ymin><xmax>{x2}</xmax><ymax>{y2}</ymax></bndbox></object>"
        for name, x1, y1, x2, y2 in boxes
    )
    size = f"<size><width>{_BCCD_WIDTH}</width><height>{_BCCD_HEIGHT}</height><depth>3</depth></size>"
    return (
        f'<annotation verified="no"><folder>JPEGImages</folder><filename>BloodImage_{number:05d}.jpg</filename>'
        f"{size}<segmented>0</segmented>{objects}</annotation>\n"
    ).encode()


def _corners(chance: np.random.Generator) -> tuple[int, int, int, int]:
    left, top = int(chance.integers(1, 40)), int(chance.integers(1, 28))
    return left, top, left + int(chance.integers(6, 20)), top + int(chance.integers(6, 18))


_TEETH = [{"id": number, "name": str(number + 1), "supercategory": str(number + 1)} for number in range(8)]
_DISEASES = ("Impacted", "Caries", "Periapical Lesion", "Deep Caries")
DENTEX_SIZES = {0: (96, 48), 1: (96, 48), 2: (80, 40), 3: (96, 48), 4: (80, 40), 5: (96, 48)}  # width, height
# Image, disease as upstream writes it, x, y, width, height.
_BOXES: list[tuple[int, int | str, float, float, float, float]] = [
    (0, 0, 10.5, 8.25, 12.0, 16.5),
    (0, 1, 40, 10, 9, 14),
    (1, "1", 20, 12, 10, 12),
    (1, 2, 20, 12, 10, 12),
    (2, 3, 70, 30, 20, 18),  # reaches 10 beyond the right edge and 8 beyond the bottom
    (3, 1, -3.5, 5, 10, 10),  # begins 3.5 left of the image
    (3, 3, 50, 5, 8.5, 0),  # no area
    (5, 0, 60, 20, 12, 12),
]


def dentex() -> Upstream:
    """DENTEX: an archive with four folders of images, of which one is fully labelled, in a relative of COCO's form.

    The archive of the training part, on the hub and at Zenodo.

    Defects: the same file names in every folder, boxes of floats that reach beyond the image, a box without area, ids
    as text and as numbers, two sizes of images, an image without disease, Mac's shadow files.
    """
    files: dict[str, bytes] = {}
    for folder in ("quadrant", "quadrant_enumeration", "quadrant-enumeration-disease", "unlabelled"):
        for number, (width, height) in DENTEX_SIZES.items():
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
        for number, (width, height) in DENTEX_SIZES.items()
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
        for number, (image, disease, x, y, width, height) in enumerate(_BOXES, start=1)
    ]
    diseases = [{"id": number, "name": name, "supercategory": name} for number, name in enumerate(_DISEASES)]
    return {
        "images": images,
        "annotations": annotations,
        "categories_1": _TEETH[:4],
        "categories_2": _TEETH,
        "categories_3": diseases,
    }


_FIGSHARE = "https://ndownloader.figshare.com/files"
_ANNOTATIONS, _PARTS = "34268819", ("34268828", "34268849", "34268864", "34268891")
_GRAZPEDWRI_HEIGHT, _GRAZPEDWRI_WIDTH = 60, 40
GRAZPEDWRI_CLASSES = (
    *("boneanomaly", "bonelesion", "foreignbody", "fracture", "metal"),
    *("periostealreaction", "pronatorsign", "softtissue", "text"),
)
# Stem → its boxes: class, and centre and size relative to the image; None: there is no text file.
GRAZPEDWRI_IMAGES: dict[str, list[tuple[int, float, float, float, float]] | None] = {
    "0001_1297860395_01_WRI-L1_M014": [(8, 0.1, 0.1, 0.15, 0.1), (3, 0.5, 0.6, 0.3, 0.2)],
    "0001_1297860435_01_WRI-L2_M014": [(8, 0.9, 0.1, 0.3, 0.1), (0, 0.5, 0.5, 0.25, 0.2)],
    "0002_0354485735_01_WRI-R1_F012": [(8, 0.1, 0.1, 0.15, 0.1), (1, 0.4, 0.4, 0.2, 0.1)],
    "0003_0662359226_01_WRI-R1_F011": [(3, 0.5, 0.5, 0.3, 0.1), (5, 0.6, 0.6, 0.2, 0.2)],
    "0003_0662359351_01_WRI-R2_F011": [(6, 0.4, 0.7, 0.2, 0.3)],
    "0004_0740042985_01_WRI-L1_F008": [(2, 0.3, 0.3, 0.1, 0.1), (7, 0.5, 0.5, 0.5, 0.5)],
    "0005_0493500433_01_WRI-R1_M009": [(4, 0.5, 0.2, 0.2, 0.1), (6, 0.4, 0.7, 0.2, 0.3)],
    "0006_0536310330_01_WRI-L1_M010": None,
    "6091_0987654321_02_WRI-L2_M016": [],
}


def grazpedwri_dx() -> Upstream:
    """GRAZPEDWRI-DX: four archives of 16-bit images and one of annotations, at figshare, where URLs have no names.

    The five archives.

    Defects: an image without a text file, boxes that reach beyond the image, several images of a patient, classes that
    occur once.
    """
    labels: dict[str, bytes] = {
        "folder_structure/yolov5/meta.yaml": f"nc: 9\nnames: {list(GRAZPEDWRI_CLASSES)}\n".encode()
    }
    parts: list[dict[str, bytes]] = [{}, {}, {}, {}]
    for place, (stem, boxes) in enumerate(GRAZPEDWRI_IMAGES.items()):
        parts[place % 4][f"{stem}.png"] = picture(deep((_GRAZPEDWRI_HEIGHT, _GRAZPEDWRI_WIDTH), 16, "graz", stem))
        if boxes is not None:
            lines = "".join(" ".join(map(str, box)) + "\n" for box in boxes)
            labels[f"folder_structure/yolov5/labels/{stem}.txt"] = lines.encode()
        labels[f"folder_structure/pascalvoc/{stem}.xml"] = b"<annotation></annotation>\n"
    files = {f"{_FIGSHARE}/{name}": zipped(part) for name, part in zip(_PARTS, parts, strict=True)}
    return Upstream(files={f"{_FIGSHARE}/{_ANNOTATIONS}": zipped(labels), **files})


VINDR_HEIGHT, VINDR_WIDTH = 56, 48
_Box = tuple[str, float, float, float, float]
# Boxes of each image of the test part.
_VINDR_IMAGES: list[list[_Box]] = [
    [("Aortic enlargement", 20, 8, 30, 18), ("Cardiomegaly", 14, 24, 40, 44)],
    [("Atelectasis", 5, 5, 15, 20), ("Calcification", 30, 30, 34, 34.5), ("Pulmonary fibrosis", 4, 4, 20, 12)],
    [("Consolidation", 6, 20, 18, 34), ("ILD", 5, 10, 44, 50), ("Infiltration", 28, 12, 40, 26)],
    [],
    [("Lung Opacity", 8, 8, 20, 20), ("Nodule/Mass", 30, 10, 36, 16), ("Other lesion", 2, 40, 10, 50)],
    [("Pleural effusion", 30, 40, 49.5, 57), ("Pleural thickening", 4, 2, 20, 6), ("Pneumothorax", 26, 2, 44, 20)],
    [("Clavicle fracture", 6, 2, 18, 6), ("Lung cyst", 20, 20, 26, 26)],
    [],
]
_INVERTED, _PACKED, VINDR_TEN_BITS = (1, 2), (0, 2), 5


def vindr_image_id(number: int) -> str:
    """32 hexadecimal digits, as upstream."""
    return sha256_bytes(f"vindr {number}".encode())[:32]


def vindr_cxr() -> Upstream:
    """VinDr-CXR: a PhysioNet project of DICOM images and tables of boxes.

    The project with both parts, of which the task needs one.

    Defects: compressed images, MONOCHROME1, several bit depths, names of patients in the headers, rows without a box,
    rare classes that the task does not have, a box that reaches beyond the image; the training part has three readers.
    """
    files: dict[str, bytes] = {"LICENSE.txt": b"PhysioNet Credentialed Health Data License 1.5.0\n"}
    rows = []
    for number, boxes in enumerate(_VINDR_IMAGES):
        bits = 10 if number == VINDR_TEN_BITS else 12
        pixels = deep((VINDR_HEIGHT, VINDR_WIDTH), bits, "vindr", number)
        files[f"test/{vindr_image_id(number)}.dicom"] = radiograph(
            pixels, number, bits=bits, inverted=number in _INVERTED, packed=number in _PACKED
        )
        rows += [_row(vindr_image_id(number), box) for box in boxes] or [_row(vindr_image_id(number), None)]
    files["annotations/annotations_test.csv"] = table(rows)
    trained = [{"rad_id": f"R{reader}", **_row(vindr_image_id(99), _VINDR_IMAGES[0][0])} for reader in (8, 9, 10)]
    files["annotations/annotations_train.csv"] = table(trained)
    files["annotations/image_labels_test.csv"] = table([{"image_id": vindr_image_id(3), "No finding": 1}])
    files[f"train/{vindr_image_id(99)}.dicom"] = radiograph(
        deep((VINDR_HEIGHT, VINDR_WIDTH), 12, "vindr", 99), 99, bits=12
    )
    return Upstream(files=physionet("vindr-cxr/1.0.0", files))


def _row(name: str, box: _Box | None) -> dict[str, object]:
    label, *corners = box or ("No finding", "", "", "", "")
    return {
        "image_id": name,
        "class_name": label,
        **dict(zip(("x_min", "y_min", "x_max", "y_max"), corners, strict=True)),
    }


UPSTREAMS = {
    maker.__name__: maker
    for maker in (
        brain_tumor_mri,
        crc_val_he_7k,
        ham10000,
        kermany_chest_xray,
        patchcamelyon,
        bccd,
        dentex,
        grazpedwri_dx,
        vindr_cxr,
    )
}
"""Data set → what makes its fixture."""
