"""What readers of 2-D grey images return: one record per image, its pixels read only when it is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SourceSlice:
    """An image or slice upstream; ``pixels()`` reads it as float32 (height, width) in the unit of the task.

    ``subject`` is the patient it shows; two slices of one patient are never staged together.
    """

    id: str
    subject: str
    path: Path
    pixels: Callable[[], NDArray[np.float32]]
