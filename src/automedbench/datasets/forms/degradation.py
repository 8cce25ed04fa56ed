"""Degradations: what the input of a super-resolution, enhancement or synthesis task lost, and by which recipe.

A card's ``staging.degradation`` names the ``kind`` and its parameters. Along z: a linear resize to a fraction of the
slices and back to all of them, both with half-pixel centres and without a blur before, as a frozen definition: other
phases give inputs of another quality. In-plane nothing changes, and the result lies on the grid of the original. Of
2-D images the same image and generator give the same bytes; everything that was applied is returned for the record.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import sha256_bytes
from automedbench.base.records import Model
from automedbench.base.yamlfile import validate

Volume = NDArray[np.float32]


class ZLinear(Model):
    """``staging.degradation`` of a card: fewer slices by ``factor``, then interpolated back."""

    kind: Literal["z_linear"]
    description: str = ""
    factor: int = Field(4, ge=2, le=16)


def degrade_z(volume: NDArray[Any], factor: int) -> Volume:
    """The volume (x, y, z) as if it had been scanned with 1/``factor`` of its slices, on its own grid, in float32.

    ``max(1, round(D / factor))`` slices are made of D (ties to even), then D again.
    """
    n_slices = volume.shape[2]
    low = resize_z(np.asarray(volume, dtype=np.float32), max(1, round(n_slices / factor)))
    return resize_z(low, n_slices)


def resize_z(volume: Volume, n_slices: int) -> Volume:
    """Linear interpolation along the third axis; slice k lies at (k + ½)·D/n − ½, kept within the first and the last.

    One slice at a time, so that little more than the result is held in memory.
    """
    depth = volume.shape[2]
    result = np.empty((*volume.shape[:2], n_slices), dtype=np.float32, order="F")
    for target in range(n_slices):
        position = min(max((target + 0.5) * depth / n_slices - 0.5, 0.0), depth - 1.0)
        below = int(position)
        above = min(below + 1, depth - 1)
        first = volume[:, :, below]
        result[:, :, target] = first + (volume[:, :, above] - first) * np.float32(position - below)
    return result


Image = NDArray[np.floating]


class Downsample(Model):
    """Bicubic reduction of both axes (Keys 1981, a = −½, widened by the scale against aliasing)."""

    kind: Literal["downsample"]
    description: str = ""
    scale: int = Field(2, ge=2, le=8)
    clip: tuple[float, float] | None = Field(None, description="range that overshoots are cut to")


class GaussianNoise(Model):
    """Independent normal noise on every pixel."""

    kind: Literal["gaussian_noise"]
    description: str = ""
    sigma: float = Field(gt=0, description="standard deviation in the unit of the image")
    clip: tuple[float, float] | None = Field(None, description="range that values are cut to afterwards")


class UpstreamDegradation(Model):
    """The data set's own degraded image of the same slice: the reader finds it, nothing is made here."""

    kind: Literal["upstream"]
    description: str = ""


Degradation = Downsample | GaussianNoise | UpstreamDegradation


class _Staging(Model):
    degradation: Degradation = Field(discriminator="kind")


def parse_degradation(value: dict[str, Any] | None, card: str) -> Degradation:
    """A card's ``staging.degradation``, validated; raises ConfigError with every problem."""
    return validate({"degradation": value}, _Staging, card, "staging").degradation


def generator(task: str, case: str, seed: int) -> np.random.Generator:
    """The generator of one case: PCG64 seeded from SHA-256 of ``task|case|seed``."""
    return np.random.Generator(np.random.PCG64(int(sha256_bytes(f"{task}|{case}|{seed}".encode()), 16)))


def degrade(image: Image, degradation: Degradation, random: np.random.Generator) -> NDArray[np.float32]:
    """The input that an agent gets, from a reference of shape (height, width).

    Raises InfrastructureError when the sides cannot be divided by the scale, ValueError for what only a reader has.
    """
    match degradation:
        case Downsample():
            return _clipped(_reduced(image, degradation.scale), degradation.clip)
        case GaussianNoise():
            return _clipped(image + random.normal(0, degradation.sigma, image.shape), degradation.clip)
        case UpstreamDegradation():
            raise ValueError("the degraded image is the data set's")


def bicubic(image: Image, shape: tuple[int, int]) -> NDArray[np.float64]:
    """The image resampled to (height, width) by Pillow's bicubic filter in single precision.

    Keys' kernel with a = −½ on pixel centres; when it shrinks, the kernel is widened by the scale (no aliasing).
    """
    from PIL import Image as Pillow

    picture = Pillow.fromarray(np.ascontiguousarray(image, dtype=np.float32))
    return np.asarray(picture.resize((shape[1], shape[0]), Pillow.Resampling.BICUBIC), dtype=np.float64)


def _reduced(image: Image, scale: int) -> NDArray[np.float64]:
    height, width = image.shape
    if height % scale or width % scale:
        raise InfrastructureError(
            f"An image of {height}×{width} pixels cannot be reduced by {scale}.\n"
            "Set staging.options.size of the card to a multiple."
        )
    return bicubic(image, (height // scale, width // scale))


def _clipped(image: Image, limits: tuple[float, float] | None) -> NDArray[np.float32]:
    return np.asarray(image if limits is None else np.clip(image, *limits), dtype=np.float32)
