"""Headers of a public file: metadata, texts, time stamps, and how it is compressed. No decoding.

Formats: JPEG (ITU-T T.81), PNG (ISO/IEC 15948, section 11), NIfTI-1 (fields of its 348 bytes), gzip (RFC 1952), NPY
(NumPy enhancement proposal 1).
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpy.lib.format import read_array_header_1_0, read_magic

from automedbench.base.errors import InvalidSubmission
from automedbench.base.untrusted import parse_json
from automedbench.datasets.forms.pictures import take_apart

_JPEG = (".jpg", ".jpeg")
_PNG = b"\x89PNG\r\n\x1a\n"
_PIXEL_CHUNKS = frozenset({"IHDR", "PLTE", "tRNS", "IDAT", "IEND"})
# Texts of a NIfTI-1 header: name → (first byte, length).
_NIFTI_TEXTS = {
    "data_type": (4, 10),
    "db_name": (14, 18),
    "descrip": (148, 80),
    "aux_file": (228, 24),
    "intent_name": (328, 16),
    "extension": (348, 4),
}
# Keys of a public JSON file that answers or explains what is asked for.
_TELLING_KEYS = ("answer", "gold", "ground_truth", "truth", "explanation", "rationale", "reasoning", "caption", "label")
_GZIP_HEAD = 10
_LARGEST_JSON = 10_000_000


def inspect_headers(path: Path, name: str) -> tuple[list[str], bytes | None]:
    """Metadata that a file ``name`` holds beside its content, each as a few words, and its storage form.

    The first is empty for unknown formats; the second is without content and size, None for other than pictures and
    volumes.
    """
    return _jpeg(path) if name.endswith(_JPEG) else (_header_texts(path, name), _storage_form(path, name))


def _header_texts(path: Path, name: str) -> list[str]:
    if name.endswith(".png"):
        return [f"a chunk {chunk}" for chunk in _png_chunks(path) if chunk not in _PIXEL_CHUNKS]
    if name.endswith((".nii.gz", ".nii")):
        return _nifti(path)
    if name.endswith(".npy") and not _npy_type(path):
        return ["no NPY header that can be read, or one with more than type, order and shape"]
    return _json(path) if name.endswith(".json") else []


def _storage_form(path: Path, name: str) -> bytes | None:
    if name.endswith(".png"):
        return _head(path, 33)[24:29]  # IHDR: depth, colours, compression, filter, interlace
    if name.endswith(".nii.gz"):
        return _nifti_head(path)[70:74]  # datatype and bitpix
    return _npy_type(path).encode() if name.endswith(".npy") else None


def _jpeg(path: Path) -> tuple[list[str], bytes | None]:
    data = path.read_bytes()
    jpeg = take_apart(data)
    if jpeg is None:
        return ["no JPEG that can be taken apart"], None
    clean = jpeg.without_metadata() == data
    findings = [] if clean else ["metadata (EXIF, a comment or other segments, or something behind its end)"]
    return findings, jpeg.compression()


def _png_chunks(path: Path) -> Iterator[str]:
    """Names of the chunks; what is behind the end, or no PNG at all, counts as one."""
    with open(path, "rb") as stream:
        if stream.read(8) != _PNG:
            yield "without a PNG's signature"
            return
        while len(head := stream.read(8)) == 8:
            name = head[4:].decode("latin-1")
            yield name
            stream.seek(int.from_bytes(head[:4], "big") + 4, 1)
            if name == "IEND":
                break
        if stream.read(1):
            yield "behind the end"


def _nifti(path: Path) -> list[str]:
    found = []
    head = _nifti_head(path)
    for name, (start, length) in _NIFTI_TEXTS.items():
        text = head[start : start + length].strip(b"\0")
        if text:
            found.append(f"{name} {text.decode('latin-1')!r}")
    if path.name.endswith(".gz"):
        packed = _head(path, _GZIP_HEAD)
        if packed[3] & 0x1C:
            found.append("a file name or comment of gzip")
        if any(packed[4:8]):
            found.append("a time of gzip")
    return found


def _nifti_head(path: Path) -> bytes:
    opener: Any = gzip.open if path.name.endswith(".gz") else open
    try:
        with opener(path, "rb") as stream:
            head: bytes = stream.read(352)
    except (OSError, EOFError, zlib.error):
        return b""
    return head


def _npy_type(path: Path) -> str:
    """Type of the values; empty for a header of another form than ours."""
    with open(path, "rb") as stream:
        try:
            return str(read_array_header_1_0(stream)[2].str) if read_magic(stream) == (1, 0) else ""
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return ""


def _json(path: Path) -> list[str]:
    try:
        value = parse_json(path.read_bytes()[:_LARGEST_JSON])
    except InvalidSubmission as error:
        return [f"no JSON that can be read ({error})"]
    return [f"the key {key}" for key in _keys(value) if key.lower().startswith(_TELLING_KEYS) and "mode" not in key]


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)


def _head(path: Path, length: int) -> bytes:
    with open(path, "rb") as stream:
        return stream.read(length)
