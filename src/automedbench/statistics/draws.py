"""Random numbers: explicit seeds, the same for every table of the same shape, drawn once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench.statistics.samples import Floats


def generator(seed: int, *purpose: int) -> np.random.Generator:
    """Independent streams for different purposes of one seed."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *purpose])))


def _shared(draws: NDArray[Any]) -> NDArray[Any]:
    """Read-only: all callers get the same."""
    draws.setflags(write=False)
    return draws


@lru_cache(maxsize=32)
def bounded_weights(n: int, resamples: int, seed: int) -> tuple[Floats, Floats]:
    """Weights of n runs, (resamples, n), and of a run that is added in every second resample, (resamples,).

    All from one Dirichlet distribution with parameters 1 (Rubin 1981).
    """
    random = generator(seed, 1, n)
    runs, added = random.standard_exponential((resamples, n)), random.standard_exponential(resamples)
    added[::2] = 0.0
    total = runs.sum(axis=1) + added
    return _shared(runs / total[:, None]), _shared(added / total)


@lru_cache(maxsize=512)
def student_draws(degrees: float, resamples: int, seed: int) -> Floats:
    """Values of Student's t in random order, (resamples,): its quantiles at equal steps."""
    from scipy.special import stdtrit

    steps = (np.arange(resamples) + 0.5) / resamples
    return _shared(generator(seed, 2).permutation(stdtrit(degrees, steps)))


@lru_cache(maxsize=64)
def normal_draws(columns: int, resamples: int, seed: int, stream: int) -> Floats:
    """Standard normal values, (resamples, columns)."""
    return _shared(generator(seed, 3, stream).standard_normal((resamples, columns)))


@lru_cache(maxsize=64)
def chi_square_draws(degrees: tuple[int, ...], resamples: int, seed: int, stream: int) -> Floats:
    """Estimated over true variance for each of ``degrees``, (resamples, cells)."""
    return _shared(generator(seed, 5, stream).chisquare(degrees, (resamples, len(degrees))) / degrees)


@lru_cache(maxsize=64)
def random_signs(n: int, resamples: int, seed: int) -> Floats:
    """+1 and -1 at random, (resamples, n)."""
    return _shared(generator(seed, 4).integers(0, 2, (resamples, n)).astype(float) * 2 - 1)


@lru_cache(maxsize=4096)
def student_quantile(probability: float, degrees: float) -> float:
    """Quantile of Student's t; of the normal distribution for infinite degrees of freedom."""
    from scipy.special import ndtri, stdtrit

    return float(ndtri(probability) if np.isinf(degrees) else stdtrit(degrees, probability))
