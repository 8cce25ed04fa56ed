"""Overlap of label maps: one joint histogram of reference and prediction, from which every overlap measure follows.

A mask per label costs a pass over the volume per label; the joint histogram costs one pass for any number of
labels. It is filled block by block, so that a volume never has to be in memory as a whole, and looks at eight voxels
at once where both maps are uniform, which is most of any segmentation.

Conventions: arrays of label *numbers* 0 … n_labels − 1, where 0 is the background; reference before prediction in every
table (rows, columns).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["BothEmpty", "JointHistogram", "Overlap", "dice"]

BothEmpty = Literal["one", "skip"]
Labels = NDArray[Any]
Counts = NDArray[np.int64]

_WORD = 8
_SPREAD = np.uint64(0x0101010101010101)
_LOW_BYTE = np.uint64(0xFF)
_MAX_WORD_LABELS = 256


class JointHistogram:
    """Voxels counted by (reference label, prediction label); ``counts`` has shape (n_labels, n_labels)."""

    def __init__(self, n_labels: int) -> None:
        if n_labels < 1:
            raise ValueError(f"n_labels is {n_labels}, not a positive number")
        self.n_labels = n_labels
        self._flat: Counts = np.zeros(n_labels * n_labels, dtype=np.int64)

    @property
    def counts(self) -> Counts:
        """The table as it stands."""
        return self._flat.reshape(self.n_labels, self.n_labels).copy()

    def add(self, reference: Labels, prediction: Labels) -> None:
        """Count one block: two 1-D integer arrays of the same length with values in [0, n_labels).

        Blocks of about 2¹⁸ voxels and the type uint8 are fastest. Raises ValueError for unequal lengths and for values
        out of range.
        """
        if reference.shape != prediction.shape or reference.ndim != 1:
            raise ValueError(f"blocks have shapes {reference.shape} and {prediction.shape}, not one equal length")
        if not reference.size:
            return
        for values in (reference, prediction):
            if int(values.max()) >= self.n_labels or (values.dtype.kind != "u" and int(values.min()) < 0):
                raise ValueError(f"a label lies outside 0 to {self.n_labels - 1}")
        if reference.dtype == prediction.dtype == np.uint8 and self.n_labels <= _MAX_WORD_LABELS:
            self._add_words(np.ascontiguousarray(reference), np.ascontiguousarray(prediction))
        else:
            self._add_voxels(reference, prediction)

    def overlap(self) -> Overlap:
        """Volumes and intersections of every label."""
        table = self.counts
        return Overlap(reference=table.sum(axis=1), prediction=table.sum(axis=0), both=np.diagonal(table).copy())

    def _add_words(self, reference: NDArray[np.uint8], prediction: NDArray[np.uint8]) -> None:
        """Eight voxels are one word. Words that are uniform in both maps count eightfold, only the rest is unpacked."""
        whole = reference.size // _WORD * _WORD
        self._add_voxels(reference[whole:], prediction[whole:])
        left, right = reference[:whole].view(np.uint64), prediction[:whole].view(np.uint64)
        busy = (left | right) != 0
        n_busy = int(np.count_nonzero(busy))
        self._flat[0] += _WORD * (left.size - n_busy)
        if not n_busy:
            return
        if n_busy < left.size:
            left, right = left[busy], right[busy]
        first_left, first_right = left & _LOW_BYTE, right & _LOW_BYTE
        uniform = (first_left * _SPREAD == left) & (first_right * _SPREAD == right)
        codes = first_left[uniform] * np.uint64(self.n_labels) + first_right[uniform]
        self._flat += _WORD * np.bincount(codes.astype(np.intp), minlength=self._flat.size)
        mixed = ~uniform
        self._add_voxels(left[mixed].view(np.uint8), right[mixed].view(np.uint8))

    def _add_voxels(self, reference: Labels, prediction: Labels) -> None:
        if reference.size:
            # The product overflows the labels' own type, so the wider type comes first.
            codes = reference.astype(np.intp)
            codes *= self.n_labels
            codes += prediction
            self._flat += np.bincount(codes, minlength=self._flat.size)


@dataclass(frozen=True, eq=False)
class Overlap:
    """Voxels of each label in the reference, in the prediction, and in both; three arrays of one length."""

    reference: Counts
    prediction: Counts
    both: Counts

    def dice(self, both_empty: BothEmpty) -> NDArray[np.float64]:
        """Dice of each label, as :func:`dice` defines it."""
        return dice(self.both, self.reference, self.prediction, both_empty=both_empty)


def dice(both: Counts, reference: Counts, prediction: Counts, *, both_empty: BothEmpty) -> NDArray[np.float64]:
    """Dice similarity 2·|R ∩ P| / (|R| + |P|) of each label, from voxel counts (Dice 1945; Sørensen 1948).

    Where only one of the two is empty it is 0. Where both are, libraries disagree (1, 0, NaN), so the caller decides:
    ``one`` counts a label that is rightly absent as a perfect answer, ``skip`` gives NaN, to be left out of means.
    """
    size = reference + prediction
    empty = size == 0
    values: NDArray[np.float64] = 2.0 * both / np.where(empty, 1, size)
    values[empty] = 1.0 if both_empty == "one" else np.nan
    return values
