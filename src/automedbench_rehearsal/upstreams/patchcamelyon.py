"""PatchCamelyon: gzipped HDF5 arrays and a table with a column that has no name; many patches of one slide."""

from __future__ import annotations

import numpy as np

from automedbench_rehearsal.making.files import gzipped, hdf5
from automedbench_rehearsal.making.pictures import coarse
from automedbench_rehearsal.upstreams import Upstream

URL = "https://zenodo.org/records/2546921/files/camelyonpatch_level_2_split_test"
# (slide, label): upstream's order; slide 2 has more patches of both classes than may be taken.
PATCHES = [(1, 0), (2, 1), (2, 1), (2, 0), (2, 1), (3, 0), (2, 1), (4, 0), (5, 1), (2, 0), (2, 0), (6, 0)]


def upstream() -> Upstream:
    """Twelve patches of six slides."""
    images = np.stack([coarse(96, 4, "pcam", place, label) for place, (_, label) in enumerate(PATCHES)])
    labels = np.array([label for _, label in PATCHES], np.uint8).reshape(-1, 1, 1, 1)
    rows = [",coord_y,coord_x,tumor_patch,center_tumor_patch,wsi"]
    for place, (slide, label) in enumerate(PATCHES):
        # Tumour in the patch, but not in its centre, is no tumour.
        anywhere = bool(label) or place == 3
        rows.append(
            f"{place},{1000 + 96 * place},{2000 + 96 * slide},{anywhere},{bool(label)},camelyon16_test_{slide:03d}"
        )
    return Upstream(
        files={
            f"{URL}_x.h5.gz": gzipped(hdf5({"x": images})),
            f"{URL}_y.h5.gz": gzipped(hdf5({"y": labels})),
            f"{URL}_meta.csv": ("\n".join(rows) + "\n").encode(),
        }
    )
