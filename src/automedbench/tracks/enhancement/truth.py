"""Enhancement's private side: references, data ranges, bands, and the record of how inputs were made."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from automedbench.base.errors import InfrastructureError, InvalidSubmission, MissingDataError
from automedbench.base.files import read_record
from automedbench.base.records import CaseEntry, Model, Sha256
from automedbench.base.untrusted.npy import parse_float_array
from automedbench.metrics.image_quality import WINDOW
from automedbench.tracks.enhancement.bands import BANDS, BaselineBands

REFERENCE = "reference.npy"
RANGES = "ground_truth.csv"
SPLIT = "split.json"
Image = NDArray[np.float32]


class SplitCase(Model):
    """Where one case comes from and how its input was made."""

    image_id: str
    subject: str
    source_sha256: Sha256
    data_range: float


class SplitRecord(Model):
    """``private/split.json``: which upstream images became which cases, and what was done to them."""

    schema_: Literal["automedbench/enhancement-split/1"] = Field("automedbench/enhancement-split/1", alias="schema")
    split: str | None
    seed: int
    rule: str
    degradation: dict[str, Any]
    tools: dict[str, str] = Field(description="libraries that made the inputs, with versions")
    cases: dict[str, SplitCase]
    remarks: list[str] = Field(default_factory=list, description="upstream files that were passed over, and why")


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
    """Why an image cannot serve as a reference, or None."""
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


def ranges_table(ranges: dict[str, float]) -> str:
    """``ground_truth.csv``."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["patient_id", "data_range"])
    writer.writerows([case, repr(value)] for case, value in ranges.items())
    return table.getvalue()


def read_bands(private: Path) -> BaselineBands | None:
    """The frozen bands, None for a task that was staged without."""
    return read_record(private / BANDS, BaselineBands) if (private / BANDS).is_file() else None


def _positive(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
