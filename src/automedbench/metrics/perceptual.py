"""LPIPS (Zhang et al. 2018), net ``alex``, version 0.1, from weights on disk; PyTorch is imported when it is used.

Nothing is downloaded. The folder holds two files: the AlexNet trunk as torchvision publishes it and the linear heads
as they lie in the ``lpips`` wheel (``lpips/weights/v0.1/alex.pth``). Both are read as plain tensors.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TRUNK = "alexnet-owt-7be5be79.pth"
HEADS = "alex.pth"
HOW_TO_GET = (
    f"put {TRUNK} (AlexNet as torchvision publishes it) and {HEADS} (from weights/v0.1 of the lpips wheel) "
    "into one folder"
)
# Layers of torchvision's AlexNet whose rectified output is compared: (number, stride, padding, pool before it).
_LAYERS = ((0, 4, 2, False), (3, 1, 2, True), (6, 1, 1, True), (8, 1, 1, False), (10, 1, 1, False))
# Per-channel shift and scale of the paper's code for inputs in [-1, 1].
_SHIFT, _SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
_EPSILON = 1e-10
MIN_SIDE = 64
"""A shorter image would vanish in AlexNet's strides and pools."""


def lpips_problems(folder: Path | None) -> list[str]:
    """Problems that prevent LPIPS here: missing package or weights; empty when it can be computed."""
    problems = []
    if importlib.util.find_spec("torch") is None:
        problems.append("LPIPS: PyTorch is not installed where scores are computed")
    if folder is None:
        problems.append(f"LPIPS: no weights are configured; {HOW_TO_GET} and name it as resource 'lpips'")
        return problems
    missing = [name for name in (TRUNK, HEADS) if not (folder / name).is_file()]
    if missing:
        problems.append(f"LPIPS: {folder} lacks {' and '.join(missing)}; {HOW_TO_GET}")
    return problems


class Lpips:
    """Perceptual distance of two grey images; lower is better, 0 for equal ones."""

    def __init__(self, trunk: Mapping[str, Any], heads: Mapping[str, Any]) -> None:
        """``trunk`` and ``heads`` map names to tensors, as in the two files."""
        self._trunk = [
            (trunk[f"features.{n}.weight"].float(), trunk[f"features.{n}.bias"].float()) for n, *_ in _LAYERS
        ]
        self._heads = [heads[f"lin{number}.model.1.weight"].float().reshape(-1) for number in range(len(_LAYERS))]

    @classmethod
    def load(cls, folder: Path) -> Lpips:
        """Read both files of the folder; raises ValueError naming a file that is not what it should be."""
        import torch

        tensors = []
        for name in (TRUNK, HEADS):
            try:
                tensors.append(torch.load(folder / name, map_location="cpu", weights_only=True))
            # PyTorch's reader of plain tensors fails in many ways on a file that is something else.
            except Exception as error:
                raise ValueError(f"{folder / name} does not hold readable weights: {error}") from error
        try:
            return cls(*tensors)
        except (KeyError, AttributeError, TypeError) as error:
            raise ValueError(f"the files of {folder} are not AlexNet and LPIPS 0.1 weights: {error!r}") from error

    def __call__(self, prediction: NDArray[np.floating], reference: NDArray[np.floating]) -> float:
        """Distance of two images of shape (height, width); each is scaled to [−1, 1] by its own extremes.

        Raises ValueError for a side below 64 pixels.
        """
        import torch

        if min(prediction.shape) < MIN_SIDE:
            raise ValueError(f"images of {prediction.shape} are smaller than {MIN_SIDE} pixels")
        with torch.inference_mode():
            pair = torch.from_numpy(np.stack([_scaled(prediction), _scaled(reference)]))
            distance = sum(
                self._head_distance(features, head)
                for features, head in zip(self._features(pair), self._heads, strict=True)
            )
        return float(distance)

    def _features(self, pair: Any) -> list[Any]:
        """Rectified outputs of the five layers for both images, from (2, height, width)."""
        from torch.nn import functional

        shift = pair.new_tensor(_SHIFT).view(1, 3, 1, 1)
        scale = pair.new_tensor(_SCALE).view(1, 3, 1, 1)
        signal = (pair.unsqueeze(1).expand(-1, 3, -1, -1) - shift) / scale
        found = []
        for (weight, bias), (_, stride, padding, pool) in zip(self._trunk, _LAYERS, strict=True):
            if pool:
                signal = functional.max_pool2d(signal, kernel_size=3, stride=2)
            signal = functional.relu(functional.conv2d(signal, weight, bias, stride=stride, padding=padding))
            found.append(signal)
        return found

    @staticmethod
    def _head_distance(features: Any, head: Any) -> Any:
        """Weighted squared difference of the unit-length feature vectors, averaged over places."""
        unit = features / (features.norm(dim=1, keepdim=True) + _EPSILON)
        return ((unit[0] - unit[1]) ** 2 * head.view(-1, 1, 1)).sum(dim=0).mean()


def _scaled(image: NDArray[np.floating]) -> NDArray[np.float32]:
    """The image between −1 and 1; a constant one is 0 everywhere."""
    low, high = float(image.min()), float(image.max())
    if high <= low:
        return np.zeros(image.shape, np.float32)
    return np.asarray((image.astype(np.float64) - low) / (high - low) * 2 - 1, dtype=np.float32)
