"""Dice of every label of two volumes with nibabel alone, as a program of its own: what a whole scoring job may cost.

python benchmarks/plain_dice.py {masks|table} TRUTH PREDICTION LABELS OUT.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import nibabel
import numpy as np

Dice = list[float | None]
"""Of the labels 1, 2, …; None for one that is in neither volume."""


def masks(truth: Path, prediction: Path, n_labels: int) -> Dice:
    """Values as float64, a mask per label: how the public implementation does it."""
    first, second = (np.rint(_volume(path).get_fdata()).astype(np.int32) for path in (truth, prediction))
    found: Dice = []
    for label in range(1, n_labels + 1):
        left, right = first == label, second == label
        size = int(left.sum()) + int(right.sum())
        found.append(2 * int((left & right).sum()) / size if size else None)
    return found


def table(truth: Path, prediction: Path, n_labels: int) -> Dice:
    """Values as they are stored, all pairs of labels counted at once."""
    first, second = (np.asarray(_volume(path).dataobj).ravel(order="F") for path in (truth, prediction))
    side = n_labels + 1
    counts = np.bincount(first.astype(np.int64) * side + second, minlength=side * side).reshape(side, side)
    sizes = counts.sum(axis=0) + counts.sum(axis=1)
    return [2 * int(counts[k, k]) / int(sizes[k]) if sizes[k] else None for k in range(1, side)]


def _volume(path: Path) -> Any:
    return nibabel.load(path)


def main(way: str, truth: str, prediction: str, n_labels: str, out: str) -> None:
    """Write the values to a file."""
    compute = {"masks": masks, "table": table}[way]
    Path(out).write_text(json.dumps(compute(Path(truth), Path(prediction), int(n_labels))))


if __name__ == "__main__":
    main(*sys.argv[1:])
