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


class _Comparison:
    """Accumulates the slices of one case."""

    def __init__(self, settings: SynthesisSettings) -> None:
        soft, window = settings.soft_window, settings.ssim_window
        self._least, self._data_range = settings.mask_min_voxels, settings.data_range
        self._hu = functools.partial(plane_ssim, data_range=self._data_range, window=window, clip=settings.hu_window)
        self._soft = functools.partial(plane_ssim, data_range=soft[1] - soft[0], window=window, clip=soft)
        self._errors = HuErrors()
        self._slices: list[float | None] = []
        self._soft_slices: list[float] = []
        self._masked, self._n_masked = 0.0, 0
        self._lowest, self._highest = math.inf, -math.inf

    def add(self, prediction: Plane, truth: Plane, mask: Plane | None) -> None:
        self._lowest = min(self._lowest, float(prediction.min()))
        self._highest = max(self._highest, float(prediction.max()))
        self._errors.add(prediction, truth, mask)
        if mask is not None and np.count_nonzero(mask) < self._least:
            self._slices.append(None)
            return
        found = self._hu(prediction, truth, mask)
        self._slices.append(found.mean)
        self._soft_slices.append(self._soft(prediction, truth).mean)
        self._masked += found.total if mask is None else found.roi_total
        self._n_masked += found.n if mask is None else found.n_roi

    def result(self) -> Measures:
        used = [value for value in self._slices if value is not None]
        if not used:
            raise ValueError(f"none of {len(self._slices)} slices has {self._least} voxels in the mask")
        return Measures(
            ssim=float(np.mean(used)),
            ssim_masked=self._masked / self._n_masked if self._n_masked else None,
            ssim_soft=float(np.mean(self._soft_slices)),
            mae=_finite(self._errors.mae),
            rmse=_finite(self._errors.rmse),
            psnr=_finite(self._errors.psnr(self._data_range)),
            lowest=self._lowest,
            highest=self._highest,
            slices=self._slices,
        )


def compare(triples: Iterable[tuple[Plane, Plane, Plane | None]], settings: SynthesisSettings) -> Measures:
    """Measures of a case from its (prediction, truth, mask) slices in order, all of one shape; all values finite.

    Raises ValueError when no slice can be used, which staging rules out.
    """
    comparison = _Comparison(settings)
    for prediction, truth, mask in triples:
        comparison.add(prediction, truth, mask)
    return comparison.result()


def as_float32(plane: Plane) -> Plane:
    """Values as they are compared: float32 unless they are integers that it holds exactly anyway."""
    return plane if plane.dtype.kind in "iu" and plane.dtype.itemsize <= 2 else plane.astype(np.float32, copy=False)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
