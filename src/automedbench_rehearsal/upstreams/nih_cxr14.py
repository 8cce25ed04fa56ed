"""ChestX-ray14's first archive: PNG files in one folder images/.

Defects of upstream that are here: several images of a patient, a few files stored as RGBA; the archive is offered
under a name that ends in .gz only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from automedbench_rehearsal.making.files import tarred
from automedbench_rehearsal.making.pictures import picture, scene
from automedbench_rehearsal.upstreams import Upstream

_IMAGES = (
    "00000001_000",
    "00000001_001",
    "00000002_000",
    "00000003_000",
    "00000003_007",
    "00000011_002",
    "00001335_006",
)
_COLOURED = "00000011_002"


def upstream() -> Upstream:
    """Seven images of five patients."""
    content = {f"images/{name}.png": picture(_chest(name)) for name in _IMAGES}
    url = "https://nihcc.box.com/shared/static/vfk49d74nhbxq3nqjg0900w5nvkorp5c.gz"
    return Upstream(files={url: tarred(content, gz=True)})


def _chest(name: str) -> NDArray[np.uint8]:
    grey = scene((96, 96), "chest", name)
    if name != _COLOURED:
        return grey
    return np.dstack([grey, grey, grey, np.full_like(grey, 255)])
