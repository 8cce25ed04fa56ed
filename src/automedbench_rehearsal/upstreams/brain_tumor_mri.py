"""Brain Tumor MRI (Kaggle): class folders in one archive; grey, colour, alpha, metadata, duplicates."""

from __future__ import annotations

from typing import Any

import numpy as np

from automedbench_rehearsal.making.files import zipped
from automedbench_rehearsal.making.pictures import jpeg, picture, scene
from automedbench_rehearsal.upstreams import Upstream

URL = "https://www.kaggle.com/api/v1/datasets/download/masoudnickparvar/brain-tumor-mri-dataset?datasetVersionNumber=1"
CLASSES = {"glioma": "gl", "meningioma": "me", "notumor": "no", "pituitary": "pi"}
PER_CLASS = 3


def upstream() -> Upstream:
    """Three images of each class for testing, one for training; one is in both parts."""
    files = {}
    for label, short in CLASSES.items():
        for number in range(10, 10 + PER_CLASS):
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
    return Upstream(files={URL: zipped(files)})
