"""Pictures made of pictures: quality of outputs and of what the input gives without a method, and distance of copies.

Pictures of one case are stacks of planes of one shape, output, answer and forms of the input on one grid. Everything is
compared after the least-squares fit, so that neither a wrong scale hides a method nor a right one makes a copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench.tracks import Restoration

Floats = NDArray[np.float64]
_EXACT = 1e-6


@dataclass(frozen=True)
class RestoredCase:
    """Quality of one case's output and of each trivial form of its input, and how far from them the output is."""

    output: float
    trivial: Mapping[str, float]
    distance: float


def compare_restored(
    output: Floats,
    answer: Floats,
    forms: Mapping[str, Floats],
    mixtures: Sequence[Sequence[str]],
    quality: Callable[[Floats, Floats], float],
) -> RestoredCase:
    """Measures of one case; ``quality`` takes a picture and the answer.

    ``mixtures`` are groups of names of forms: a weighted sum of the forms of a group is a copy.
    """
    return RestoredCase(
        output=quality(fit(answer, [output]), answer),
        trivial={name: quality(fit(answer, [form]), answer) for name, form in forms.items()},
        distance=min(distance(output, answer, [forms[name] for name in mixture]) for mixture in mixtures),
    )


def collect_restored(cases: Sequence[RestoredCase]) -> Restoration | None:
    """All cases together; None without one."""
    if not cases:
        return None
    return Restoration(
        outputs=np.array([case.output for case in cases]),
        trivial={name: np.array([case.trivial[name] for case in cases]) for name in cases[0].trivial},
        distance=np.array([case.distance for case in cases]),
    )


def distance(output: Floats, answer: Floats, forms: Sequence[Floats]) -> float:
    """What the forms leave unexplained of the output, as a share of what they leave unexplained of the answer.

    0 for a copy, about 1 for the answer itself; infinite where one of them is constant or the answer is a copy too.
    """
    of_answer, of_output = unexplained(answer, forms), unexplained(output, forms)
    return of_output / of_answer if of_answer > _EXACT and math.isfinite(of_output) else math.inf


def unexplained(picture: Floats, forms: Sequence[Floats]) -> float:
    """Root of 1 - R² of the picture's fit by the forms; infinite for a constant picture."""
    spread = float(np.std(picture))
    if spread <= _EXACT * float(np.abs(picture).max()):
        return math.inf
    return float(np.sqrt(np.mean((picture - fit(picture, forms)) ** 2))) / spread


def fit(picture: Floats, forms: Sequence[Floats]) -> Floats:
    """Weighted sum of the forms and a constant that is closest to the picture (least squares)."""
    centred = np.stack([np.ravel(form) - form.mean() for form in forms])
    target = np.ravel(picture) - picture.mean()
    weights = np.linalg.pinv(centred @ centred.T, hermitian=True) @ (centred @ target)
    return np.asarray((weights @ centred).reshape(picture.shape) + picture.mean())


def smoothed(planes: Floats, times: int) -> Floats:
    """Planes (n, rows, columns) after so many passes of the binomial filter 1-2-1 along rows and columns."""
    for axis in [1, 2] * times:
        padded = np.pad(planes, [(1, 1) if each == axis else (0, 0) for each in range(3)], mode="edge")
        middle, before, after = (
            padded.take(np.arange(start, start + planes.shape[axis]), axis=axis) for start in (1, 0, 2)
        )
        planes = (before + 2 * middle + after) / 4
    return planes


def centre(planes: NDArray[Any], side: int) -> Floats:
    """The middle of planes (n, rows, columns), ``side`` pixels at most along each axis, in double precision."""
    starts = [max(0, (length - side) // 2) for length in planes.shape[1:]]
    cut = planes[:, starts[0] : starts[0] + side, starts[1] : starts[1] + side]
    return np.ascontiguousarray(cut, dtype=np.float64)
