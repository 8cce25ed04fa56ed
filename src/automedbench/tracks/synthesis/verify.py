"""Verification: SSIM again by scikit-image, plane by plane, on volumes that nibabel loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from automedbench.tracks import ScoringInputs, track_settings
from automedbench.tracks.common.cases import case_output, output_path
from automedbench.tracks.synthesis.score import is_scorable
from automedbench.tracks.synthesis.settings import Settings
from automedbench.tracks.synthesis.stage import MASK, TRUTH


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """The quality again by scikit-image, plane by plane, on volumes that nibabel loaded."""
    from importlib.metadata import version

    settings: Settings = track_settings(inputs.card)
    output = case_output(inputs.card, "nii.gz")
    values = [
        max(0.0, _twin(output_path(inputs.submission, output, case.id), inputs.private / case.id, settings))
        if is_scorable(verdict)
        else 0.0
        for case, verdict in zip(inputs.manifest.cases, inputs.checked.cases, strict=True)
    ]
    return f"scikit-image {version('scikit-image')}", float(np.mean(values)), 1e-9


def _twin(prediction: Path, private: Path, settings: Settings) -> float:
    import nibabel
    import skimage.metrics

    similarity: Any = skimage.metrics.structural_similarity

    def load(path: Path) -> Any:
        image: Any = nibabel.load(path)
        return image.get_fdata(dtype=np.float32, caching="unchanged")

    predicted, truth = load(prediction), load(private / TRUTH)
    mask = load(private / MASK) > 0.5 if (private / MASK).is_file() else None
    used = [k for k in range(truth.shape[2]) if mask is None or mask[:, :, k].sum() >= settings.mask_min_voxels]
    values = [
        similarity(
            *(np.clip(volume[:, :, k].astype(np.float64), *settings.hu_window) for volume in (truth, predicted)),
            win_size=settings.ssim_window,
            data_range=settings.data_range,
        )
        for k in used
    ]
    return float(np.mean(values))
