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


@lru_cache(maxsize=32)
def repeat_weights(n: int, resamples: int, seed: int, stream: int) -> Floats:
    """Deviations from 1/n of Bayesian bootstrap weights (Rubin 1981), (resamples, n).

    Rescaled so that the variance of a resampled mean is the unbiased estimate s²/n.
    """
    draws = generator(seed, 3, stream).standard_exponential((resamples, n))
    return _shared((draws / draws.sum(axis=1, keepdims=True) - 1 / n) * float(np.sqrt((n + 1) / (n - 1))))


@lru_cache(maxsize=4)
def case_multipliers(n: int, resamples: int, seed: int, stream: int) -> NDArray[np.float32]:
    """Normal multipliers of cases (wild bootstrap), (resamples, n); in single precision, because cases are many."""
    return _shared(generator(seed, 6, stream, n).standard_normal((resamples, n), dtype=np.float32))


@lru_cache(maxsize=64)
def random_signs(n: int, resamples: int, seed: int) -> Floats:
    """+1 and -1 at random, (resamples, n)."""
    return _shared(generator(seed, 4).integers(0, 2, (resamples, n)).astype(float) * 2 - 1)


@lru_cache(maxsize=32)
def random_groups(n: int, chosen: int, resamples: int, seed: int, stream: int) -> Floats:
    """1 for ``chosen`` of n runs at random, 0 for the others, (resamples, n)."""
    order = generator(seed, 5, stream).random((resamples, n)).argsort(axis=1)
    return _shared((order < chosen).astype(float))


def student_quantile(probability: float, degrees: float) -> float:
    """Quantile of Student's t; of the normal distribution for infinite degrees of freedom."""
    from scipy.special import ndtri, stdtrit

    return float(ndtri(probability) if np.isinf(degrees) else stdtrit(degrees, probability))
