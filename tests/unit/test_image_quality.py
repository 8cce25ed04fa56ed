"""PSNR, SSIM and LPIPS: by hand where a value can be worked out, else by an independent computation."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from automedbench.metrics.image_quality import psnr, ssim
from automedbench.metrics.perceptual import HEADS, TRUNK, Lpips, lpips_problems
from automedbench.metrics.structural_similarity import windowed_ssim
from automedbench.tracks.enhancement.score import gaussian_weights

METRICS: list[Callable[..., float]] = [psnr, ssim]


def noise(seed: int, shape: tuple[int, int] = (40, 33)) -> np.ndarray:
    return np.random.default_rng(seed).random(shape)


# --- PSNR -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("difference", "data_range", "expected"),
    [
        pytest.param(0.0, 1.0, 99.0, id="equal: the cap"),
        pytest.param(1e-7, 1.0, 99.0, id="mean square 1e-14 counts as equal"),
        pytest.param(1e-5, 1.0, 99.0, id="100 dB are cut to 99"),
        pytest.param(0.1, 1.0, 20.0, id="a tenth of the range: 20 dB"),
        pytest.param(-0.1, 1.0, 20.0, id="in either direction"),
        pytest.param(10.0, 1.0, -20.0, id="ten times the range: -20 dB"),
        pytest.param(10.0, 200.0, 20 * math.log10(20), id="a twentieth of 200 HU"),
    ],
)
def test_psnr_by_hand(difference: float, data_range: float, expected: float) -> None:
    """10·log10(range² / difference²) = 20·log10(range / |difference|) for a constant difference."""
    reference = noise(1)
    assert psnr(reference + difference, reference, data_range=data_range) == pytest.approx(expected, abs=1e-9)


def test_psnr_agrees_with_scikit_image() -> None:
    from skimage.metrics import peak_signal_noise_ratio

    first, second = noise(1), noise(2)
    expected = peak_signal_noise_ratio(second, first, data_range=0.7)
    assert psnr(first, second, data_range=0.7) == pytest.approx(expected, abs=1e-9)


# --- SSIM -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "data_range"),
    [
        pytest.param(0.5, 0.25, 1.0, id="half against a quarter"),
        pytest.param(0.0, 1.0, 1.0, id="black against white"),
        pytest.param(-1000.0, 1000.0, 2000.0, id="air against bone: negative"),
        pytest.param(7.0, 7.0, 1.0, id="equal constants"),
    ],
)
def test_ssim_of_constants_by_hand(first: float, second: float, data_range: float) -> None:
    """Without variance only the luminance term is left: (2ab + C1) / (a² + b² + C1), C1 = (0.01·range)²."""
    c1 = (0.01 * data_range) ** 2
    expected = (2 * first * second + c1) / (first**2 + second**2 + c1)
    images = np.full((20, 20), first), np.full((20, 20), second)
    assert ssim(*images, data_range=data_range) == pytest.approx(expected, abs=1e-9)
    assert windowed_ssim(*images, data_range=data_range, weights=gaussian_weights()) == pytest.approx(
        expected, abs=1e-9
    )


def test_ssim_of_a_negative_is_negative() -> None:
    """Noise around 0.5 mirrored at 0.5: means equal, covariance reversed."""
    image = 0.5 + 0.2 * (noise(3) - 0.5)
    assert ssim(1 - image, image, data_range=1.0) < -0.1


def test_ssim_is_one_for_equal_images_and_symmetric() -> None:
    first, second = noise(1), noise(2)
    assert ssim(first, first, data_range=1.0) == pytest.approx(1.0, abs=1e-12)
    assert ssim(first, second, data_range=1.0) == pytest.approx(ssim(second, first, data_range=1.0), abs=1e-12)


def by_scipy(first: np.ndarray, second: np.ndarray, data_range: float) -> float:
    """The formula with SciPy's gaussian filter, which reflects at the edge, and the border of 5 pixels left out."""
    from scipy.ndimage import gaussian_filter

    def mean(image: np.ndarray) -> np.ndarray:
        return gaussian_filter(image, 1.5, truncate=3.5)

    x, y = mean(first), mean(second)
    xx, yy, xy = (mean(a * b) - mean(a) * mean(b) for a, b in ((first, first), (second, second), (first, second)))
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    index = (2 * x * y + c1) * (2 * xy + c2) / ((x**2 + y**2 + c1) * (xx + yy + c2))
    return float(index[5:-5, 5:-5].mean())


@pytest.mark.parametrize("shape", [(11, 11), (11, 40), (64, 48)], ids=["one window", "one row of windows", "many"])
@pytest.mark.parametrize("data_range", [1.0, 0.3, 2.0])
def test_three_ways_to_the_same_ssim(shape: tuple[int, int], data_range: float) -> None:
    """scikit-image, whole windows with NumPy, SciPy's filter."""
    reference = noise(5, shape)
    prediction = 0.8 * reference + 0.1 * noise(6, shape)
    expected = by_scipy(prediction, reference, data_range)
    assert ssim(prediction, reference, data_range=data_range) == pytest.approx(expected, abs=1e-12)
    assert windowed_ssim(prediction, reference, data_range=data_range, weights=gaussian_weights()) == pytest.approx(
        expected, abs=1e-12
    )


def test_single_precision_differs_by_less_than_the_stated_tolerance() -> None:
    """What the public implementation does (everything in float32), on values of a CT."""
    from skimage.metrics import structural_similarity

    reference = (3000 * noise(7, (96, 96)) - 1024).astype(np.float32)
    prediction = (reference + 100 * noise(8, (96, 96))).astype(np.float32)
    single = structural_similarity(
        reference, prediction, data_range=3000, gaussian_weights=True, sigma=1.5, use_sample_covariance=False
    )
    assert ssim(prediction, reference, data_range=3000) == pytest.approx(float(single), abs=1e-5)


def test_integers_are_not_wrapped() -> None:
    """Bytes 250 and 5 differ by 245, not by 11."""
    images = np.full((12, 12), 5, np.uint8), np.full((12, 12), 250, np.uint8)
    assert psnr(*images, data_range=255) == pytest.approx(20 * math.log10(255 / 245), abs=1e-9)


@pytest.mark.parametrize("metric", METRICS, ids=["psnr", "ssim"])
@pytest.mark.parametrize(
    ("prediction", "reference", "data_range", "message"),
    [
        pytest.param(noise(1)[:1], noise(1), 1.0, "the same shape", id="would be broadcast"),
        pytest.param(noise(1)[None], noise(1)[None], 1.0, "2-D", id="3-D"),
        pytest.param(noise(1) * np.nan, noise(1), 1.0, "finite", id="NaN"),
        pytest.param(noise(1), noise(1) + np.inf, 1.0, "finite", id="infinite reference"),
        pytest.param(noise(1), noise(1), 0.0, "data_range", id="range 0"),
        pytest.param(noise(1), noise(1), -1.0, "data_range", id="negative range"),
        pytest.param(noise(1), noise(1), math.nan, "data_range", id="range NaN"),
    ],
)
def test_refusals(
    metric: Callable[..., float], prediction: np.ndarray, reference: np.ndarray, data_range: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        metric(prediction, reference, data_range=data_range)


def test_ssim_needs_a_window() -> None:
    with pytest.raises(ValueError, match="11-pixel window"):
        ssim(noise(1, (10, 50)), noise(2, (10, 50)), data_range=1.0)


# --- LPIPS ----------------------------------------------------------------------------------------------------

CHANNELS = (64, 192, 384, 256, 256)
KERNELS = (11, 5, 3, 3, 3)
NUMBERS = (0, 3, 6, 8, 10)


@pytest.fixture(scope="module")
def weights() -> tuple[dict[str, Any], dict[str, Any]]:
    """Random AlexNet weights and positive heads under the names of the real files."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    trunk: dict[str, Any] = {}
    for number, before, after, kernel in zip(NUMBERS, (3, *CHANNELS), CHANNELS, KERNELS, strict=False):
        trunk[f"features.{number}.weight"] = torch.randn(after, before, kernel, kernel) / (before * kernel**2) ** 0.5
        trunk[f"features.{number}.bias"] = torch.randn(after) / 10
    heads = {f"lin{i}.model.1.weight": torch.rand(1, width, 1, 1) for i, width in enumerate(CHANNELS)}
    return trunk, heads


def by_modules(trunk: dict[str, Any], heads: dict[str, Any], first: np.ndarray, second: np.ndarray) -> float:
    """LPIPS from the paper's description, with torch's modules laid out as AlexNet's ``features``."""
    import torch
    from torch import nn

    layers: list[nn.Module] = [
        *(nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU()),
    ]
    network = nn.Sequential(*layers)
    network.load_state_dict({name.removeprefix("features."): value for name, value in trunk.items()})
    outputs = []
    for image in (first, second):
        scaled = 2 * (image - image.min()) / np.ptp(image) - 1
        colours = [(scaled - s) / d for s, d in zip((-0.030, -0.088, -0.188), (0.458, 0.448, 0.450), strict=True)]
        signal = torch.tensor(np.stack(colours)[None], dtype=torch.float32)
        found = []
        for layer in network:
            signal = layer(signal)
            if isinstance(layer, nn.ReLU):
                found.append(signal[0].detach().numpy().astype(np.float64))
        outputs.append(found)
    total = 0.0
    for i, (a, b) in enumerate(zip(*outputs, strict=True)):
        a, b = a / (np.sqrt((a**2).sum(0)) + 1e-10), b / (np.sqrt((b**2).sum(0)) + 1e-10)
        head = heads[f"lin{i}.model.1.weight"].numpy().reshape(-1, 1, 1)
        total += float((head * (a - b) ** 2).sum(0).mean())
    return total


def test_lpips_agrees_with_the_description(weights: Any) -> None:
    first, second = noise(1, (96, 80)), noise(2, (96, 80))
    expected = by_modules(*weights, first, second)
    assert expected > 0.01
    assert Lpips(*weights)(first, second) == pytest.approx(expected, rel=1e-4)


def test_lpips_of_equal_images_is_zero(weights: Any) -> None:
    """Each image is scaled on its own, so that a change of brightness and contrast is invisible."""
    image = noise(1, (64, 64))
    assert Lpips(*weights)(image, image) == 0
    assert Lpips(*weights)(3 * image - 7, image) == pytest.approx(0, abs=1e-5)


def test_lpips_of_a_constant(weights: Any) -> None:
    """Nothing to scale: defined, and different from an image."""
    assert math.isfinite(Lpips(*weights)(np.ones((64, 64)), noise(1, (64, 64))))


def test_lpips_needs_room(weights: Any) -> None:
    with pytest.raises(ValueError, match="64 pixels"):
        Lpips(*weights)(noise(1), noise(2))


def test_lpips_from_files(weights: Any, tmp_path: Path) -> None:
    import torch

    assert any("no weights are configured" in problem for problem in lpips_problems(None))
    assert any(TRUNK in problem and HEADS in problem for problem in lpips_problems(tmp_path))
    for name, value in zip((TRUNK, HEADS), weights, strict=True):
        torch.save(value, tmp_path / name)
    assert lpips_problems(tmp_path) == []
    images = noise(1, (64, 64)), noise(2, (64, 64))
    assert Lpips.load(tmp_path)(*images) == Lpips(*weights)(*images)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04broken"], ids=["empty", "text", "zip"])
def test_lpips_refuses_other_files(weights: Any, tmp_path: Path, content: bytes) -> None:
    for name in (TRUNK, HEADS):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=TRUNK):
        Lpips.load(tmp_path)


def test_lpips_refuses_other_weights(weights: Any, tmp_path: Path) -> None:
    import torch

    for name in (TRUNK, HEADS):
        torch.save({"conv.weight": torch.zeros(1)}, tmp_path / name)
    with pytest.raises(ValueError, match="not AlexNet"):
        Lpips.load(tmp_path)


def test_lpips_without_pytorch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert any("PyTorch is not installed" in problem for problem in lpips_problems(tmp_path))
