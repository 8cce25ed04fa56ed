"""Structural similarity (SSIM) with uniform windows, over planes or volumes that arrive slice by slice.

The definition is scikit-image's ``structural_similarity`` with its defaults and a stated ``data_range`` R: equal
weights in windows of 7 voxels per axis, sample variances and covariance (divisor N − 1 for N voxels in a window),
C1 = (0.01 R)², C2 = (0.03 R)², and the mean over all windows that lie completely inside (Wang et al. 2004 with a
uniform instead of a Gaussian window). Everything is computed in float64; values agree with scikit-image to 1e-12.

Only a band of rows is worked on at a time, so a plane of any size needs about 2 MB, and a volume of any depth seven
planes of each image and four maps. Peers hold a dozen float64 copies of the whole volume.

    PlaneSsim    mean over planes of the 2-D SSIM (each plane by itself), optionally over a region
    VolumeSsim   3-D SSIM with cubic windows
    HuErrors     MAE, RMSE and PSNR accumulated over planes

Prediction first, reference second. R is never guessed from a data type; clip both images to the window that R spans.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]

WINDOW: Final = 7
K1: Final = 0.01
K2: Final = 0.03
PSNR_CAP_DB: Final = 99.0
"""PSNR of identical images, which would be infinite."""
_BAND_ELEMENTS: Final = 2**13
"""Voxels of a plane that are worked on at a time: their sums stay in the processor's cache."""


@dataclass(frozen=True)
class PlaneSimilarity:
    """SSIM of one plane: sum over ``n`` windows, and over the ``n_roi`` windows whose centre lies in a region."""

    total: float
    n: int
    roi_total: float = 0.0
    n_roi: int = 0

    @property
    def mean(self) -> float:
        """Mean SSIM of the plane."""
        return self.total / self.n


class PlaneSsim:
    """SSIM of one plane after another, all of one shape, in buffers that are made once.

    ``clip`` limits both images to (lowest, highest) before anything else. Raises ValueError for an even window, a
    data range that is not positive, and planes smaller than the window.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        *,
        data_range: float,
        window: int = WINDOW,
        clip: tuple[float, float] | None = None,
    ) -> None:
        _require(min(shape), data_range, window)
        self._shape, self._window, self._clip = shape, window, clip
        self._formula = _Formula(data_range, window**2)
        self._buffers: dict[tuple[int, ...], _Buffers] = {}

    def compare(self, prediction: Array, reference: Array, roi: Array | None = None) -> PlaneSimilarity:
        """SSIM of one pair of planes (both of the stated shape); ``roi`` is a boolean plane."""
        _same_shape(self._shape, prediction, reference)
        if _lies_in_columns(reference):
            prediction, reference, roi = prediction.T, reference.T, None if roi is None else roi.T
        total = roi_total = 0.0
        n = n_roi = 0
        for row, values in self._bands(prediction, reference):
            total += float(values.sum())
            n += values.size
            if roi is not None:
                inside = _centres(roi, row, values.shape, self._window)
                roi_total += float(values[inside].sum())
                n_roi += int(np.count_nonzero(inside))
        return PlaneSimilarity(total, n, roi_total, n_roi)

    def _bands(self, prediction: Array, reference: Array) -> Iterator[tuple[int, Floats]]:
        """(first row, local SSIM) of bands of windows; the array is overwritten by the next band."""
        if prediction.shape not in self._buffers:
            self._buffers[prediction.shape] = _Buffers(len(prediction), prediction.shape[1], self._window)
        buffers = self._buffers[prediction.shape]
        for row, height in buffers.bands:
            rows = slice(row, row + height + self._window - 1)
            maps = buffers.maps[:, : height + self._window - 1]
            _point_maps(prediction[rows], reference[rows], self._clip, maps, buffers.pair)
            yield row, _local_ssim(maps, self._window, self._formula, buffers)


class VolumeSsim:
    """SSIM of a volume with cubic windows, from its slices in order along the third axis.

    Running sums over the last ``window`` slices are kept of four maps (see ``_point_maps``); the slice that leaves is
    kept as it came and taken off again. Raises ValueError as ``PlaneSsim`` does.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        *,
        data_range: float,
        window: int = WINDOW,
        clip: tuple[float, float] | None = None,
    ) -> None:
        _require(min(shape), data_range, window)
        self._shape, self._window, self._clip = shape, window, clip
        self._formula = _Formula(data_range, window**3)
        self._ring: deque[tuple[Array, Array]] = deque()
        self._transposed: bool | None = None
        self._running = np.zeros((4, 0, 0))
        self._buffers = _Buffers(window, window, window)
        self._total, self._n = 0.0, 0

    def add(self, prediction: Array, reference: Array) -> None:
        """The next slice of both volumes; the arrays are kept for ``window`` slices and must not change meanwhile."""
        _same_shape(self._shape, prediction, reference)
        if self._transposed is None:
            self._transposed = _lies_in_columns(reference)
            n_rows, width = self._shape[::-1] if self._transposed else self._shape
            self._running = np.zeros((4, n_rows, width))
            self._buffers = _Buffers(n_rows, width, self._window)
        self._ring.append((prediction.T, reference.T) if self._transposed else (prediction, reference))
        self._update(self._ring[-1], np.add)
        if len(self._ring) == self._window:
            self._measure()
            self._update(self._ring.popleft(), np.subtract)

    def mean(self) -> float:
        """Mean over all windows so far; raises ValueError when fewer than ``window`` slices were added."""
        if not self._n:
            raise ValueError(f"a volume of {len(self._ring)} slices is thinner than the window of {self._window}")
        return self._total / self._n

    def _update(self, planes: tuple[Array, Array], operation: np.ufunc) -> None:
        """Add or subtract the maps of one slice to the running sums."""
        height = self._buffers.maps.shape[1]
        for row in range(0, len(planes[0]), height):
            rows = slice(row, min(row + height, len(planes[0])))
            maps = self._buffers.maps[:, : rows.stop - row]
            _point_maps(planes[0][rows], planes[1][rows], self._clip, maps, self._buffers.pair)
            operation(self._running[:, rows], maps, out=self._running[:, rows])

    def _measure(self) -> None:
        for row, height in self._buffers.bands:
            maps = self._running[:, row : row + height + self._window - 1]
            values = _local_ssim(maps, self._window, self._formula, self._buffers)
            self._total += float(values.sum())
            self._n += values.size


@dataclass
class HuErrors:
    """Absolute and squared differences in the unit of the images, accumulated over planes."""

    n: int = 0
    absolute: float = 0.0
    squared: float = 0.0

    def add(self, prediction: Array, reference: Array, roi: Array | None = None) -> None:
        """Add all voxels of a plane, or those where the boolean ``roi`` is true."""
        difference = np.subtract(prediction, reference, dtype=np.float64)
        values = difference.ravel(order="K") if roi is None else difference[roi]
        self.n += values.size
        self.squared += float(np.dot(values, values))
        self.absolute += float(np.abs(values, out=values).sum())

    @property
    def mae(self) -> float:
        """Mean absolute error; nan without a voxel."""
        return self.absolute / self.n if self.n else math.nan

    @property
    def rmse(self) -> float:
        """Root of the mean squared error; nan without a voxel."""
        return math.sqrt(self.squared / self.n) if self.n else math.nan

    def psnr(self, data_range: float) -> float:
        """20·log10(R / RMSE) in dB, at most 99 (which identical images get)."""
        return min(20 * math.log10(data_range / self.rmse), PSNR_CAP_DB) if self.rmse else PSNR_CAP_DB


# --- the computation ------------------------------------------------------------------------------------------
#
# With u = x + y and v = x − y, all that SSIM needs are the window sums of u, v, u² and v²: four maps instead of five,
# and identical images give v = 0, so exactly 1. Writing P = (Σu)²/N, Q = (Σv)²/N for a window of N voxels:
#
#     2 Σx Σy / N = (P − Q) / 2        (Σx)²/N + (Σy)²/N = (P + Q) / 2
#     2 Σxy = (Σu² − Σv²) / 2          Σx² + Σy² = (Σu² + Σv²) / 2


class _Buffers:
    """Memory for bands of rows of one width: two images, four point maps, and the sums made of them."""

    def __init__(self, n_rows: int, width: int, window: int) -> None:
        height = min(max(_BAND_ELEMENTS // width, 1), n_rows - window + 1)
        rows = height + window - 1
        self.bands = [(row, min(height, n_rows - window + 1 - row)) for row in range(0, n_rows - window + 1, height)]
        self.pair = np.empty((2, rows, width))
        self.maps = np.empty((4, rows, width))
        # Sums of 2, 4, 8 … neighbours down and across. None shares memory, or NumPy would copy to keep them apart.
        self.down = [np.empty((4, rows * width)) for _ in range(window.bit_length() - 1)]
        self.across = [np.empty((4, height * width)) for _ in range(window.bit_length() - 1)]
        self.local = np.zeros(height * width)


def _point_maps(x: Array, y: Array, clip: tuple[float, float] | None, maps: Floats, pair: Floats) -> None:
    """Fill ``maps`` (4, rows, width) with x + y, x − y and their squares."""
    pair = pair[:, : len(x)]
    np.copyto(pair[0], x)
    np.copyto(pair[1], y)
    if clip is not None:
        np.maximum(pair, clip[0], out=pair)
        np.minimum(pair, clip[1], out=pair)
    np.add(pair[0], pair[1], out=maps[0])
    np.subtract(pair[0], pair[1], out=maps[1])
    np.multiply(maps[:2], maps[:2], out=maps[2:])


def _local_ssim(maps: Floats, window: int, formula: _Formula, buffers: _Buffers) -> Floats:
    """SSIM of every window inside maps (4, rows, width): (rows − window + 1, width − window + 1), in shared memory."""
    height, width = maps.shape[1] - window + 1, maps.shape[2]
    down = _neighbour_sums(maps.reshape(4, -1), window, width, buffers.down)
    # All rows as one: the windows that begin in the last columns of a row run into the next, and are left out below.
    across = _neighbour_sums(down, window, 1, buffers.across)
    formula.ssim(across, out=buffers.local[: across.shape[1]])
    return buffers.local[: height * width].reshape(height, width)[:, : width - window + 1]


def _neighbour_sums(values: Floats, window: int, step: int, doubled: list[Floats]) -> Floats:
    """Sums of ``window`` values that are ``step`` apart along the second axis, by doubling: 7 = 4 + 2 + 1."""
    powers = [values]
    for exponent, memory in enumerate(doubled):
        shift = step << exponent
        length = powers[-1].shape[1] - shift
        powers.append(np.add(powers[-1][:, :length], powers[-1][:, shift:], out=memory[:, :length]))
    n, done = values.shape[1] - (window - 1) * step, step << len(doubled)
    total = powers[-1][:, :n]
    for exponent in reversed(range(len(doubled))):
        if window >> exponent & 1:
            total += powers[exponent][:, done : done + n]
            done += step << exponent
    return total


class _Formula:
    """SSIM from window sums of ``n`` voxels each."""

    def __init__(self, data_range: float, n: int) -> None:
        self._share = 1 / n
        # Both constants in the scale of the sums: times N for the means, times N − 1 for the sample variances; the
        # factor 2 comes from halves that are left out above.
        self._c1 = 2 * n * (K1 * data_range) ** 2
        self._c2 = 2 * (n - 1) * (K2 * data_range) ** 2

    def ssim(self, sums: Floats, out: Floats) -> None:
        """Local SSIM from (4, windows) sums, which are overwritten."""
        means, spreads = sums[:2], sums[2:]
        means *= means
        means *= self._share
        spreads -= means
        means[0] += self._c1
        spreads[0] += self._c2
        np.subtract(means[0], means[1], out=out)
        means[0] += means[1]
        np.subtract(spreads[0], spreads[1], out=means[1])
        spreads[0] += spreads[1]
        out *= means[1]
        means[0] *= spreads[0]
        out /= means[0]


# --- checks ---------------------------------------------------------------------------------------------------


def _require(smallest: int, data_range: float, window: int) -> None:
    if window < 3 or window % 2 == 0:
        raise ValueError(f"window is {window}; it must be odd and at least 3")
    if not data_range > 0 or not math.isfinite(data_range):
        raise ValueError(f"data_range is {data_range}; it must be positive")
    if smallest < window:
        raise ValueError(f"a plane of {smallest} voxels along one axis is smaller than the window of {window}")


def _same_shape(shape: tuple[int, int], prediction: Array, reference: Array) -> None:
    if prediction.shape != shape or reference.shape != shape:
        raise ValueError(f"planes have shapes {prediction.shape} and {reference.shape}; both must have {shape}")


def _lies_in_columns(plane: Array) -> bool:
    """True for Fortran order. SSIM of transposed planes is the same, and rows that are contiguous are faster."""
    return plane.flags.f_contiguous and not plane.flags.c_contiguous


def _centres(roi: Array, row: int, shape: tuple[int, ...], window: int) -> Array:
    """The part of ``roi`` that holds the centres of a band of windows."""
    half = window // 2
    return roi[row + half : row + half + shape[0], half : half + shape[1]]
