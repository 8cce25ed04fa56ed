"""Measures between one predicted and one true volume, slice by slice; used for scores and for baselines."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench.metrics.structural_similarity import HuErrors, plane_ssim
from automedbench.tracks.synthesis.settings import SynthesisSettings

Plane = NDArray[Any]


@dataclass(frozen=True)
class Measures:
    """Similarity and errors of one case. ``slices`` is the SSIM of every slice, None where it was not used.

    ``ssim`` is the mean over the used slices before it is cut off at 0; ``ssim_masked`` averages the local SSIM of
    windows centred in the mask (of all windows without one), ``ssim_soft`` uses the soft-tissue window. Errors are of
    unclipped values in the mask, in HU.
    """

    ssim: float
    ssim_masked: float | None
    ssim_soft: float
    mae: float | None
    rmse: float | None
    psnr: float | None
    lowest: float
    highest: float
    slices: list[float | None] = field(default_factory=list)

    @property
    def score(self) -> float:
        """SSIM as it counts: a negative one is no worse than a missing volume."""
        return max(0.0, self.ssim)


def compare(triples: Iterable[tuple[Plane, Plane, Plane | None]], settings: SynthesisSettings) -> Measures:
    """Measures of a case from its (prediction, truth, mask) slices in order, all of one shape; all values finite.

    Raises ValueError when no slice can be used, which staging rules out.
    """
    window, soft_window, least = settings.ssim_window, settings.soft_window, settings.mask_min_voxels
    hu_ssim = functools.partial(plane_ssim, data_range=settings.data_range, window=window, clip=settings.hu_window)
    soft_range = soft_window[1] - soft_window[0]
    soft_ssim = functools.partial(plane_ssim, data_range=soft_range, window=window, clip=soft_window)
    errors, slices, soft = HuErrors(), list[float | None](), list[float]()
    lowest, highest, masked, n_masked = math.inf, -math.inf, 0.0, 0
    for prediction, truth, mask in triples:
        lowest, highest = min(lowest, float(prediction.min())), max(highest, float(prediction.max()))
        errors.add(prediction, truth, mask)
        if mask is not None and np.count_nonzero(mask) < least:
            slices.append(None)
            continue
        found = hu_ssim(prediction, truth, mask)
        slices.append(found.mean)
        soft.append(soft_ssim(prediction, truth).mean)
        masked += found.total if mask is None else found.roi_total
        n_masked += found.n if mask is None else found.n_roi
    used = [value for value in slices if value is not None]
    if not used:
        raise ValueError(f"none of {len(slices)} slices has {least} voxels in the mask")
    return Measures(
        ssim=float(np.mean(used)),
        ssim_masked=masked / n_masked if n_masked else None,
        ssim_soft=float(np.mean(soft)),
        mae=_finite(errors.mae),
        rmse=_finite(errors.rmse),
        psnr=_finite(errors.psnr(settings.data_range)),
        lowest=lowest,
        highest=highest,
        slices=slices,
    )


def as_float32(plane: Plane) -> Plane:
    """Values as they are compared: float32 unless they are integers that it holds exactly anyway."""
    return plane if plane.dtype.kind in "iu" and plane.dtype.itemsize <= 2 else plane.astype(np.float32, copy=False)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
