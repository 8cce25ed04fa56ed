"""CRC-VAL-HE-7K: class folders of TIFF tiles, 224×224, with leftovers of file managers."""

from __future__ import annotations

from automedbench_rehearsal.making.files import zipped
from automedbench_rehearsal.making.pictures import coarse, picture
from automedbench_rehearsal.upstreams import Upstream

URL = "https://zenodo.org/records/1214456/files/CRC-VAL-HE-7K.zip"
CLASSES = ("ADI", "BACK", "DEB", "LYM", "MUC", "MUS", "NORM", "STR", "TUM")
LETTERS = ("YLVCMEHK", "AAFNIRKP")


def upstream() -> Upstream:
    """Two tiles of each class, one more of TUM; names begin with the class."""
    files = {}
    for label in CLASSES:
        for letters in (*LETTERS, *(["WQFHHSDV"] if label == "TUM" else [])):
            pixels = coarse(224, 8, "crc", label, letters)
            files[f"CRC-VAL-HE-7K/{label}/{label}-TCGA-{letters}.tif"] = picture(
                pixels, "TIFF", description=f"tissue {label}"
            )
        files[f"CRC-VAL-HE-7K/{label}/Thumbs.db"] = b"thumbnails"
        files[f"CRC-VAL-HE-7K/{label}/._{label}-TCGA-YLVCMEHK.tif"] = b"\0\5\26\7resource fork"
    return Upstream(files={URL: zipped(files)})
