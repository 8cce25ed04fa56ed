"""VinDr-CXR: a PhysioNet project of DICOM images and tables of boxes.

Defects: compressed images, MONOCHROME1, several bit depths, names of patients in the headers, rows without a box, rare
classes that the task does not have, a box that reaches beyond the image; the training part has three readers.
"""

from __future__ import annotations

from automedbench.base.files import sha256_bytes
from automedbench_rehearsal.making.dicom import radiograph
from automedbench_rehearsal.making.files import physionet, table
from automedbench_rehearsal.making.pictures import deep
from automedbench_rehearsal.upstreams import Upstream

HEIGHT, WIDTH = 56, 48
_Box = tuple[str, float, float, float, float]
# Boxes of each image of the test part.
_IMAGES: list[list[_Box]] = [
    [("Aortic enlargement", 20, 8, 30, 18), ("Cardiomegaly", 14, 24, 40, 44)],
    [("Atelectasis", 5, 5, 15, 20), ("Calcification", 30, 30, 34, 34.5), ("Pulmonary fibrosis", 4, 4, 20, 12)],
    [("Consolidation", 6, 20, 18, 34), ("ILD", 5, 10, 44, 50), ("Infiltration", 28, 12, 40, 26)],
    [],
    [("Lung Opacity", 8, 8, 20, 20), ("Nodule/Mass", 30, 10, 36, 16), ("Other lesion", 2, 40, 10, 50)],
    [("Pleural effusion", 30, 40, 49.5, 57), ("Pleural thickening", 4, 2, 20, 6), ("Pneumothorax", 26, 2, 44, 20)],
    [("Clavicle fracture", 6, 2, 18, 6), ("Lung cyst", 20, 20, 26, 26)],
    [],
]
INVERTED, PACKED, TEN_BITS = (1, 2), (0, 2), 5


def image_id(number: int) -> str:
    """32 hexadecimal digits, as upstream."""
    return sha256_bytes(f"vindr {number}".encode())[:32]


def upstream() -> Upstream:
    """The project with both parts, of which the task needs one."""
    files: dict[str, bytes] = {"LICENSE.txt": b"PhysioNet Credentialed Health Data License 1.5.0\n"}
    rows = []
    for number, boxes in enumerate(_IMAGES):
        bits = 10 if number == TEN_BITS else 12
        pixels = deep((HEIGHT, WIDTH), bits, "vindr", number)
        files[f"test/{image_id(number)}.dicom"] = radiograph(
            pixels, number, bits=bits, inverted=number in INVERTED, packed=number in PACKED
        )
        rows += [_row(image_id(number), box) for box in boxes] or [_row(image_id(number), None)]
    files["annotations/annotations_test.csv"] = table(rows)
    trained = [{"rad_id": f"R{reader}", **_row(image_id(99), _IMAGES[0][0])} for reader in (8, 9, 10)]
    files["annotations/annotations_train.csv"] = table(trained)
    files["annotations/image_labels_test.csv"] = table([{"image_id": image_id(3), "No finding": 1}])
    files[f"train/{image_id(99)}.dicom"] = radiograph(deep((HEIGHT, WIDTH), 12, "vindr", 99), 99, bits=12)
    return Upstream(files=physionet("vindr-cxr/1.0.0", files))


def _row(name: str, box: _Box | None) -> dict[str, object]:
    label, *corners = box or ("No finding", "", "", "", "")
    return {
        "image_id": name,
        "class_name": label,
        **dict(zip(("x_min", "y_min", "x_max", "y_max"), corners, strict=True)),
    }
