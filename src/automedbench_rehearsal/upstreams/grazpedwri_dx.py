"""GRAZPEDWRI-DX: four archives of 16-bit images and one of annotations, at figshare, where URLs have no names.

Defects: an image without a text file, boxes that reach beyond the image, several images of a patient, classes that
occur once.
"""

from __future__ import annotations

from automedbench_rehearsal.making.files import zipped
from automedbench_rehearsal.making.pictures import deep, picture
from automedbench_rehearsal.upstreams import Upstream

_FIGSHARE = "https://ndownloader.figshare.com/files"
ANNOTATIONS, PARTS = "34268819", ("34268828", "34268849", "34268864", "34268891")
HEIGHT, WIDTH = 60, 40
CLASSES = (
    *("boneanomaly", "bonelesion", "foreignbody", "fracture", "metal"),
    *("periostealreaction", "pronatorsign", "softtissue", "text"),
)
# Stem → its boxes: class, and centre and size relative to the image; None: there is no text file.
IMAGES: dict[str, list[tuple[int, float, float, float, float]] | None] = {
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


def upstream() -> Upstream:
    """The five archives."""
    labels: dict[str, bytes] = {"folder_structure/yolov5/meta.yaml": f"nc: 9\nnames: {list(CLASSES)}\n".encode()}
    parts: list[dict[str, bytes]] = [{}, {}, {}, {}]
    for place, (stem, boxes) in enumerate(IMAGES.items()):
        parts[place % 4][f"{stem}.png"] = picture(deep((HEIGHT, WIDTH), 16, "graz", stem))
        if boxes is not None:
            lines = "".join(" ".join(map(str, box)) + "\n" for box in boxes)
            labels[f"folder_structure/yolov5/labels/{stem}.txt"] = lines.encode()
        labels[f"folder_structure/pascalvoc/{stem}.xml"] = b"<annotation></annotation>\n"
    files = {f"{_FIGSHARE}/{name}": zipped(part) for name, part in zip(PARTS, parts, strict=True)}
    return Upstream(files={f"{_FIGSHARE}/{ANNOTATIONS}": zipped(labels), **files})
