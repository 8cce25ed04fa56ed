"""HAM10000 at Harvard Dataverse: two archives without a folder inside and a table; several images of one lesion."""

from __future__ import annotations

from automedbench_rehearsal.making.files import table, zipped
from automedbench_rehearsal.making.pictures import jpeg
from automedbench_rehearsal.upstreams import Upstream

PLACE = "https://dataverse.harvard.edu/api/access/datafile"
# Image → lesion and diagnosis, in the order of the table. Lesions 118 and 2730 have two images.
IMAGES = {
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


def upstream() -> Upstream:
    """Fourteen images of twelve lesions, every diagnosis present."""
    parts: tuple[dict[str, bytes], dict[str, bytes]] = ({}, {})
    rows = []
    for place, (image, (lesion, diagnosis)) in enumerate(IMAGES.items()):
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
            f"{PLACE}/4338392?format=original": table(rows),
            f"{PLACE}/3172585": zipped(parts[0]),
            f"{PLACE}/3172584": zipped(parts[1]),
        }
    )
