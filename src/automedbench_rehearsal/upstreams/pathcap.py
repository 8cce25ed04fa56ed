"""PathCap on the hub: a list of captions and an archive of pictures.

Defects: captions of a few words and with signs outside of ASCII, a picture that is not there, a picture with two
captions, two pictures of one article, pictures with metadata.
"""

from __future__ import annotations

import json

from automedbench_rehearsal.making.files import zipped
from automedbench_rehearsal.making.reports import chest_jpeg
from automedbench_rehearsal.upstreams import Upstream

_CAPTIONS = [
    "Haematoxylin and eosin, ×200: glands of a villous adenoma lined by tall cells with dark nuclei.",
    "Spindle cells in fascicles; mitoses are rare (< 1 per 10 fields, α-SMA positive).",
    "Granuloma.",
    "Section of the kidney with crescents in three of eight glomeruli — silver stain.",
    "Lymph node: sheets of large cells, CD20+, Ki-67 ≈ 80 %.",
    "Normal skin for comparison, epidermis above, dermis below.",
    "Squamous carcinoma with keratin pearls at the edge of an ulcer.",
    "Bone marrow, fat and islands of blood formation.",
]


def upstream() -> Upstream:
    """``data.json`` and ``images.zip``."""
    records, pictures = [], {}
    for number, caption in enumerate(_CAPTIONS):
        article = f"PMC{7000000 + max(number, 1)}"
        name = f"{article}_fig{number}_0.jpg"
        records.append({"image": name, "caption": caption, "pmc_id": article, "figure_fn": f"fig{number}.jpg"})
        pictures[f"images/{name}"] = chest_jpeg("pathcap", number, colours=3)
    absent = {"image": "PMC7999999_fig1_0.jpg", "caption": "Not in the archive.", "pmc_id": "PMC7999999"}
    again = {**records[-1], "caption": "Another caption of the same picture."}
    records += [{**absent, "figure_fn": "fig1.jpg"}, again]
    hub = {
        "data.json": json.dumps(records, ensure_ascii=False, indent=1).encode(),
        "images.zip": zipped(pictures),
        "README.md": b"---\nlicense: cc-by-nc-2.0\n---\n",
    }
    return Upstream(hubs={"jamessyx/PathCap": hub})
