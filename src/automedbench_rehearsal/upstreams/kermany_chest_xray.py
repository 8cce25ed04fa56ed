"""Kermany's chest X-rays: names tell class and patient, colour is stored for pneumonia alone, macOS leftovers."""

from __future__ import annotations

from automedbench_rehearsal.making.files import zipped
from automedbench_rehearsal.making.pictures import jpeg
from automedbench_rehearsal.upstreams import Upstream

URL = (
    "https://data.mendeley.com/public-files/datasets/rscbjbr9sj/files/"
    "f12eaf6d-6023-432f-acc9-80c9d7393433/file_downloaded"
)
# The first two of each class are one patient.
NORMAL = ("IM-0001-0001", "IM-0001-0002", "IM-0115-0001", "NORMAL2-IM-0021-0001", "IM-0511-0001-0002")
PNEUMONIA = ("person1_virus_6", "person1_virus_7", "person100_bacteria_475", "person11_virus_38", "person3_virus_15")


def upstream() -> Upstream:
    """Five images of four patients in each class of the test part, one of each for training."""
    files = {"chest_xray/.DS_Store": b"\0\0\0\1Bud1", "__MACOSX/chest_xray/._.DS_Store": b"\0\5\26\7"}
    for folder, names in (("NORMAL", NORMAL), ("PNEUMONIA", PNEUMONIA)):
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
    return Upstream(files={URL: zipped(files)})
