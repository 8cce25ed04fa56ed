"""SSIM of two CT volumes, plane by plane (the synthesis score) and with cubic windows: ours beside scikit-image, MONAI.

    python benchmarks/bench_structural_similarity.py [--scale 1] [--rounds 3]

A pair of 256 × 256 × 160 int16 with a scanner's noise, from memory and from two .nii.gz files. ``--scale`` shrinks the
sides. Values are clipped to the HU window of the synthesis cards, whose width is the data range.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from peers import has_monai, keep_values, load
from side_by_side import measure, table
from synthetic_volumes import Volume, ct_pair, save

from automedbench.base.untrusted.nifti import open_trusted, open_volume
from automedbench.metrics.structural_similarity import PlaneSsim, VolumeSsim

WINDOW = (-1024.0, 3071.0)
DATA_RANGE = WINDOW[1] - WINDOW[0]
MAX_BYTES = 2**30
SLOW_S = 5.0  # candidates that take longer are measured once
# How far apart values may be: rounding, single precision, and MONAI's population variances (N for N − 1, N = 343).
EXACT, SINGLE, POPULATION = 1e-12, 1e-5, 1e-3
Pair = tuple[Volume, Volume]  # prediction, reference
Similarity = Callable[[], float]


@dataclass(frozen=True)
class Source:
    """Where volumes come from: slice by slice for us, whole (by ``reader``) for the others."""

    name: str
    reader: str
    slices: Callable[[], Iterator[Pair]]
    volumes: Callable[[], Pair]


# --- candidates ---------------------------------------------------------------------------------------------------


def planes(pair: Pair) -> Iterator[Pair]:
    """Pairs of slices along z."""
    return ((pair[0][:, :, z], pair[1][:, :, z]) for z in range(pair[0].shape[2]))


def streamed(paths: tuple[Path, Path]) -> Iterator[Pair]:
    """The same from files, of which only slices are ever held."""
    with open_volume(paths[0], max_bytes=MAX_BYTES) as prediction, open_trusted(paths[1]) as reference:
        yield from zip(prediction.slices(), reference.slices(), strict=True)


def our_planes(pairs: Callable[[], Iterator[Pair]]) -> float:
    """Mean over slices of the 2-D SSIM."""
    similarity: PlaneSsim | None = None
    values = []
    for prediction, reference in pairs():
        similarity = similarity or PlaneSsim(prediction.shape[:2], data_range=DATA_RANGE, clip=WINDOW)
        values.append(similarity.compare(prediction, reference).mean)
    return float(np.mean(values))


def our_volume(pairs: Callable[[], Iterator[Pair]]) -> float:
    """3-D SSIM, seven slices at a time."""
    similarity: VolumeSsim | None = None
    for prediction, reference in pairs():
        similarity = similarity or VolumeSsim(prediction.shape[:2], data_range=DATA_RANGE, clip=WINDOW)
        similarity.add(prediction, reference)
    assert similarity is not None
    return similarity.mean()


def skimage_planes(volumes: Callable[[], Pair], dtype: Any) -> float:
    """scikit-image, one call per slice."""
    from skimage.metrics import structural_similarity

    pairs = ([np.clip(each.astype(dtype), *WINDOW) for each in pair] for pair in planes(volumes()))
    return float(np.mean([structural_similarity(*pair, data_range=DATA_RANGE) for pair in pairs]))


def skimage_volume(volumes: Callable[[], Pair], dtype: Any) -> float:
    """scikit-image, one call for all."""
    from skimage.metrics import structural_similarity

    pair = [np.clip(each.astype(dtype), *WINDOW) for each in volumes()]
    return float(structural_similarity(*pair, data_range=DATA_RANGE))


def monai_volume(volumes: Callable[[], Pair]) -> float:
    """MONAI: population variances and single precision, so another value in the fifth digit."""
    import torch
    from monai.metrics import SSIMMetric

    pair = [torch.from_numpy(np.clip(each.astype(np.float32), *WINDOW))[None, None] for each in volumes()]
    similarity = SSIMMetric(spatial_dims=3, data_range=DATA_RANGE, kernel_type="uniform", win_size=7)
    return float(similarity(*pair).mean())


def read(paths: tuple[Path, Path]) -> Pair:
    """Both volumes by nibabel, as stored."""
    import nibabel

    open_file: Any = nibabel.load
    prediction, reference = (np.asarray(open_file(path).dataobj) for path in paths)
    return prediction, reference


# --- tables -------------------------------------------------------------------------------------------------------


def compare(title: str, candidates: dict[str, Similarity], tolerances: list[float], rounds: int) -> None:
    """Print one table; raises SystemExit when a library's value differs by more than its tolerance."""
    timed, values = keep_values(candidates)
    measured = measure(timed, rounds, once_above_s=SLOW_S)
    (_, ours), *others = values.items()
    for (name, value), tolerance in zip(others, tolerances, strict=True):
        if not abs(value - ours) <= tolerance:
            raise SystemExit(f"{title}: {name} gives {value!r}, we {ours!r}: more than {tolerance:.0e} apart")
    shown = ", ".join(f"{abs(value - ours):.0e}" for _, value in others)
    print(f"**{title}** (SSIM {ours:.6f}; differences of the others {shown})\n")
    print(table(measured), end="\n\n")


def compare_source(source: Source, rounds: int) -> None:
    """Both definitions for volumes from one place."""
    peer = f"{source.reader}scikit-image {version('scikit-image')}"
    compare(
        f"Plane by plane, {source.name}",
        {
            "automedbench": partial(our_planes, source.slices),
            peer: partial(skimage_planes, source.volumes, np.float64),
            f"{peer}, float32": partial(skimage_planes, source.volumes, np.float32),
        },
        [EXACT, SINGLE],
        rounds,
    )
    cubic: dict[str, Similarity] = {
        "automedbench": partial(our_volume, source.slices),
        peer: partial(skimage_volume, source.volumes, np.float64),
        f"{peer}, float32": partial(skimage_volume, source.volumes, np.float32),
    }
    tolerances = [EXACT, SINGLE]
    if has_monai() and not source.reader:
        cubic[f"MONAI {version('monai')}"] = partial(monai_volume, source.volumes)
        tolerances.append(POPULATION)
    compare(f"Cubic windows, {source.name}", cubic, tolerances, rounds)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    load("nibabel", "skimage.metrics")
    reference, prediction = ct_pair(options.scale)
    pair = (prediction, reference)
    print(f"A pair of {' × '.join(map(str, reference.shape))} int16, windows of 7, R = {DATA_RANGE:g}.\n")
    with tempfile.TemporaryDirectory(prefix="bench-ssim-") as name:
        paths = (Path(name) / "prediction.nii.gz", Path(name) / "reference.nii.gz")
        for volume, path in zip(pair, paths, strict=True):
            save(volume, path)
        size = sum(path.stat().st_size for path in paths) / 1e6
        for source in (
            Source("in memory", "", partial(planes, pair), lambda: pair),
            Source(f"two files of {size:.0f} MB together", "nibabel, ", partial(streamed, paths), partial(read, paths)),
        ):
            compare_source(source, options.rounds)
    if not has_monai():
        print("MONAI is not installed.\n")


if __name__ == "__main__":
    main()
