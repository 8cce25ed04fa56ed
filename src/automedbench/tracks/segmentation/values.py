"""Values of a volume as numbers of targets, and what is wrong with them.

A mask's foreground is every value above 0.5 (NaN is background). A label map is rounded to the nearest integer, halves
to even; what is then no label of the task (NaN included) becomes the number ``other``, which is never right.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench.base.records import Problem
from automedbench.tracks.segmentation.settings import LabelFile

Values = NDArray[Any]
Numbers = NDArray[Any]

# Scaling a stored integer and back is exact to far below this; a value further from an integer was meant so.
INTEGER_TOLERANCE = 1e-3


class Encoder:
    """Turns blocks of values into numbers 0 (background), 1 … n (targets) and n + 1 (``other``), counting faults."""

    def __init__(self, file: LabelFile) -> None:
        self.n_targets = len(file.values)
        self.other = self.n_targets + 1
        self._is_mask = file.is_mask
        self._dtype: Any = np.uint8 if self.other < 256 else np.uint16
        self._table: NDArray[Any] = np.full(max(file.values) + 2, self.other, dtype=self._dtype)
        self._table[0] = 0
        self._table[list(file.values)] = np.arange(1, self.other)
        # Labels 1 … n are their own numbers.
        self._plain = file.values == tuple(range(1, self.other))
        self._faults: dict[str, _Fault] = {}

    @property
    def n_numbers(self) -> int:
        """How many numbers there are: background, targets and ``other``."""
        return self.other + 1

    @property
    def problems(self) -> list[Problem]:
        """What is wrong with the values seen so far, one problem per code."""
        return [Problem(code=code, message=fault.message()) for code, fault in self._faults.items()]

    def encode(self, values: Values) -> Numbers:
        """Numbers of one block (any shape)."""
        if self._is_plain(values):
            return values.astype(self._dtype, copy=False)
        if not values.any():
            return np.zeros(values.shape, dtype=self._dtype)
        return self._mask(values) if self._is_mask else self._labels(values)

    def _is_plain(self, values: Values) -> bool:
        """True when the values are their numbers already."""
        if not self._plain or values.dtype.kind not in "iu":
            return False
        return int(values.max()) <= self.n_targets and (values.dtype.kind == "u" or int(values.min()) >= 0)

    def _mask(self, values: Values) -> Numbers:
        foreground = values > 0.5
        with np.errstate(invalid="ignore"):
            odd = ~(np.abs(values.astype(np.float64) - foreground) <= INTEGER_TOLERANCE)
        self._note("non_binary", odd, values, "neither 0 nor 1")
        return foreground.astype(self._dtype)

    def _labels(self, values: Values) -> Numbers:
        if values.dtype.kind == "f":
            whole = np.rint(values)
            with np.errstate(invalid="ignore"):
                near = np.abs(values - whole) <= INTEGER_TOLERANCE
            self._note("non_integer", np.isfinite(values) & ~near, values, "not integers")
        else:
            whole = values
        last = len(self._table) - 1  # one beyond the largest label: belongs to none
        inside = (whole >= 0) & (whole < last)
        numbers: Numbers = self._table[np.where(inside, whole, last).astype(np.intp)]
        self._note("unexpected_label", numbers == self.other, values, "not a label of the task")
        return numbers

    def _note(self, code: str, wrong: NDArray[np.bool_], values: Values, what: str) -> None:
        count = int(np.count_nonzero(wrong))
        if count:
            fault = self._faults.setdefault(code, _Fault(what, float(values[wrong][0])))
            fault.count += count


class _Fault:
    """How many voxels have one kind of fault, with the first value as an example."""

    def __init__(self, what: str, example: float) -> None:
        self.what, self.example, self.count = what, example, 0

    def message(self) -> str:
        return f"holds {self.count} voxels whose values are {self.what}, for example {self.example:g}"
