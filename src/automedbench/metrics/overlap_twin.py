"""Dice per label by SimpleITK, the independent check of ``metrics.overlap``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench.metrics.overlap import BothEmpty

_BLOCK = 2**20


def library() -> str:
    """Name and version of the library behind :func:`label_dice`."""
    from importlib.metadata import version

    return f"SimpleITK {version('simpleitk')}"


def label_dice(
    reference: NDArray[Any], prediction: NDArray[Any], labels: list[int], *, both_empty: BothEmpty
) -> list[float | None]:
    """Dice of each label of two integer label maps of one shape; None where undefined.

    SimpleITK gives 0 for a label absent from both maps (with a warning), so such labels are not asked for.
    """
    import SimpleITK

    toolkit: Any = SimpleITK
    measures = toolkit.LabelOverlapMeasuresImageFilter()
    # The same axis order on both sides: which one is of no importance for counts.
    measures.Execute(*(toolkit.GetImageFromArray(np.ascontiguousarray(values)) for values in (reference, prediction)))
    present = _present(reference, labels) | _present(prediction, labels)
    absent = 1.0 if both_empty == "one" else None
    return [float(measures.GetDiceCoefficient(label)) if label in present else absent for label in labels]


def _present(values: NDArray[Any], labels: list[int]) -> set[int]:
    """Those of the labels that occur."""
    found: set[int] = set()
    flat = values.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        found.update(np.unique(flat[start : start + _BLOCK]).tolist())
    return found.intersection(labels)
