"""Enhancement's toy: five chest images of one size, to be restored from half their resolution."""

from __future__ import annotations

import io
import os
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from automedbench.base.cards import TaskCard, load_card
from automedbench.base.records import Manifest
from automedbench.tracks import ScoringInputs
from automedbench.tracks.common.cases import case_output
from toys import Hostile, copied, files, holding, no_files
from toys._bench import inputs, manifest_of

ROOT = Path(__file__).resolve().parents[2]
SIDE = 32
SHAPE = (SIDE, SIDE)
MAX_BYTES = 40_000
CEILING = 1.0
HALF: float | None = None
RESOURCES: dict[str, Path] = {}


def _card() -> TaskCard:
    """The chest X-ray card with 32×32 pixels instead of 256×256, and no more cases than there are."""
    value = load_card(ROOT / "config/tasks/enhancement/nih-cxr-sr-task.yaml").model_dump()
    value["staging"]["options"] |= {"size": list(SHAPE)}
    value["staging"]["sampling"] |= {"count": 4, "options": {}}
    value["metric"]["settings"] |= {"output_shape": list(SHAPE)}
    value["outputs"][0] |= {"max_bytes": MAX_BYTES}
    return TaskCard.model_validate(value)


CARD: TaskCard = _card()


def make_raw(raw: Path) -> None:
    """Six 8-bit PNG of 64×64 pixels in the upstream folder, two of them of one patient."""
    (raw / "images").mkdir(parents=True)
    for number in range(6):
        patient, follow_up = (number, 0) if number < 5 else (0, 1)
        down, across = np.mgrid[0:64, 0:64] / 64
        waves = np.sin((6 + number) * down + 2) * np.cos((9 - number) * across) + np.hypot(down - 0.4, across - 0.5)
        grey = 255 * (waves - waves.min()) / (waves.max() - waves.min())
        Image.fromarray(grey.astype(np.uint8)).save(raw / f"images/{patient + 1:08d}_{follow_up:03d}.png")


def perfect(
    manifest: Manifest, public: Path, private: Path, cases: list[str], card: TaskCard = CARD
) -> dict[str, bytes]:
    """The references themselves."""
    path = case_output(card, "npy").path
    return {path.replace("{case}", case): (private / case / "reference.npy").read_bytes() for case in cases}


# --- bad files: id, content, code -----------------------------------------------------------------------------


def npy(array: Any, **options: Any) -> bytes:
    """A file as ``numpy.save`` writes it."""
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def with_header(header: str | bytes, body: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    """A file with a header as it stands."""
    text = header.encode("latin1") if isinstance(header, str) else header
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + body


def described(descr: str = "'<f4'", order: str = "False", shape: str = f"({SIDE}, {SIDE})") -> str:
    """A header's text."""
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


def changed(value: float) -> bytes:
    """A right array but for one value."""
    array = np.full(SHAPE, 0.5, np.float32)
    array[3, 4] = value
    return npy(array)


def _zipped() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, enhanced=np.zeros((2000, 2000), np.float32))
    return buffer.getvalue()


class _Command:
    """Unpickled, it would run a command."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch unpickled",)


GOOD = np.full(SHAPE, 0.5, np.float32)
BODY = GOOD.tobytes()

LOST: list[tuple[str, bytes, str]] = [
    ("empty file", b"", "not_npy"),
    ("zero bytes", bytes(5000), "not_npy"),
    ("magic cut off", b"\x93NUM", "not_npy"),
    ("text", b"0.1 0.2 0.3\n" * 100, "not_npy"),
    ("a PNG", b"\x89PNG\r\n\x1a\n" + bytes(100), "not_npy"),
    ("a pickle that runs a command", pickle.dumps(_Command()), "not_npy"),
    ("a compressed bomb (npz)", _zipped(), "not_npy"),
    ("gzip cut off", b"\x1f\x8b\x08\x00" + bytes(20), "not_npy"),
    ("format 9.9", with_header(described(), BODY, (9, 9)), "npy_header"),
    ("format 3.0", with_header(described(), BODY, (3, 0)), "npy_header"),
    ("no header at all", b"\x93NUMPY\x01\x00", "npy_header"),
    ("header shorter than it says", b"\x93NUMPY\x01\x00\xff\xff{'descr'", "npy_header"),
    ("header of 4 GiB", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "npy_header"),
    ("header of 30 000 blanks", with_header(described() + " " * 30_000, b""), "npy_header"),
    ("header calls a function", with_header("__import__('os').system('touch called')"), "npy_header"),
    ("header is a list", with_header("[1, 2, 3]"), "npy_header"),
    ("header with an unknown key", with_header(described()[:-3] + "'x': 1}"), "npy_header"),
    ("header not latin text", with_header(b"\xff\xfe\x00{"), "npy_header"),
    ("header nested 4 000 deep", with_header("(" * 4_000 + ")" * 4_000), "npy_header"),
    ("header ends in a backslash escape", with_header("{'descr': '\\d', 'fortran_order': 0}"), "npy_header"),
    ("unknown type", with_header(described("'<q9'"), BODY), "npy_header"),
    ("shape is a text", with_header(described(shape="'32'"), BODY), "npy_header"),
    ("shape is a float", with_header(described(shape="(32.0, 32)"), BODY), "npy_header"),
    ("pickled objects", npy(np.array([[_Command()]], dtype=object), allow_pickle=True), "object_array"),
    ("objects inside a structure", with_header(described("[('a', '|O')]"), BODY), "object_array"),
    ("one number", npy(np.float32(1)), "wrong_ndim"),
    ("a vector", npy(GOOD.ravel()), "wrong_ndim"),
    ("3-D", npy(GOOD[None]), "wrong_ndim"),
    ("40 dimensions", with_header(described(shape="(" + "1, " * 40 + ")"), BODY), "wrong_ndim"),
    ("same shape as the input", npy(np.zeros((SIDE // 2, SIDE // 2), np.float32)), "wrong_shape"),
    ("one row that would be broadcast", npy(GOOD[:1]), "wrong_shape"),
    ("no values", npy(np.zeros((0, SIDE), np.float32)), "wrong_shape"),
    ("header claims 4 EB", with_header(described(shape="(1000000000, 1000000000)"), BODY), "wrong_shape"),
    ("a side of 400 digits", with_header(described(shape=f"({'9' * 400}, 32)"), BODY), "wrong_shape"),
    ("negative side", with_header(described(shape="(-32, -32)"), BODY), "wrong_shape"),
    ("integers", npy(GOOD.astype(np.int32)), "not_float"),
    ("bytes", npy((GOOD * 255).astype(np.uint8)), "not_float"),
    ("booleans", npy(GOOD > 0), "not_float"),
    ("complex numbers", npy(GOOD.astype(np.complex64)), "not_float"),
    ("text values", npy(np.full(SHAPE, "0.5")), "not_float"),
    ("a structure", npy(np.zeros(SHAPE, [("a", "<f4")])), "not_float"),
    ("a vector in every pixel", with_header(described("('<f4', (1000000,))"), BODY), "not_float"),
    ("header only", with_header(described()), "truncated"),
    ("data cut off", npy(GOOD)[:-1], "truncated"),
    ("half precision announced as double", with_header(described("'<f8'"), BODY), "truncated"),
    ("one NaN", changed(np.nan), "not_finite"),
    ("one infinity", changed(-np.inf), "not_finite"),
    ("only NaN", npy(np.full(SHAPE, np.nan, np.float32)), "not_finite"),
    ("double beyond single precision", npy(np.full(SHAPE, 1e300)), "not_finite"),
]
REMARKED: list[tuple[str, bytes, str | None]] = [
    ("Fortran order", npy(np.asfortranarray(np.linspace(0, 1, SIDE * SIDE, dtype=np.float32).reshape(SHAPE))), None),
    ("big-endian", npy(GOOD.astype(">f4")), None),
    ("constant", npy(GOOD), None),
    ("type code with an alignment flag", with_header(described("'=f4'"), BODY), None),
    ("Python 2 wrote it", with_header(described(shape=f"({SIDE}L, {SIDE}L)"), BODY), None),
    ("half precision", npy(GOOD.astype(np.float16)), "dtype"),
    ("double precision", npy(GOOD.astype(np.float64)), "dtype"),
    ("bytes behind the array", npy(GOOD) + b"more", "trailing_bytes"),
    ("as a picture of 0 to 255", npy(GOOD * 255), "range"),
    ("as large as single precision gets", changed(3.4e38), "range"),
]


PATH = "{case}/enhanced.npy"
HOSTILE: list[Hostile] = [
    *files(PATH, "malformed", LOST),
    *files(PATH, "valid", REMARKED),
    Hostile("the input handed back", copied(PATH, "input.npy"), "malformed", "wrong_shape"),
    *no_files(PATH, npy(GOOD), larger_than_the_card_allows=holding(npy(GOOD) + bytes(MAX_BYTES))),
]


# --- cases written down by hand -------------------------------------------------------------------------------


def make_card(**settings: Any) -> TaskCard:
    """The chest X-ray card with these metric settings and no others."""
    card = load_card(ROOT / "config/tasks/enhancement/nih-cxr-sr-task.yaml")
    return card.model_copy(update={"metric": card.metric.model_copy(update={"settings": settings})})


def make_manifest(shapes: Mapping[str, tuple[int, ...]]) -> Manifest:
    """Cases and the shape that each one's output must have."""
    both = {case: {"input_shape": list(shape), "output_shape": list(shape)} for case, shape in shapes.items()}
    return manifest_of("enhancement", both)


def inputs_of(
    card: TaskCard, manifest: Manifest, folder: Path, resources: Mapping[str, Path] | None = None
) -> ScoringInputs:
    """What the scorer reads: ``submission/`` and ``private/`` below a folder, checked."""
    return inputs(card, manifest, folder / "submission", folder / "private", resources=resources)
