"""plan.png as a judge is shown it: from the collected submission, decoded, made small, written anew.

Writing it anew leaves nothing of the file but its pixels: no texts, profiles or bytes after the end.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from automedbench.base.errors import InfrastructureError, InvalidSubmission
from automedbench.base.files import read_record, sha256_bytes
from automedbench.base.records import SubmissionRecord
from automedbench.base.untrusted import read_bounded

if TYPE_CHECKING:
    from PIL import Image

NAME = "plan/plan.png"
MAX_BYTES = 20_000_000
MAX_PIXELS = 40_000_000
SIDES = (1280, 960, 640, 320)
"""Longest side of what is sent; the next smaller one is taken when the picture is still too large."""
MAX_SENT_BYTES = 1_000_000
TOKENS = 3_000
"""Room that is kept for one picture; providers count some 800 to 2 500 tokens for one of 1 280 pixels."""


def collected_plot(submission: Path) -> bytes | None:
    """The bytes of plan.png in a collected submission (folder ``submission``, record ``submission.json`` beside it).

    None when none was collected. Raises InfrastructureError when the file is not the one that was collected.
    """
    record = read_record(submission.with_name("submission.json"), SubmissionRecord)
    entry = record.extra.get(NAME)
    if entry is None:
        return None
    try:
        data = read_bounded(submission / NAME, MAX_BYTES)
    except InvalidSubmission as error:
        raise InfrastructureError(f"{submission / NAME} {error}.\nCollect the submission again.") from error
    if data is None or sha256_bytes(data) != entry.sha256:
        raise InfrastructureError(
            f"{submission / NAME} is not what was collected: its digest differs.\nCollect the submission again."
        )
    return data


def small_picture(data: bytes | None) -> bytes | None:
    """The picture as a PNG of at most 1 280 pixels a side and about a megabyte; None when it does not decode."""
    image = None if data is None else _decoded(data)
    if image is None:
        return None
    sent = b""
    for side in SIDES:
        copy = image.copy()
        copy.thumbnail((side, side))
        stream = io.BytesIO()
        copy.save(stream, format="PNG", optimize=False)
        sent = stream.getvalue()
        if len(sent) <= MAX_SENT_BYTES:
            break
    return sent


def _decoded(data: bytes) -> Image.Image | None:
    """Pixels on white; None for what is no PNG, or a very large one."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
                if image.width * image.height > MAX_PIXELS:
                    return None
                pixels = image.convert("RGBA")
        white = Image.new("RGBA", pixels.size, "white")
        white.alpha_composite(pixels)
        return white.convert("RGB")
    except Exception:
        # Pillow raises a dozen types on broken files, and none of them is our fault.
        return None
