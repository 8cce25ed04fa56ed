"""Pictures made of pictures: quality of outputs and of what the input gives without a method, and distance of copies.

Pictures of one case are stacks of planes of one shape, output, answer and forms of the input on one grid. Everything is
compared after the least-squares fit, so that neither a wrong scale hides a method nor a right one makes a copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench.tracks import EffectEvidence, Restoration
from automedbench.tracks.common.coarse import coarse_plane, correlation, same_picture

Floats = NDArray[np.float64]
_EXACT = 1e-6
FITTED_PIXELS = 4096
"""Pixels on which the weights of some thirty parts are found; the rest is measured on all."""
LEAST_REST = 1e-4
"""Unexplained share of an answer that leaves nothing to restore: it is a copy itself."""


BORDER, LEAST_SIDE = 4, 32
"""Pixels around the part that is compared, which only filters of the input reach; smaller pictures keep them."""
NEAREST = "the smoothing of the input that is nearest to it"
"""Name of the form that is made for each output."""


@dataclass(frozen=True)
class RestoredCase:
    """Planes of one case's output and answer (n, rows, columns), and the middle of trivial forms of its input.

    A sum of ``parts`` with weights of at least 0 is a copy; the one nearest to the output is one more trivial form.
    ``quality`` takes the middle of a picture and of the answer.
    """

    output: NDArray[Any]
    answer: NDArray[Any]
    forms: Mapping[str, Floats]
    parts: Sequence[Floats]
    quality: Callable[[Floats, Floats], float]

    def measure(self, crop: int) -> tuple[float, dict[str, float], float]:
        """Quality of the output and of each trivial form, and how far from them the output is."""
        output, answer = (inside(centre(planes, crop)) for planes in (self.output, self.answer))
        sums = PositiveSums.of([inside(part) for part in self.parts])
        compared = {name: inside(form) for name, form in self.forms.items()} | {NEAREST: sums.nearest(output)}
        trivial = {name: self.quality(fit(answer, form), answer) for name, form in compared.items()}
        return self.quality(fit(answer, output), answer), trivial, distance(output, answer, sums)


def restored_evidence(cases: Iterable[RestoredCase], coarse: int, crop: int) -> EffectEvidence:
    """Outputs and answers as planes of ``coarse`` cells a side, and the gain over the input in ``crop`` pixels."""
    outputs, answers, measured = [], [], []
    for case in cases:
        outputs.append(np.stack([coarse_plane(plane, coarse) for plane in case.output]))
        answers.append(np.stack([coarse_plane(plane, coarse) for plane in case.answer]))
        measured.append(case.measure(crop))
    own, trivial, distances = zip(*measured, strict=True) if measured else ((), (), ())
    restoration = Restoration(
        outputs=np.array(own),
        trivial={name: np.array([each[name] for each in trivial]) for name in (trivial[0] if trivial else ())},
        distance=np.array(distances),
    )
    return EffectEvidence(outputs, answers, correlation, same_picture, restoration=restoration)


def inside(planes: Floats) -> Floats:
    """Planes (n, rows, columns) without ``BORDER`` pixels around, where they are large enough."""
    cut = slice(BORDER, -BORDER) if min(planes.shape[1:]) >= LEAST_SIDE else slice(None)
    return planes[:, cut, cut]


@dataclass(frozen=True)
class PositiveSums:
    """All sums of some pictures with weights of at least 0, and a constant.

    ``columns`` (pixels, parts) are the pictures less their means, of length 1; weights are found on every ``step``-th
    pixel. ``factor`` (parts, parts) is R of the QR decomposition of these: least squares on it are those on them.
    """

    columns: Floats
    step: int
    factor: Floats

    @classmethod
    def of(cls, parts: Sequence[Floats]) -> PositiveSums:
        """The sums of pictures of one shape."""
        columns = np.stack([np.ravel(part) - part.mean() for part in parts], axis=1)
        length = np.sqrt((columns**2).sum(axis=0))
        columns /= np.where(length > 0, length, 1.0)
        step = len(columns) // FITTED_PIXELS | 1  # odd: no period of rows
        some = columns[::step]
        return cls(columns, step, np.linalg.cholesky(some.T @ some + _EXACT**2 * np.eye(len(parts))).T)

    def nearest(self, picture: Floats) -> Floats:
        """The sum, or the negative of one, that is closest to the picture (least squares)."""
        found = (sign * self._nearest(sign * picture) for sign in (1, -1))
        return min(found, key=lambda each: _rest(picture, each))

    def _nearest(self, picture: Floats) -> Floats:
        from scipy.optimize import nnls

        centred = (np.ravel(picture) - picture.mean())[:: self.step]
        weights, _ = nnls(self.factor, np.linalg.solve(self.factor.T, self.columns[:: self.step].T @ centred))
        return np.asarray((self.columns @ weights).reshape(picture.shape) + picture.mean())


def distance(output: Floats, answer: Floats, sums: PositiveSums) -> float:
    """What the sums leave unexplained of the output, as a share of what they leave unexplained of the answer.

    0 for a copy, about 1 for the answer itself; infinite where one of them is constant or the answer is a copy too.
    """
    of_answer, of_output = unexplained(answer, sums), unexplained(output, sums)
    return of_output / of_answer if of_answer > LEAST_REST and math.isfinite(of_output) else math.inf


def unexplained(picture: Floats, sums: PositiveSums) -> float:
    """Root of 1 - R² of the picture's fit by the sums; infinite for a constant picture."""
    spread = float(np.std(picture))
    if spread <= _EXACT * float(np.abs(picture).max()):
        return math.inf
    return _rest(picture, sums.nearest(picture)) / spread


def _rest(picture: Floats, explained: Floats) -> float:
    return float(np.sqrt(np.mean((picture - explained) ** 2)))


def fit(picture: Floats, form: Floats) -> Floats:
    """The form, scaled and shifted to be closest to the picture (least squares)."""
    centred, spread = form - form.mean(), float(form.var())
    slope = float(np.mean(centred * (picture - picture.mean()))) / spread if spread > 0 else 0.0
    return np.asarray(slope * centred + picture.mean())


def smoothings(planes: Floats) -> list[Floats]:
    """Parts of which every smoothing of the planes (n, rows, columns) is a positive sum.

    The 25 pixels up to two rows and columns away, and wider passes of the binomial filter.
    """
    padded = np.pad(planes, [(0, 0), (2, 2), (2, 2)], mode="edge")
    rows, columns = planes.shape[1:]
    moved = [padded[:, i : i + rows, j : j + columns] for i in range(5) for j in range(5)]
    wide = smoothed(planes, 4)
    wider = smoothed(wide, 4)
    return [*moved, wide, wider, smoothed(wider, 8)]


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
