"""Enhancement's private side: references, data ranges, baseline bands, and the record of how inputs were made.

Bands are letters A, B, C, F for a run's mean quality, frozen when a task is staged (docs/specification.md, 10.2). The
letters are diagnostics and may carry the medals; they never change a score.
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from automedbench.base.errors import InfrastructureError, InvalidSubmission, MissingDataError
from automedbench.base.files import read_record
from automedbench.base.records import CaseEntry, Model, Number
from automedbench.base.untrusted.npy import parse_float_array
from automedbench.metrics.image_quality import WINDOW
from automedbench.tracks.enhancement.settings import BaselineQuality

BANDS = "baseline_bands.json"
Letter = Literal["A", "B", "C", "F"]
RATINGS: dict[Letter, int] = {"A": 3, "B": 2, "C": 1, "F": 0}
"""Letters as the numbers that metrics and medals use."""
# (letter, SSIM above the anchor, dB above the anchor), best first.
_STEPS: tuple[tuple[Letter, float, float], ...] = (("A", 0.02, 1.0), ("B", -0.02, -1.0), ("C", -0.05, -3.0))
PASS_BELOW_CLASSICAL = 0.02


class Band(Model):
    """Both minima must be reached."""

    ssim_min: Number
    psnr_min: Number


class BaselineBands(Model):
    """``private/baseline_bands.json``: simple methods' means over the staged cases, and the bands made from them."""

    schema_: Literal["automedbench/baseline-bands/1"] = Field("automedbench/baseline-bands/1", alias="schema")
    task: str
    source: Literal["published", "computed"]
    baselines: dict[str, BaselineQuality]
    recipes: dict[str, str] = Field(default_factory=dict, description="how a baseline was computed here")
    classical: str
    anchor: str
    bands: dict[Letter, Band]

    @property
    def pass_threshold(self) -> float:
        """SSIM from which a case passes."""
        return round(self.baselines[self.classical].mean_ssim - PASS_BELOW_CLASSICAL, 4)


def make_bands(
    task: str,
    baselines: dict[str, BaselineQuality],
    *,
    classical: str,
    source: Literal["published", "computed"],
    recipes: dict[str, str] | None = None,
) -> BaselineBands:
    """Bands around the anchor: the better by mean SSIM of the classical and, if given, the ``neural`` one."""
    anchor = classical
    if "neural" in baselines and baselines["neural"].mean_ssim >= baselines[classical].mean_ssim:
        anchor = "neural"
    best = baselines[anchor]

    def reachable(step: float) -> float:
        """A minimum that no image could reach lies half way between anchor and 1 instead."""
        return best.mean_ssim + step if best.mean_ssim + step < 1 else (1 + best.mean_ssim) / 2

    bands = {
        letter: Band(ssim_min=round(reachable(ssim_step), 4), psnr_min=round(best.mean_psnr + psnr_step, 3))
        for letter, ssim_step, psnr_step in _STEPS
    }
    return BaselineBands(
        task=task,
        source=source,
        baselines=baselines,
        recipes=recipes or {},
        classical=classical,
        anchor=anchor,
        bands=bands,
    )


def rate(bands: BaselineBands, mean_ssim: float | None, mean_psnr: float | None, *, all_valid: bool) -> Letter:
    """The first letter whose minima are both reached; F for undefined means and for any case missing or invalid."""
    if not all_valid or mean_ssim is None or mean_psnr is None:
        return "F"
    if not (math.isfinite(mean_ssim) and math.isfinite(mean_psnr)):
        return "F"
    for letter, band in bands.bands.items():
        if mean_ssim >= band.ssim_min and mean_psnr >= band.psnr_min:
            return letter
    return "F"


REFERENCE = "reference.npy"
RANGES = "ground_truth.csv"
Image = NDArray[np.float32]


def output_shape(case: CaseEntry) -> tuple[int, int]:
    """Height and width that a case's output must have, from the manifest."""
    height, width = case.geometry["output_shape"]
    return int(height), int(width)


def read_reference(private: Path, case: CaseEntry) -> Image:
    """The reference of one case; raises InfrastructureError when it is absent, damaged or of another shape."""
    path = private / case.id / REFERENCE
    try:
        return parse_float_array(path.read_bytes(), output_shape(case)).values
    except FileNotFoundError as error:
        raise MissingDataError(f"{path} does not exist; stage the task again.") from error
    except InvalidSubmission as error:
        raise InfrastructureError(f"{path} {error}; stage the task again.") from error


def usable_reference(image: Image) -> str | None:
    """Reason that an image cannot serve as a reference, or None."""
    if image.dtype != np.float32 or image.ndim != 2:
        return f"is {image.ndim}-D {image.dtype}, not 2-D float32"
    if min(image.shape) < WINDOW:
        return f"has {image.shape[0]}×{image.shape[1]} pixels, less than SSIM's window of {WINDOW}"
    if not np.isfinite(image).all():
        return "holds values that are not finite"
    if image.max() == image.min():
        return "is constant"
    return None


class Ranges:
    """Data range of every case: the table's number, else maximum − minimum of the reference."""

    def __init__(self, private: Path) -> None:
        """Reads ``ground_truth.csv`` once; it may be absent."""
        try:
            text = (private / RANGES).read_text("utf-8")
        except FileNotFoundError:
            text = ""
        rows = csv.DictReader(io.StringIO(text))
        self._stated = {row.get("patient_id"): _positive(row.get("data_range")) for row in rows}

    def of(self, case: str, reference: Image) -> float:
        """The range of one case; raises InfrastructureError when neither source gives a positive one."""
        stated = self._stated.get(case)
        measured = float(reference.max()) - float(reference.min())
        if stated is None and measured <= 0:
            raise InfrastructureError(f"{case}: the reference is constant and no data range is stated; stage it again.")
        return measured if stated is None else stated


def read_bands(private: Path) -> BaselineBands:
    """The bands that were frozen when the task was staged."""
    return read_record(private / BANDS, BaselineBands)


def _positive(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
